"""refine and coarsen: the same flow on another grid."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor, nn

import stepnet
from stepnet.errors import UserError
from stepnet.nets.blocks import basic
from stepnet.nets.model_registry import MODELS, register_model
from stepnet.nets.residual import Backbone, ResidualNetwork


def narrow(**options: Any) -> ResidualNetwork:
    """Two stages of 3 and 1 + 2 blocks."""
    return ResidualNetwork(Backbone(basic, (4, 8), (3, 3), stem_width=4, pre_activation=True), **options)


def one_stage(**options: Any) -> ResidualNetwork:
    """Two blocks, and no change of shape."""
    return ResidualNetwork(Backbone(basic, (2,), (2,), stem_width=2, pre_activation=True), **options)


def post_activation(**options: Any) -> ResidualNetwork:
    return ResidualNetwork(Backbone(basic, (4, 8), (2, 3), stem_width=4), **options)


for _build in (narrow, one_stage, post_activation):
    if _build.__name__ not in MODELS:
        register_model(_build.__name__, family="test")(_build)

IMAGES = torch.randn(6, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
TOKENS = torch.randint(16, (3, 7), generator=torch.Generator().manual_seed(1))


def network(name: str, **options: Any) -> nn.Module:
    """In double precision and evaluation mode, with running statistics of some batches and coefficients off Euler's."""
    torch.manual_seed(0)
    model = stepnet.create_model(name, **options).double()
    for stage in model.stages:
        for parameter in () if stage.mixing is None else stage.mixing.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
    inputs = inputs_of(model)
    for _ in range(3):
        model.train()(inputs)
    return model.eval()


def inputs_of(model: nn.Module) -> Tensor:
    return TOKENS if hasattr(model, "layers") else IMAGES


def right_hand_sides(model: nn.Module) -> list[nn.Module]:
    return list(model.stages[0].blocks)


Slope = Callable[[Tensor, Tensor, nn.Module, dict[str, Tensor]], Tensor]  # of streams y and u_0, f and coefficients


def flow(model: nn.Module, slope: Slope, coefficients: list[dict[str, Tensor]], streams: int = 1) -> Tensor:
    """The solution of `y' = slope`, for a time of 1 for each block, by an adaptive Runge–Kutta method of scipy."""
    with torch.no_grad():
        u0 = model.stem(IMAGES)
        y = torch.stack([u0] * streams)
        for f, k in zip(right_hand_sides(model), coefficients, strict=True):

            def rate(t: float, v: np.ndarray, f: nn.Module = f, k: dict[str, Tensor] = k) -> np.ndarray:
                return slope(torch.from_numpy(v).view(streams, *u0.shape), u0, f, k).flatten().numpy()

            solved = solve_ivp(rate, (0, 1), y.flatten().numpy(), rtol=1e-5, atol=1e-7)
            y = torch.from_numpy(solved.y[:, -1].copy()).view_as(y)
    return y.mean(0)


FLOWS: dict[str, Slope] = {  # with the coefficients of steps of length 1
    "euler": lambda y, u0, f, k: f(y[0])[None],
    "lm": lambda y, u0, f, k: f(y[0])[None] / (1 + k["k"]),
    "momentum": lambda y, u0, f, k: f(y[0])[None] / (1 - k["b"]),
    "nesterov": lambda y, u0, f, k: f(y[0])[None] / (1 - k["b"]),
    "x0": lambda y, u0, f, k: (k["r"] - 1) * y + k["x"] * u0 + f(y[0])[None],
    "hyper": lambda y, u0, f, k: (
        torch.einsum("ij,j...->i...", k["V"] - torch.eye(2), y)
        + torch.einsum("i,...->i...", k["B"], f(torch.einsum("j,j...->...", k["U"], y)))
    ),
}


@pytest.mark.parametrize("scheme", FLOWS)
def test_a_refined_network_converges_to_the_flow_with_order_one(scheme: str) -> None:
    model = network("one_stage", scheme=scheme, **({"k": -0.3} if scheme == "lm" else {}))
    for f in right_hand_sides(model):  # slow enough for steps of 1/8
        f.convs[-1].weight.data.mul_(0.2)
    stage = model.stages[0]
    own = [{} if k is None else k if isinstance(k, dict) else {"k": k} for k in stage.ks()]
    coefficients = [{"k": torch.zeros(()), "b": torch.zeros(())} | {n: v.detach() for n, v in k.items()} for k in own]
    wanted = flow(model, FLOWS[scheme], coefficients, 2 if scheme == "hyper" else 1)
    errors = []
    for factor in (8, 16, 32):
        fine = stepnet.refine(model, factor)
        with torch.no_grad():
            errors.append(float((fine.trajectory(IMAGES)[0][-1] - wanted).norm()))
    orders = [np.log2(a / b) for a, b in pairwise(errors)]
    assert all(0.9 < order < 1.1 for order in orders), (errors, orders)


def test_the_refined_lm_by_hand() -> None:
    """Two blocks become 2 + 2: the second half of the first block has Euler's k, 0; the others keep theirs."""
    model = network("one_stage", scheme="lm", k=-0.4)
    f, g = right_hand_sides(model)
    with torch.no_grad():
        u0 = model.stem(IMAGES)
        u1 = u0 + f(u0) / 2
        u2 = u1 + f(u1) / 2
        k = model.stages[0].k  # -0.4 in single precision
        u3 = (1 - k) * u2 + k * u1 + g(u2) / 2
        u4 = (1 - k) * u3 + k * u2 + g(u3) / 2
        fine = stepnet.refine(model)
        torch.testing.assert_close(fine.trajectory(IMAGES)[0][-1], u4, rtol=1e-12, atol=1e-12)
    assert list(stepnet.coefficients(fine).values()) == pytest.approx([0, -0.4, -0.4])


def test_k_follows_the_steps_where_their_length_changes() -> None:
    """After a transition of length 1 come steps of 1/2: `k h_{n-1} / h_n` stays, so k is half as large there."""
    model = network("narrow", scheme="lm", k=-0.4)
    fine = stepnet.refine(model)
    assert fine.stages[1].dts == (1, 0.5, 0.5, 0.5, 0.5)
    assert fine.stages[1].k.tolist() == pytest.approx([-0.2, -0.4, -0.4, -0.4])
    assert fine.stages[0].k.tolist() == pytest.approx([0, -0.4, -0.4, -0.4, -0.4])


def test_linear_blocks_lie_between_their_neighbours_with_their_statistics() -> None:
    model = network("one_stage")
    fine = stepnet.refine(model, interpolation="linear")
    old, new = model.state_dict(), fine.state_dict()
    for rest in ("convs.1.weight", "norms.0.running_var"):
        a, b = (old[f"stages.0.blocks.{n}.{rest}"] for n in (0, 1))
        for n, wanted in enumerate([a, (a + b) / 2, b, b]):
            torch.testing.assert_close(new[f"stages.0.blocks.{n}.{rest}"], wanted, rtol=1e-12, atol=1e-12)


ROUND_TRIPS = [
    ("one_stage", {}),
    ("narrow", {}),
    ("narrow", {"scheme": "lm", "k": -0.4}),
    ("narrow", {"scheme": "lm", "k_bound": "stable", "k_per_channel": True}),
    ("narrow", {"scheme": "rk4"}),
    ("narrow", {"scheme": "ab2"}),
    ("post_activation", {"scheme": "lm"}),
    ("revnet38", {}),
    ("gpt3x16", {"num_classes": 16}),
    ("gpt3x16", {"num_classes": 16, "scheme": "lm"}),
    ("narrow", {"scheme": "momentum"}),
    ("narrow", {"scheme": "nesterov"}),
    ("narrow", {"scheme": "x0"}),
    ("narrow", {"scheme": "hyper"}),
    ("narrow", {"scheme": "mhc"}),
    ("gpt3x16", {"num_classes": 16, "scheme": "hyper"}),
]


@pytest.mark.filterwarnings("ignore:ab2 takes")
@pytest.mark.parametrize("interpolation", ["copied", "linear"])
@pytest.mark.parametrize(("name", "options"), ROUND_TRIPS, ids=lambda each: str(each))
def test_coarsening_a_refined_network_gives_it_back(name: str, options: dict[str, Any], interpolation: Any) -> None:
    model = network(name, **options)
    fine = stepnet.refine(model, 3, interpolation=interpolation)
    depths = [len(stage.steps) // model.steps_per_block for stage in model.stages]
    back = stepnet.coarsen(fine, depths=depths)
    assert len(fine.stages[0].steps) == 3 * len(model.stages[0].steps)
    inputs = inputs_of(model)
    with torch.no_grad():
        near = 1e-5 if options.get("scheme") == "mhc" else 1e-10  # Sinkhorn's iteration is cut off
        torch.testing.assert_close(back(inputs), model(inputs), rtol=near, atol=near)
        assert float((fine(inputs) - model(inputs)).norm()) > 1e-6
    assert [*stepnet.coefficients(back)] == [*stepnet.coefficients(model)]
    own, other = ({k: v for k, v in m.state_dict().items() if "_free" not in k} for m in (back, model))
    torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-12)


def test_half_of_a_network_that_was_doubled() -> None:
    model = network("one_stage", scheme="lm")
    back = stepnet.coarsen(stepnet.refine(model, 2), 0.5)
    torch.testing.assert_close(back.state_dict(), model.state_dict(), rtol=1e-12, atol=1e-12)
    assert back.stages[0].dts == pytest.approx((1, 1))


@pytest.mark.parametrize(
    ("name", "options"),
    [("narrow", {"scheme": "lm"}), ("post_activation", {}), ("narrow", {"scheme": "rk4"}), ("revnet38", {}),
     ("gpt3x16", {"num_classes": 16})],
)  # fmt: skip
def test_step_sizes_go_into_the_last_layers(name: str, options: dict[str, Any]) -> None:
    model = network(name, **options)
    fine, plain = stepnet.refine(model), stepnet.refine(model, dt=1)
    assert {dt for stage in plain.stages for dt in stage.dts} == {1}
    inputs = inputs_of(model)
    with torch.no_grad():
        torch.testing.assert_close(plain(inputs), fine(inputs), rtol=1e-10, atol=1e-10)


def test_a_refined_resnet_of_another_depth_is_that_resnet() -> None:
    model = network("preact_resnet20")
    deeper = stepnet.refine(model, depths=(6, 6, 6), dt=1)
    named = stepnet.create_model("preact_resnet38" if "preact_resnet38" in MODELS else "preact_resnet44")
    assert [len(stage.steps) for stage in deeper.stages] == [6, 6, 6]
    assert len(named.stages) == 3
    fine = stepnet.refine(model, depths=(6, 6, 6))
    assert fine.stages[1].dts == (1, 0.5, 0.5, *(1 / 3,) * 3)
    assert sum(fine.stages[2].dts) == pytest.approx(3)


def test_blocks_go_that_do_nothing_and_no_weight_changes() -> None:
    model = network("narrow", scheme="lm", k=0.0)
    with torch.no_grad():
        model.stages[0].blocks[1].convs[-1].weight.mul_(1e-6)
        model.stages[1].blocks[0].convs[-1].weight.mul_(1e-6)
    small = stepnet.coarsen(model, 0.67, IMAGES)
    assert [len(stage.steps) for stage in small.stages] == [2, 2]
    own = model.state_dict()
    for name, tensor in small.stages[0].blocks[1].state_dict().items():
        assert torch.equal(tensor, own[f"stages.0.blocks.2.{name}"])
    with torch.no_grad():
        torch.testing.assert_close(small(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("narrow", {"scheme": "lm"}),
        ("gpt3x16", {"num_classes": 16}),
        ("gpt3x16", {"num_classes": 16, "scheme": "strang"}),
    ],
)
def test_refitted_steps_come_nearer_to_the_outputs(name: str, options: dict[str, Any]) -> None:
    model = network(name, **options)
    inputs = inputs_of(model)
    with torch.no_grad():
        for stage in model.stages:
            for parameter in stage.blocks.parameters():
                parameter.mul_(2.0)
    plain = stepnet.coarsen(model, 0.67, inputs, refit=False)
    fitted = stepnet.coarsen(model, 0.67, inputs)
    assert [len(s.steps) for s in plain.stages] == [len(s.steps) for s in fitted.stages]
    with torch.no_grad():
        before, after = (float((each(inputs) - model(inputs)).square().mean()) for each in (plain, fitted))
    assert after < 0.9 * before
    assert fitted.stages[0].dts != plain.stages[0].dts


def test_matrices_are_the_least_squares_of_numpy_step_by_step() -> None:
    """LM, the middle one of three blocks dropped: the first step aims at u*_2, the second at u*_3."""
    model = network("narrow", scheme="lm", k=-0.2)
    model.stages[0].blocks[1].convs[-1].weight.data.mul_(0.2)
    small, whole = (stepnet.coarsen(model, None, IMAGES, depths=(2, 3), refit=refit) for refit in ("matrix", False))
    for own, n in zip(small.stages[0].blocks, (0, 2), strict=True):
        assert torch.equal(own.convs[0].weight, model.stages[0].blocks[n].convs[0].weight)
    with torch.no_grad():
        goals = model.trajectory(IMAGES)[0][2:]
        past, u = None, model.stem(IMAGES)
        for n, goal in enumerate(goals):
            f = whole.stages[0].blocks[n](u)
            k = 0 if past is None else float(small.stages[0].k[0])
            carry = u if past is None else (1 - k) * u + k * past
            x, y = (v.movedim(1, -1).reshape(-1, 4).numpy() for v in (f, goal - carry))
            ridge = (1e-4 * np.square(x).sum(0).mean()) ** 0.5 * np.eye(4)  # rows that ask for the identity
            matrix = torch.from_numpy(np.linalg.lstsq(np.vstack([x, ridge]), np.vstack([y, ridge]), rcond=None)[0].T)
            wanted = torch.einsum("ij,jkab->ikab", matrix, whole.stages[0].blocks[n].convs[-1].weight)
            torch.testing.assert_close(small.stages[0].blocks[n].convs[-1].weight, wanted, rtol=1e-8, atol=1e-10)
            past, u = u, carry + torch.einsum("ij,bjxy->bixy", matrix, f)


@pytest.mark.parametrize(("name", "options"), [("narrow", {"stochastic_depth": 0.8}), ("gpt3x16", {"num_classes": 16})])
def test_matrices_come_nearer_and_change_the_last_layers_alone(name: str, options: dict[str, Any]) -> None:
    model = network(name, **options)
    inputs = inputs_of(model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    plain, matrices = (stepnet.coarsen(model, 0.67, inputs, refit=refit) for refit in (False, "matrix"))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    with torch.no_grad():
        far, near = (float((each(inputs) - model(inputs)).square().mean()) for each in (plain, matrices))
    assert near < 0.5 * far
    assert {dt for stage in matrices.stages for dt in stage.dts} == {1}
    own, other = plain.state_dict(), matrices.state_dict()
    changed = {key for key in own if not torch.equal(own[key], other[key])}
    assert changed
    assert all(key.endswith(("convs.1.weight", "project.weight")) for key in changed)


@pytest.mark.parametrize("refit", [True, "matrix"])
@pytest.mark.parametrize("name", ["narrow", "gpt3x16"])
def test_a_coarse_network_is_an_ordinary_one(name: str, refit: Any, tmp_path: Path) -> None:
    """It is saved, loaded and exported, and can be refined again."""
    model = network(name, scheme="lm", **({"num_classes": 16} if name == "gpt3x16" else {}))
    inputs = inputs_of(model)
    small = stepnet.refine(stepnet.coarsen(model, 0.67, inputs, refit=refit), 2).float()
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    stepnet.save(small, tmp_path / "small.safetensors")
    loaded = stepnet.load(tmp_path / "small.safetensors")
    assert [stage.dts for stage in loaded.stages] == [stage.dts for stage in small.stages]
    with torch.no_grad():
        assert torch.equal(loaded(inputs), small(inputs))
        exported = torch.export.export(small, (inputs,)).module()
        torch.testing.assert_close(exported(inputs), small(inputs), rtol=1e-5, atol=1e-5)
    twice = stepnet.refine(loaded)
    assert sum(twice.stages[0].dts) == pytest.approx(sum(small.stages[0].dts))


def test_a_loaded_network_keeps_its_classes_and_its_input() -> None:
    model = stepnet.load("lm_resnet20.digits")
    fine = stepnet.refine(model)
    assert fine.description.classes == model.description.classes
    assert fine.description.preprocessing == model.description.preprocessing
    assert fine.description.training is None
    assert tuple(fine.description.options["depths"]) == (6, 5, 5)


def test_noise_memory_and_modes_go_along() -> None:
    model = network("narrow", scheme="lm", stochastic_depth=0.8).train()
    model.set_memory("recompute")
    before = torch.get_rng_state()
    fine = stepnet.refine(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert fine.training
    assert fine.stochastic.depth == 11
    assert fine.stochastic.dt == 1
    assert {stage.memory for stage in fine.stages} == {"recompute"}


WRONG = [
    (lambda m: stepnet.refine(m, 0), r"factor = 0: expected 1 or more"),
    (lambda m: stepnet.refine(m, depths=(6,)), r"the network has 2 stages, of \(3, 3\) blocks"),
    (lambda m: stepnet.refine(m, depths=(2, 3)), r"a stage of 3 blocks cannot be refined to 2"),
    (lambda m: stepnet.refine(nn.Linear(2, 2)), r"Linear has no stages"),
    (lambda m: stepnet.refine(stepnet.create_model("fractalnet20")), r"FractalNet has no stages of blocks"),
    (lambda m: stepnet.coarsen(m, 0.1), r"keep = 0.1 of 6 blocks leaves a stage empty: keep 0.33 or more"),
    (lambda m: stepnet.coarsen(m, 0.99), r"keep = 0.99 of 6 blocks drops none"),
    (lambda m: stepnet.coarsen(m, 1.5), r"keep = 1.5: expected less than 1"),
    (lambda m: stepnet.coarsen(m), r"give one of them"),
    (lambda m: stepnet.coarsen(m, depths=(4, 3)), r"expected fewer blocks than \(3, 3\)"),
    (
        lambda m: stepnet.refine(stepnet.create_model("narrow", scheme="dense")),
        r"'dense' learns weights of past states",
    ),
    (
        lambda m: stepnet.refine(stepnet.create_model("narrow", scheme="multistep")),
        r"'multistep' learns weights of past",
    ),
    (lambda m: stepnet.refine(narrow()), r"does not say how it was built"),
    (lambda m: stepnet.coarsen(m, 0.67, refit="matrix"), r"refit='matrix' without an example"),
    (
        lambda m: stepnet.coarsen(stepnet.create_model("narrow", scheme="rk4"), 0.67, IMAGES, refit="matrix"),
        r"refit='matrix': expected .* one f in a step, as euler, not 'rk4'",
    ),
    (
        lambda m: stepnet.coarsen(stepnet.create_model("gpt3x16", scheme="parallel"), 0.67, TOKENS, refit="matrix"),
        r"one f in a step, as euler, not 'parallel'",
    ),
    (
        lambda m: stepnet.coarsen(stepnet.create_model("post_activation"), 0.67, IMAGES, refit="matrix"),
        r"refit='matrix': blocks end in BatchNorm2d, which holds no matrix",
    ),
    (lambda m: stepnet.refine(stepnet.create_model("narrow", scheme="leapfrog")), r"'leapfrog' needs steps of one"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=range(len(WRONG)))
def test_one_line_for_what_cannot_be(call: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call(stepnet.create_model("narrow"))


def test_leapfrog_is_refined_where_no_block_changes_the_shape() -> None:
    fine = stepnet.refine(network("one_stage", scheme="leapfrog"))
    assert fine.stages[0].dts == (0.5,) * 4
