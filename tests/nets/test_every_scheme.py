"""Every family with every scheme marches as its plan says, trains all it has, compiles and resumes, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepnet.analysis.symbols import dt, k
from stepnet.errors import UserError
from stepnet.exchange.model_description import describe_network
from stepnet.nets import Network, Stage, create_model
from stepnet.nets.draws import drawn_options
from stepnet.nets.fractalnet import cifar_fractalnet
from stepnet.nets.polynet import cifar_polynet
from stepnet.nets.resnet import cifar_bottleneck_resnet, cifar_resnet
from stepnet.nets.resnext import resnext
from stepnet.nets.revnet import revnet
from stepnet.nets.shakeshake import ShakeShake, cifar_shakeshake
from stepnet.nets.transitions import Coupling
from stepnet.schemes import Difference, get_scheme, list_schemes
from stepnet.schemes.march_plan import BEFORE_INPUT, INPUT, Quantity, Terms
from stepnet.training import Recipe, checkpoint
from stepnet.training.build import build_optimizer
from stepnet.training.checkpoint import Progress

FAMILIES: dict[str, Callable[..., Network]] = {
    "resnet": partial(cifar_resnet, 20),
    "preact": partial(cifar_resnet, 20, True),
    "bottleneck": partial(cifar_bottleneck_resnet, 20),
    "resnext": partial(resnext, (2, 2, 2), 2, 4, True),
    "poly2": partial(cifar_polynet, 20, "poly2"),
    "poly3": partial(cifar_polynet, 20, "poly3"),
    "mpoly2": partial(cifar_polynet, 20, "mpoly2"),
    "two_way": partial(cifar_polynet, 20, "two_way"),
    "shakeshake": partial(cifar_shakeshake, 20, 4),
    "fractalnet": partial(cifar_fractalnet, 10, (4, 8)),
    "revnet": partial(revnet, 38),
}
SCHEMES = [
    "euler", "heun", "rk4", "neumann2", "picard2", "fractal2", "full_fractal2", "ab2", "ab3", "leapfrog", "midpoint2",
    "lm", "lm+heun", "lm+neumann2", "lm+fractal3", "coupled", "lm+coupled", "backward_euler",
    "parallel", "lie_trotter", "strang",
]  # fmt: skip
PAIRS = {"coupled", "lm+coupled"}
TAKES = {  # the families that take some schemes only; all others take what makes a network of single states
    "poly2": {"neumann2", "lm", "lm+neumann2"},
    "poly3": {"lm"},  # and its own, which is none of these
    "mpoly2": {"neumann2", "lm", "lm+neumann2"},
    "fractalnet": {"fractal2", "full_fractal2"},
    "revnet": {*PAIRS, "lm"},
}
# Compiling takes seconds: all schemes on the blocks of resnet, a past and two evaluations on the blocks of these.
FEW = {family: {"lm", "heun"} for family in ("preact", "bottleneck", "resnext", "two_way", "shakeshake")}

OWN = {"poly2": "neumann2", "poly3": "neumann3", "mpoly2": "neumann2", "revnet": "coupled"}  # increments; Euler's else


def cases(taken: bool, takes: dict[str, set[str]] = TAKES) -> pytest.MarkDecorator:
    """The pairs that make a network, or those that are refused."""
    usual = {*SCHEMES} - PAIRS - {"backward_euler", "parallel", "lie_trotter", "strang"}
    chosen = [(f, s) for f in FAMILIES for s in SCHEMES if (s in takes.get(f, usual)) is taken]
    return pytest.mark.parametrize(("family", "scheme"), chosen, ids=[f"{f}-{s}" for f, s in chosen])


def by_plan(stage: Stage, x: Any, past: Any = None) -> Any:
    """The last state of a stage: its plan's sums and evaluations, one after another."""
    pair = stage.scheme.equation.partitioned
    parts = "XY" if pair else "u"
    known: dict[Quantity, Tensor] = {}

    def put(n: int, state: Any) -> None:
        known.update(zip((Quantity(part, n) for part in parts), state if pair else (state,), strict=True))

    def total(terms: Terms, own: Tensor | None) -> Tensor:
        result: Any = 0
        for quantity, weight in terms:
            number = weight.subs(dt, stage.dts[0])
            if number.has(k):
                slope, rest = number.diff(k), number.subs(k, 0)
                factor = float(rest) + float(slope) * own
            else:
                factor = float(number)
            result = result + factor * known[quantity]
        return result

    put(INPUT, x)
    put(0, x if stage.transition is None else stage.transition.enter(x)[0])
    if stage.plan.entry == "with past":
        put(BEFORE_INPUT, stage.transition.project_past(past))
    ks = iter(() if stage.coefficients is None else stage.coefficients)
    for n, (step, block) in enumerate(zip(stage.plan.steps, stage.steps, strict=True)):
        own = next(ks) if step.owns_k else None
        for evaluation in step.evaluations:
            f: nn.Module = getattr(block, evaluation.result.name) if isinstance(block, Coupling) else block
            value = f(total(evaluation.argument, own), evaluation.result.i)
            known[evaluation.result] = value.value if isinstance(value, Difference) else value
        new = tuple(total(terms, own) for terms in step.new)
        new = new if stage.after is None else tuple(map(stage.after, new))
        put(n + 1, new if pair else new[0])
    assert list(ks) == []
    return new if pair else new[0]


@cases(taken=True)
def test_marches_as_planned_and_trains_all_it_has(family: str, scheme: str) -> None:
    torch.manual_seed(0)
    whole_maps = family == "fractalnet" and scheme.startswith("full")  # whose last ones pool: see test_fractalnet
    model = FAMILIES[family](scheme=scheme, dt=1 if whole_maps else 0.5).double()
    calls: list[tuple[Stage, tuple[Any, ...], Any]] = []
    for stage in model.stages:
        stage.register_forward_hook(lambda stage, args, output: calls.append((stage, args, output)))
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    model(x).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    calls.clear()
    with torch.no_grad():
        states = model.eval().trajectory(x)
        assert len(calls) == len(model.stages)
        for n, (stage, args, output) in enumerate(calls):
            assert stage.scheme is model.scheme
            assert stage.plan.entry != "with past" or args[1] is states[n - 1][-2]  # u_{N-1} of the stage before
            if not whole_maps:
                torch.testing.assert_close(by_plan(stage, *args[:2]), output, rtol=1e-11, atol=1e-11)


@cases(taken=True, takes=TAKES | FEW)
def test_compiles(family: str, scheme: str) -> None:
    """As few steps as show the scheme, across a shape change where it reads a past: one graph, same gradients."""
    torch.manual_seed(0)
    model = FAMILIES[family](scheme=scheme).double()
    whole, states = model.stages[1], []
    whole.register_forward_hook(lambda stage, args, output: states.append((args[:2], output)))
    with torch.no_grad():
        model(torch.randn(2, 3, 8, 8, dtype=torch.float64))
    if isinstance(model, ShakeShake):
        for block, drawn in zip(model.shaken, model.draw(0, 0, range(2)).coefficients, strict=True):
            block.drawn_noise = drawn
    ((before, state),) = states
    if (steps := model.scheme.steps) > 1:
        stage, given = Stage(model.scheme, whole.blocks[: steps - 1], whole.transition, after=whole.after), before
    else:
        stage, given = Stage(model.scheme, whole.blocks[:1], after=whole.after), (state,)
    torch._dynamo.reset()
    # Families and schemes are Python, and end in the graph; making a backward graph of it takes as long again.
    backward = scheme == "lm" or (family, scheme) in {("resnet", "heun"), ("fractalnet", "full_fractal2")}
    backend = "aot_eager" if backward else "eager"
    compiled = torch.compile(stage, backend=backend, fullgraph=True)
    found, expected = (value_and_gradients(stage, f(*given)) for f in (compiled, stage))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def value_and_gradients(stage: Stage, state: Any) -> tuple[Tensor, ...]:
    value = torch.cat(state) if isinstance(state, tuple) else state
    return value, *torch.autograd.grad(value.square().sum(), list(stage.parameters()))


@cases(taken=True)
def test_resumes(family: str, scheme: str, tmp_path: Path) -> None:
    """A step from a checkpoint, in a network that began otherwise: every bit of weights, statistics, momentum."""
    torch.manual_seed(0)
    images, labels = torch.randn(2, 4, 3, 8, 8), torch.randint(10, (2, 4))
    recipe = Recipe(lr=0.01)

    def train(run: Run, step: int) -> None:
        logits = run.model(images[step], **drawn_options(run.model, 0, step, range(4)))
        F.cross_entropy(logits, labels[step]).backward()
        run.optimizer.step()
        run.optimizer.zero_grad()

    def begin(seed: int) -> Run:
        torch.manual_seed(seed)
        model = FAMILIES[family](scheme=scheme)
        return Run(model, build_optimizer(recipe, model))

    whole, resumed = begin(0), begin(1)
    train(whole, 0)
    checkpoint.save(tmp_path / "last", checkpoint.collect(*whole), Progress(step=1), describe_network(whole.model))
    assert checkpoint.load(tmp_path / "last", *resumed) == (Progress(step=1), {})
    for run in (whole, resumed):
        train(run, 1)
    assert all(torch.equal(*pair) for pair in zip(*(run.tensors() for run in (whole, resumed)), strict=True))


class Run(NamedTuple):
    """A network in training."""

    model: Network
    optimizer: torch.optim.SGD

    def tensors(self) -> list[Tensor]:
        """All that a step reads and changes."""
        return [
            *self.model.state_dict().values(),
            *(state["momentum_buffer"] for state in self.optimizer.state.values()),
        ]


@cases(taken=False)
def test_or_is_refused(family: str, scheme: str) -> None:
    with pytest.raises(UserError) as refused:
        FAMILIES[family](scheme=scheme)
    assert "\n" not in str(refused.value) and scheme.removeprefix("lm+") in str(refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("densenet100_k24", "model 'densenet100_k24' takes no option 'scheme': it takes "),
        ("very_deep_polynet", "scheme 'lm' on Very Deep PolyNet: every unit has its method and step size, "),
        ("fractalnet20", "scheme 'lm' on FractalNet: each stage is one fractal step, so that lm has no earlier state "),
    ],
)
def test_a_family_without_a_scheme_takes_none(name: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}.*$"):
        create_model(name, scheme="lm")


def test_every_formula_of_the_registry_is_among_them() -> None:
    found, wanted = ({type(get_scheme(name)).increment for name in names} for names in (SCHEMES, untrained()))
    assert wanted <= found


def untrained() -> list[str]:
    return [name for name in list_schemes() if not get_scheme(name).learned]


@pytest.mark.parametrize("scheme", [name for name in list_schemes() if get_scheme(name).learned])
@pytest.mark.parametrize("family", FAMILIES)
def test_named_coefficients_start_at_eulers_step_or_are_refused(family: str, scheme: str) -> None:
    """Where LM-ResNeXt projects its past, other schemes begin again: `multistep` would need an older f as well."""
    if family in TAKES:
        with pytest.raises(UserError, match=r"^scheme '.*$"):
            FAMILIES[family](scheme=scheme)
        return
    torch.manual_seed(0)
    euler = FAMILIES[family](scheme="euler").eval()
    torch.manual_seed(0)
    model = FAMILIES[family](scheme=scheme).eval()
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(model(x), euler(x))
    model(x).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert all(stage.plan.entry != "with past" for stage in model.stages)


@cache
def usual(family: str) -> Network:
    """The network that the family is without a scheme of one's own."""
    return FAMILIES[family]()


@cases(taken=True)
def test_stays_in_its_family(family: str, scheme: str) -> None:
    """Neither its class nor what it computes beside the scheme: under LM it has its own increment, and coefficients."""
    own, model = usual(family), FAMILIES[family](scheme=scheme)
    assert type(model) is type(own)
    increment = OWN.get(family, "euler")
    expected = f"lm+{increment}" if scheme == "lm" and increment != "euler" else scheme
    assert model.scheme.name == expected and f"scheme={expected}" in repr(model)
    blocks = [{type(block) for block in net.stages[-1].blocks} for net in (own, model)]
    assert blocks[0] == blocks[1]
    assert any(name.endswith(".k") for name, _ in model.named_parameters()) == expected.startswith("lm")
