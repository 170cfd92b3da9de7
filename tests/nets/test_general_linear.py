"""Networks of several coefficients and streams, against loops written out in the test."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import stepnet
from stepnet.errors import UserError
from stepnet.nets import Stage
from stepnet.nets.bounds import DoublyStochastic, ZeroStable
from stepnet.nets.cost import saved_bytes
from stepnet.nets.transitions import Transition
from stepnet.nets.weights import load_weights
from stepnet.schemes import get_scheme
from stepnet.schemes.hyper_connections import varied

WIDTH, DEPTH = 3, 5
NAMES = ["x0", "momentum", "nesterov", "hyper", "mhc", "altup", "dense", "multistep"]


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return torch.tanh(self.linear(u))


def moved(stage: nn.Module) -> Any:
    """In double precision, with coefficients away from their start."""
    stage.double()
    for module in stage.modules():
        if isinstance(module, Stage) and module.mixing is not None:
            for parameter in module.mixing.parameters():
                with torch.no_grad():
                    parameter += 0.3 * torch.randn(parameter.shape, dtype=parameter.dtype)
    return stage


def values(stage: Stage) -> dict[str, dict[int, Tensor]]:
    """The coefficients by name and step."""
    found: dict[str, dict[int, Tensor]] = {}
    for name, value in stage.named_coefficients():
        layer, _, own = name.rpartition(":")
        found.setdefault(own, {})[stage.step_names.index(layer)] = value.detach()
    return found


def x0(u: Tensor, fs: Any, own: Any) -> Tensor:
    first = u
    for n, f in enumerate(fs):
        u = own["r"][n] * u + own["x"][n] * first
        u = u + f(u)
    return u


def momentum(u: Tensor, fs: Any, own: Any, ahead: float = 0.0) -> Tensor:
    v = torch.zeros_like(u)
    for n, f in enumerate(fs):
        b = own["b"].get(n, 0.0)  # the first step has no velocity, and no b
        v = b * v + f(u + ahead * b * v)
        u = u + v
    return u


def hyper(u: Tensor, fs: Any, own: Any) -> Tensor:
    """`H <- A_r^T H + B^T F(A_m^T H)` of the paper on hyper-connections, stream by stream."""
    streams = [u] * len(own["U"][0])
    for n, f in enumerate(fs):
        value = f(sum(w * h for w, h in zip(own["U"][n], streams, strict=True)))
        streams = [
            sum(w * h for w, h in zip(row, streams, strict=True)) + b * value
            for row, b in zip(own["V"][n], own["B"][n], strict=True)
        ]
    return sum(streams) / len(streams)


def altup(u: Tensor, fs: Any, own: Any) -> Tensor:
    """Predict, evaluate the layer at the first prediction, correct all by what it changed there, as in Gemma 3n."""
    streams = [u] * len(own["B"][0])
    for n, f in enumerate(fs):
        predicted = [sum(w * h for w, h in zip(row, streams, strict=True)) for row in own["V"][n]]
        activated = predicted[0] + f(predicted[0])
        streams = [p + g * (activated - predicted[0]) for p, g in zip(predicted, own["B"][n], strict=True)]
    return sum(streams) / len(streams)


def dense(u: Tensor, fs: Any, own: Any) -> Tensor:
    """DenseFormer: each block reads a weighted sum of the outputs of all blocks before it and of the input."""
    outputs = [u]
    for n, f in enumerate(fs):
        mixed = outputs[-1] if n == 0 else sum(w * x for w, x in zip(own["a"][n], reversed(outputs), strict=True))
        outputs.append(mixed + f(mixed))
    return outputs[-1]


def multistep(u: Tensor, fs: Any, own: Any) -> Tensor:
    states, slopes = [u], []
    for n, f in enumerate(fs):
        slopes.insert(0, f(states[0]))
        new = states[0] + slopes[0]
        if n in own["a"]:
            a, b = own["a"][n], own["b"][n]
            new = (1 - a.sum()) * states[0] + sum(w * s for w, s in zip(a, states[1:], strict=False))
            new = new + sum(w * s for w, s in zip(b, slopes, strict=False))
        states.insert(0, new)
    return states[0]


REFERENCES: dict[str, Callable[..., Tensor]] = {
    "x0": x0,
    "momentum": momentum,
    "nesterov": lambda *given: momentum(*given, ahead=1.0),
    "hyper": hyper,
    "hyper3": hyper,
    "mhc": hyper,
    "mhc4": hyper,
    "altup": altup,
    "altup3": altup,
    "dense": dense,
    "multistep": multistep,
    "multistep4": multistep,
}


@pytest.mark.parametrize("scheme", REFERENCES)
@pytest.mark.parametrize("memory", ["stored", "recompute"])
def test_a_stage_computes_what_its_source_says(scheme: str, memory: Any) -> None:
    """The outputs, and the gradients of the input, the weights and the coefficients."""
    torch.manual_seed(0)
    stage = moved(Stage(get_scheme(scheme), [Slope() for _ in range(DEPTH)], memory=memory)).train()
    x = torch.randn(4, WIDTH, dtype=torch.float64, requires_grad=True)
    wanted = REFERENCES[scheme](x, stage.blocks, values(stage))
    found = stage(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    weights = [x, *stage.blocks.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(found.sum(), weights), torch.autograd.grad(wanted.sum(), weights), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    stage(x).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in stage.parameters())


def dynamic(h: Tensor, f: Any, own: dict[str, Tensor]) -> Tensor:
    """A step of dynamic hyper-connections for one position, H of [streams, features], as in the paper's equations."""
    mean, variance = h.mean(1, keepdim=True), h.var(1, unbiased=False, keepdim=True)
    normed = (h - mean) / (variance + 1e-5).sqrt()
    read = own["U"] + own["U_size"] * torch.tanh(normed @ own["U_weight"])  # A_m, of each stream
    keep = own["V"].T + own["V_size"] * torch.tanh(normed @ own["V_weight"])  # A_r: a row for each old stream
    write = own["B"] + own["B_size"] * torch.tanh(normed @ own["B_weight"])
    return keep.T @ h + torch.outer(write, f(read @ h))


@pytest.mark.parametrize("memory", ["stored", "recompute"])
@pytest.mark.parametrize(("scheme", "count"), [("dynamic_hyper", 2), ("dynamic_hyper3", 3)])
def test_dynamic_hyper_connections_position_by_position(scheme: str, count: int, memory: Any) -> None:
    torch.manual_seed(0)
    stage = moved(Stage(get_scheme(scheme), [Slope() for _ in range(DEPTH)], width=WIDTH, memory=memory)).train()
    x = torch.randn(2, 4, WIDTH, dtype=torch.float64, requires_grad=True)
    rows = []
    for row in x.flatten(0, 1):
        h = row.expand(count, -1)
        for n, block in enumerate(stage.blocks):
            h = dynamic(h, block, {name: p[n] for name, p in stage.mixing.named_parameters()})
        rows.append(h.mean(0))
    wanted, found = torch.stack(rows).view_as(x), stage(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    weights = [x, *stage.parameters()]
    ours, theirs = (torch.autograd.grad(total.sin().sum(), weights) for total in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert all(gradient.abs().max() > 0 for gradient in ours)


def test_dynamic_hyper_connections_take_channels_of_images_as_features() -> None:
    """The same streams with the channels last, as positions."""
    torch.manual_seed(0)
    static, y = torch.randn(2, 2), torch.randn(2, 3, 5, 4, 6)  # two streams of three images of five channels
    found = varied(static, weight := torch.randn(5, 2), size := torch.tensor(0.3), y)
    last = varied(static, weight, size, y.movedim(2, -1).flatten(2, 3))
    torch.testing.assert_close(found.squeeze(3).flatten(3), last.squeeze(-1))


@pytest.mark.parametrize("scheme", ["x0", "momentum", "hyper", "dense", "multistep"])
def test_a_transition_is_an_euler_step_of_every_stream(scheme: str) -> None:
    """`u_0 = P x` and `u_1 = P x + f(x)`: u_0 begins again there, a velocity is f(x), streams are equal."""
    torch.manual_seed(0)
    project, first = nn.Linear(2, WIDTH), nn.Linear(2, WIDTH)
    stage = moved(Stage(get_scheme(scheme), [Slope() for _ in range(DEPTH)], Transition(first, project)))
    x = torch.randn(4, 2, dtype=torch.float64)
    own = values(stage)
    if scheme == "x0":
        own["r"][0], own["x"][0] = torch.ones(()), torch.zeros(())
    if scheme == "hyper":
        own["U"][0], own["V"][0], own["B"][0] = torch.ones(2) / 2, torch.eye(2), torch.ones(2)
    wanted = REFERENCES[scheme](project(x), [lambda u: first(x), *stage.blocks], own)
    torch.testing.assert_close(stage(x), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", [*NAMES, "mhc3", "hyper3", "dynamic_hyper3"])
@pytest.mark.parametrize("name", ["gpt2x16", "preact_resnet20", "resnet20"])
def test_a_new_network_is_eulers_to_the_bit(name: str, scheme: str) -> None:
    options: dict[str, Any] = {"num_classes": 11, "context": 6} if name == "gpt2x16" else {}
    torch.manual_seed(0)
    plain = stepnet.create_model(name, scheme="euler", **options).eval()
    torch.manual_seed(0)
    network = stepnet.create_model(name, scheme=scheme, **options).eval()
    x = torch.randint(0, 11, (2, 6)) if name == "gpt2x16" else torch.randn(2, 3, 16, 16)
    assert torch.equal(network(x), plain(x))  # the coefficients take no random numbers from the weights
    moved(network).float()
    load_weights(network, plain.state_dict())  # coefficients that the weights lack are those of Euler's step
    assert torch.equal(network(x), plain(x))
    assert len(network.trajectory(x)[0]) == network.stages[0].depth + 1
    exempt = network.no_weight_decay()
    assert all(name in exempt for name, _ in network.named_parameters() if ".mixing." in name)


@pytest.mark.parametrize("scheme", [name for name in NAMES if name != "multistep"])  # it gates older f as well
def test_gates_multiply_increments(scheme: str) -> None:
    """A dropped step carries the streams over: with gate 0 its block is not called, and is 0 in the reference."""
    torch.manual_seed(0)
    stage = moved(Stage(get_scheme(scheme), [Slope() for _ in range(DEPTH)]))
    x, gates = torch.randn(4, WIDTH, dtype=torch.float64), [1.0, 0.0, 0.5, 1.0, 0.0]

    def gated(block: nn.Module, gate: float) -> Callable[[Tensor], Tensor]:
        return lambda u: gate * block(u)

    fs = [gated(block, gate) for block, gate in zip(stage.blocks, gates, strict=True)]
    torch.testing.assert_close(stage(x, gates=gates), REFERENCES[scheme](x, fs, values(stage)), rtol=0, atol=1e-12)


def test_mhc_is_doubly_stochastic_and_convex_whatever_is_learned() -> None:
    torch.manual_seed(0)
    stage = Stage(get_scheme("mhc", streams=4), [Slope() for _ in range(DEPTH)]).double()
    for parameter in stage.mixing.parameters():  # type: ignore[union-attr]
        nn.init.normal_(parameter, std=2)
    own = values(stage)
    for n in range(DEPTH):
        v, u, b = own["V"][n], own["U"][n], own["B"][n]
        torch.testing.assert_close(v.sum(1), torch.ones(4).double(), rtol=0, atol=1e-12)
        torch.testing.assert_close(v.sum(0), torch.ones(4).double(), rtol=0, atol=1e-2)  # as far as 20 iterations come
        assert v.min() >= 0 and u.min() >= 0 and abs(u.sum() - 1) < 1e-12 and b.min() > 0 and b.max() < 2
        assert torch.linalg.eigvals(v).abs().max() < 1 + 1e-9
    mild = DoublyStochastic().k(torch.randn(7, 4, 4, dtype=torch.float64))
    torch.testing.assert_close(mild.sum(-2), torch.ones(7, 4).double(), rtol=0, atol=1e-3)


@pytest.mark.parametrize("steps", [2, 3, 5])
def test_a_stable_multistep_has_its_roots_inside_the_circle(steps: int) -> None:
    torch.manual_seed(0)
    bound = ZeroStable(steps - 1)
    free = 3 * torch.randn(20, steps - 1, dtype=torch.float64)
    for row, a in zip(free, bound.k(free), strict=True):
        weights = a.tolist()
        roots = torch.linalg.eigvals(torch.diag(torch.ones(steps - 1), -1).double().index_copy(
            0, torch.tensor([0]), torch.tensor([[1 - sum(weights), *weights]], dtype=torch.float64)))  # fmt: skip
        others = sorted(abs(root - 1).item() for root in roots)
        assert others[0] < 1e-6 and all(abs(root) < 1 for root in roots if abs(root - 1) > 1e-6)
        if row.abs().max() < 3:
            torch.testing.assert_close(bound.free(a), row, rtol=0, atol=1e-5)
    assert torch.equal(bound.k(torch.zeros(steps - 1)), torch.zeros(steps - 1))
    stage = Stage(get_scheme("multistep", steps=steps, stable=True), [Slope() for _ in range(6)])
    assert stage.mixing.a_free.shape == (7 - steps, steps - 1)  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"not zero-stable; give others, or leave out stable=True"):
        Stage(get_scheme("multistep", steps=2, a=(1.5,), stable=True), [Slope() for _ in range(3)])


def test_coefficients_by_layer() -> None:
    network = stepnet.create_model("gpt2x16", scheme=get_scheme("x0", x=0.1), num_classes=11)
    found = stepnet.coefficients(network)
    assert list(found)[:3] == ["stages.0.blocks.0:r", "stages.0.blocks.0:x", "stages.0.blocks.1:r"]
    assert found["stages.0.blocks.0:r"] == 1 and found["stages.0.blocks.0:x"] == pytest.approx(0.1)
    streams = stepnet.coefficients(stepnet.create_model("gpt1x16", scheme="hyper", num_classes=11))
    assert streams["stages.0.blocks.0:V"] == [1, 0, 0, 1] and streams["stages.0.blocks.1:U"] == [0, 1]


@pytest.mark.parametrize("scheme", NAMES)
def test_a_copy_and_a_pickle_compute_the_same(scheme: str, tmp_path: Any) -> None:
    stage = moved(Stage(get_scheme(scheme), [Slope() for _ in range(DEPTH)]))
    x = torch.randn(2, WIDTH, dtype=torch.float64)
    torch.save(stage, tmp_path / "stage.pt")
    for other in (copy.deepcopy(stage), torch.load(tmp_path / "stage.pt", weights_only=False)):
        assert torch.equal(other(x), stage(x))


IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "scheme", ["mhc4", "dynamic_hyper", "stable_multistep3"]
)  # others: tests/test_residual_connections.py
def test_networks_are_saved_exported_traced_and_drawn(scheme: str, tmp_path: Any) -> None:
    torch.manual_seed(0)
    network = moved(stepnet.create_model("preact_resnet20", scheme=scheme)).float().eval()
    wanted = network(IMAGES)
    stepnet.save(network, tmp_path / "network.safetensors")
    again = stepnet.load(tmp_path / "network.safetensors").eval()
    assert torch.equal(again(IMAGES), wanted) and again.scheme.name == scheme
    torch.testing.assert_close(torch.export.export(network, (IMAGES,)).module()(IMAGES), wanted)
    torch.testing.assert_close(torch.fx.symbolic_trace(network)(IMAGES), wanted)
    assert stepnet.plot_network(network).axes and stepnet.plot_coefficients(network).axes
    assert f"scheme={scheme}" in repr(network)


@pytest.mark.parametrize("scheme", ["x0", "momentum", "hyper", "dynamic_hyper", "dense"])
def test_a_compiled_stage_computes_the_same(scheme: str) -> None:
    torch.manual_seed(0)
    stage = moved(Stage(get_scheme(scheme), [Slope() for _ in range(2)], width=WIDTH))
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    compiled = torch.compile(stage, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), stage(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", ["mhc", "dynamic_hyper"])
def test_streams_keep_their_precision_under_autocast(scheme: str) -> None:
    """Mixing streams is a sum of states, not a matrix product of the network."""
    stage = Stage(get_scheme(scheme), [Slope() for _ in range(2)], width=WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        assert stage(torch.randn(4, WIDTH)).dtype == torch.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "hyper", "k": 0.1}, r"k = 0.1: the coefficients of 'hyper' are U, V, B; give them to the scheme"),
        ({"scheme": "x0", "k_bound": "stable"}, r"k_bound = 'stable': the coefficients of 'x0' are r, x"),
        ({"scheme": "mhc1"}, r"streams = 1: expected 2 or more"),
        ({"scheme": "altup", "k": 0.1}, r"k = 0.1: the coefficients of 'altup' are V, B; give them to the scheme"),
    ],
)
def test_wrong_options_are_one_line(options: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        stepnet.create_model("preact_resnet20", **options)


def test_a_deep_stage_that_reads_all_its_past_is_told_before_it_is_made() -> None:
    blocks = [nn.Identity()] * 1202
    wanted = (
        r"dense on a stage of 1,202 steps keeps 1,203 states at once, in evaluation too, and learns 723,002 weights"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match=wanted):  # before the plan, which takes a while
            Stage(get_scheme("dense"), blocks)
        started = time.process_time()
        stage = Stage(get_scheme("dense"), blocks[:96])  # no warning, and no code as long as its past is
        assert time.process_time() - started < 1
    assert sum(a.numel() for _, a in stage.named_coefficients()) == 96 * 97 // 2 - 1


def test_streams_are_for_single_states() -> None:
    with pytest.raises(UserError, match=r"scheme 'mhc' .* a revnet takes 'coupled'|would make"):
        stepnet.create_model("revnet38", scheme="mhc")


@pytest.mark.parametrize("gates", [None, [1.0, 0.0, 0.5, 1.0] * 3])
@pytest.mark.parametrize("changes_shape", [False, True])
def test_steps_of_momentum_are_taken_back(changes_shape: bool, gates: list[float] | None) -> None:
    """`u_n = u_{n+1} - v_{n+1}` and `v_n = (v_{n+1} - f(u_n)) / b`; where b is 0, the state is kept."""
    torch.manual_seed(0)
    transition = Transition(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)) if changes_shape else None
    stage = Stage(get_scheme("momentum"), [Slope() for _ in range(12 - changes_shape)], transition).double().train()
    with torch.no_grad():
        stage.mixing.b.uniform_(0.5, 0.95)  # type: ignore[union-attr]
        stage.mixing.b[3:5] = torch.tensor([0.0, -0.7])  # type: ignore[union-attr]
    x = torch.randn(4, WIDTH, dtype=torch.float64)
    found = []
    for memory in ("stored", "reversible"):
        stage.set_memory(memory)
        stage.zero_grad()
        u = x.clone().requires_grad_()
        last = stage(u, gates=gates)
        last.sin().sum().backward()
        found.append([last.detach(), u.grad, *(p.grad for p in stage.parameters() if p.grad is not None)])
    assert len(found[0]) > 20
    for ours, stored in zip(*found, strict=True):
        torch.testing.assert_close(ours, stored, rtol=0, atol=1e-10)


def test_a_momentum_network_keeps_its_last_state() -> None:
    def kept(depth: int, memory: Any) -> int:
        stage = Stage(get_scheme("momentum", b=0.9), [Slope() for _ in range(depth)], memory=memory).train()
        return saved_bytes(stage, torch.randn(512, WIDTH))

    assert kept(40, "reversible") == kept(20, "reversible") < kept(20, "stored") / 4
    assert Stage(get_scheme("momentum", b=0.9), [Slope()] * 5, memory="auto").memory_in_use == "reversible"
    assert Stage(get_scheme("momentum", b=0.01), [Slope()] * 5, memory="auto").memory_in_use == "recompute"


def test_what_varies_with_the_state_is_told() -> None:
    """Without a width; on another grid; by `read`; by analysis."""
    with pytest.raises(UserError, match=r"^scheme 'dynamic_hyper' .* depend on the state: give the stage its width="):
        Stage(get_scheme("dynamic_hyper"), [Slope()])
    network = stepnet.create_model("gpt1x16", scheme="dynamic_hyper", num_classes=11)
    with pytest.raises(UserError, match=r"has coefficients that depend on the state: it cannot be refined"):
        stepnet.refine(network, 2)
    (stage,) = stepnet.read(network, torch.zeros(1, 3, dtype=torch.long)).stages
    assert stage.verdict == "dynamic_hyper, declared, not compared: its weights depend on the state"
    assert "of its static part" in str(stepnet.analyse("dynamic_hyper"))


@pytest.mark.parametrize("scheme", ["x0", "nesterov", "hyper", "mhc", "altup", "dynamic_hyper"])
def test_why_a_step_cannot_be_taken_back(scheme: str) -> None:
    with pytest.raises(
        UserError, match=rf"memory='reversible': scheme '{scheme}' has no inverse: U V\^-1 B is not 0, so"
    ):
        stepnet.create_model("preact_resnet20", scheme=scheme).set_memory("reversible")
