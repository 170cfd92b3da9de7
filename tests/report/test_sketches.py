"""The plain description of a network: what each step reads, found by running the scheme."""

import pytest
import sympy
import torch
from torch import nn

from stepnet import convert, create_model
from stepnet.analysis.symbols import k
from stepnet.errors import UserError
from stepnet.report.sketches import NetworkSketch, sketch, sketch_stage, weight_text
from stepnet.schemes import Equation, Scheme, get_scheme


def test_lm_reads_two_states_with_its_own_k() -> None:
    stage = sketch_stage(get_scheme("lm"), 3, ks=[-0.1, -0.2])
    start, _, last = stage.steps
    assert (start.states, start.slopes, start.k) == (((0, 1),), (), None)
    assert (last.states, last.slopes, last.k) == (((0, 1 - k), (1, k)), (), -0.2)
    assert start.wiring.result[0] == last.wiring.result[0] == 1
    assert stage.equation == "(1 + k) u' = f"


def test_multistep_slopes_reach_back_and_runge_kutta_evaluates_often() -> None:
    ab2 = sketch_stage(get_scheme("ab2"), 2).steps[1]
    assert (ab2.wiring.result[0], ab2.slopes) == (sympy.Rational(3, 2), ((1, sympy.Rational(-1, 2)),))
    rk4 = sketch_stage(get_scheme("rk4"), 1).steps[0]
    assert (len(rk4.wiring.boxes), rk4.slopes) == (4, ())


def test_after_a_transition_the_projected_input_is_the_past() -> None:
    first, second = sketch_stage(get_scheme("lm"), 2, ks=[-0.1], entry="projected").steps
    assert first.states == ((0, 1),)
    assert [lag for lag, _ in second.states] == [0, 1]


def test_streams_are_drawn_as_the_states_that_they_are() -> None:
    """`u_n + b v_n` is `(1 + b) u_n - b u_{n-1}`, LM's arcs at k = -b; x0 reads `u_0`."""
    b, r, x = (sympy.Symbol(name, real=True) for name in "brx")
    assert sketch_stage(get_scheme("momentum"), 3).steps[2].states == ((0, 1 + b), (1, -b))
    assert sketch_stage(get_scheme("x0"), 4).steps[3].states == ((0, r), (3, x))
    stage = sketch_stage(get_scheme("mhc4"), 2)
    u, v, f = sympy.symbols("U V B")
    assert stage.notes == ["4 streams: u becomes V u + B f(U u)"] and stage.steps[1].states == ((0, v),)
    assert (stage.steps[1].wiring.boxes[0].argument, stage.steps[1].wiring.result[0]) == ({("u", 1): u}, f)
    after = sketch_stage(get_scheme("mhc4"), 2, entry="projected").steps  # a transition is an Euler step
    assert after[0].states == ((0, 1),) and after[1].states == ((0, v),)


def test_a_sum_that_is_read_and_carried_on_is_one_sum() -> None:
    """`Y + f(Y)`: Nesterov, DenseFormer and x0 form Y once; LM reads `u_n` and carries another sum."""
    for name, shared in (("nesterov", True), ("dense", True), ("x0", True), ("lm", False), ("momentum", False)):
        assert sketch_stage(get_scheme(name), 4).steps[3].wiring.carries_argument == shared


class ForwardPair(Scheme):
    @property
    def equation(self) -> Equation:
        return Equation(partitioned=True)

    def increment(self, past, dt, k):
        (f, g), (x, y) = past[0].pair, past[0].u
        return f(y, 0, 0), g(x, 0, 0)


def test_a_forward_pair_and_the_coupled_scheme_come_out_different() -> None:
    forward, coupled = (sketch_stage(scheme, 1).steps[0] for scheme in (ForwardPair(), get_scheme("coupled")))
    assert (coupled.g_reads, forward.g_reads) == ("new", "old")
    lm = sketch_stage(get_scheme("lm+coupled"), 2, ks=[-0.1]).steps[1]
    assert lm.g_reads == "predicted"  # X_n + dt f: the new X has k X_{n-1} besides
    assert lm.states == ((0, 1 - k), (1, k))


def test_every_k_of_a_network_is_shown() -> None:
    torch.manual_seed(0)
    model = create_model("lm_resnet20")
    network = sketch(model, "lm")
    assert [stage.ks for stage in network.stages] == [stage.k.tolist() for stage in model.stages]
    text = str(network)
    assert text.startswith("lm\nstage 1, 3 steps, lm, (1 + k) u' = f, 16 channels\n  k = -0.")
    assert "relu" not in text


def test_one_k_for_each_channel_is_shown_by_its_mean() -> None:
    model = create_model("lm_resnet20", k=-0.25, k_per_channel=True)
    with torch.no_grad():
        model.stages[0].k[0, :8] = 0.0
    first = str(sketch(model, "net")).splitlines()[1:3]
    assert first[0].endswith("16 channels, k by channel, means shown") and first[1] == "  k = -0.125, -0.250"


def test_a_step_size_other_than_1_is_told() -> None:
    assert "midpoint2, u' = f, 16 channels, dt = 0.5\n" in str(sketch(create_model("midpoint2_resnet20"), "net"))
    assert "dt" not in str(sketch(create_model("resnet20"), "net"))


def test_a_long_list_of_k_is_cut_in_the_middle() -> None:
    stage = sketch_stage(get_scheme("lm"), 20, ks=[n / 100 for n in range(19)])
    text = str(NetworkSketch("net", (stage,)))
    assert "0.000, 0.010, 0.020, 0.030, …, 0.150, 0.160, 0.170, 0.180" in text


def test_the_projected_past_of_lm_resnext() -> None:
    stages = sketch(create_model("lm_resnext29_8x64d"), "x").stages
    assert [stage.projected_past for stage in stages] == [False, True, True]
    assert [lag for lag, _ in stages[1].steps[0].states] == [0, 2]  # x stands between u_0 and the state before it


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u + self.conv(u)


class SmallResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(4) for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.stem(x)).mean((2, 3))


def test_a_converted_network_is_described_by_its_runs() -> None:
    network = sketch(convert(SmallResNet(), scheme="lm", example=torch.zeros(1, 3, 8, 8)), "foreign")
    assert [len(stage.steps) for stage in network.stages] == [3]
    assert len(network.stages[0].ks) == 2


def test_a_network_without_a_scheme_has_nothing_to_draw() -> None:
    with pytest.raises(UserError, match="densenet has no scheme"):
        sketch(torch.nn.Linear(1, 1), "densenet")


def test_weights_as_text() -> None:
    assert weight_text(sympy.Integer(1), 3, None) == ""
    assert weight_text(k, 3, -0.25) == "$k_{3} = -0.250$"
    assert weight_text(1 - k, 3, -0.25) == "$1 - k_{3}$"
    assert weight_text(sympy.Rational(-1, 2), 3, None) == "$-1/2$"
    assert weight_text(1 - sympy.Symbol("a2"), 3, None) == "$1 - a_{2}$"
    assert weight_text(sympy.Rational(129, 130), 3, None) == "$0.992$"
