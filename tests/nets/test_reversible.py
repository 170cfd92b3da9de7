"""The stage that recomputes: its gradients, its memory, and everything that a repeated evaluation could spoil."""

import copy
import gc
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from stepnet.errors import UserError
from stepnet.nets import reversible
from stepnet.nets.blocks import PreActivation, Subsample, basic
from stepnet.nets.cost import saved_bytes
from stepnet.nets.stage import Stage
from stepnet.nets.transitions import Coupling, Transition
from stepnet.schemes import get_scheme
from stepnet.timing.steps import peak_bytes

WIDTH = 4


def conv_block() -> nn.Module:
    return PreActivation(basic(WIDTH, WIDTH))


class Dropped(nn.Module):
    """A block whose value depends on the random generator."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((1, WIDTH, 1, 1), 0.5))

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        return nn.functional.dropout(torch.tanh(u * self.scale), 0.5, self.training)


class Casting(nn.Module):
    """A block that is another function where autocast is on (real ones round, which no tolerance tells apart)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((1, WIDTH, 1, 1), 0.3))

    def forward(self, u: Tensor, i: int = 0) -> Tensor:
        low = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.float16
        return torch.sin(u * self.scale) if low else torch.cos(u * self.scale)


def make_stage(depth: int = 3, block=conv_block, dt: float = 1) -> Stage:
    torch.manual_seed(0)
    pairs = [Coupling(block(), block()) for _ in range(depth)]
    return Stage(get_scheme("coupled"), pairs, dt=dt, memory="reversible")


def make_state(dtype: torch.dtype = torch.float64, size: int = 5) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    x, y = (torch.randn(3, WIDTH, size, size, dtype=dtype, requires_grad=True) for _ in range(2))
    return x, y


def stored(stage: Stage) -> Stage:
    """The same stage, differentiated by autograd through all its stored activations."""
    twin = copy.deepcopy(stage)
    twin.set_memory("stored")
    return twin


def gradients(stage: nn.Module, state: tuple[Tensor, Tensor]) -> list[Tensor | None]:
    torch.manual_seed(2)
    x, y = stage(state)
    wanted = [p for p in (*state, *stage.parameters()) if p.requires_grad]
    return list(torch.autograd.grad((x * x).sum() + (x * y).sum(), wanted))


def assert_same_gradients(stage: Stage, state: tuple[Tensor, Tensor], tolerance: float = 1e-10) -> None:
    for ours, autograd in zip(gradients(stage, state), gradients(stored(stage), state), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dt", [1, 0.25])
@pytest.mark.parametrize("depth", [1, 6])
def test_gradients_are_those_of_stored_activations(depth: int, dt: float) -> None:
    assert_same_gradients(make_stage(depth, dt=dt).double(), make_state())


def test_running_statistics_move_once_in_a_step() -> None:
    stage = make_stage().double()
    twin = stored(stage)
    for net in (stage, twin):
        x, y = net(make_state())
        (x.sum() + y.square().sum()).backward()
    ours, theirs = dict(stage.named_buffers()), dict(twin.named_buffers())
    assert ours["blocks.0.f.norms.0.num_batches_tracked"] == 1
    for name, buffer in ours.items():
        assert torch.equal(buffer, theirs[name]), name


def test_statistics_frozen_in_training_are_replayed_frozen() -> None:
    stage = make_stage().double()
    frozen = stage.blocks[1].f.norms[0].eval()
    frozen.running_mean.fill_(0.3)
    assert_same_gradients(stage, make_state())
    assert torch.equal(frozen.running_mean, torch.full((WIDTH,), 0.3, dtype=torch.float64))


def test_dropout_is_replayed_and_the_generator_goes_on_as_if_nothing_had_been() -> None:
    stage = make_stage(block=Dropped).double()
    assert_same_gradients(stage, make_state())
    after = []
    for net in (stage, stored(stage)):
        gradients(net, make_state())
        after.append(torch.rand(3))
    assert torch.equal(*after)


def test_dropout_is_replayed_when_a_graph_is_used_twice() -> None:
    stage = make_stage(block=Dropped).double()
    x, y = state = make_state()
    loss = sum(part.square().sum() for part in stage(state))
    first = torch.autograd.grad(loss, [x, y], retain_graph=True)
    torch.rand(7)
    second = torch.autograd.grad(loss, [x, y])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_autocast_is_replayed_outside_of_it() -> None:
    stage, state = make_stage(block=Casting).double(), make_state()
    found = []
    for net in (stage, stored(stage)):
        with torch.autocast("cpu", dtype=torch.float16):
            x, y = net(state)
        found.append(torch.autograd.grad((x * y).sum(), [*state, *net.parameters()]))
    for ours, autograd in zip(*found, strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-10, atol=1e-10)


def test_a_state_in_half_precision_is_summed_in_single_and_given_to_blocks_as_it_is() -> None:
    """Sums rounded to bfloat16 would be undone to 8 bits only, and the first state lost after a few steps."""
    stage, state = make_stage(12, Casting).to(torch.bfloat16), make_state(torch.bfloat16)
    seen = []
    stage.blocks[0].f.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    x, y = stage(state)
    assert x.dtype == y.dtype == torch.bfloat16
    assert all(g.dtype == torch.bfloat16 for g in torch.autograd.grad((x * y).sum(), [*state, *stage.parameters()]))
    first, again = seen  # of the forward pass, and as the backward pass found it
    torch.testing.assert_close(again, first, rtol=0, atol=0.01)


def test_saved_bytes_do_not_grow_with_depth() -> None:
    shallow, deep = (saved_bytes(make_stage(depth).double(), make_state()) for depth in (4, 32))
    assert shallow == deep == 2 * make_state()[0].nbytes
    assert saved_bytes(stored(make_stage(32).double()), make_state()) > 32 * shallow


def test_used_twice_in_one_graph() -> None:
    class Twice(nn.Module):
        def __init__(self, stage: Stage) -> None:
            super().__init__()
            self.stage = stage

        def forward(self, state):
            return self.stage(self.stage(state))

    stage = make_stage().double()
    for ours, autograd in zip(
        gradients(Twice(stage), make_state()), gradients(Twice(stored(stage)), make_state()), strict=True
    ):
        torch.testing.assert_close(ours, autograd, rtol=1e-10, atol=1e-10)


def test_parameters_shared_between_blocks_get_the_sum() -> None:
    f = conv_block()
    f.convs[1].weight = f.convs[0].weight
    stage = Stage(get_scheme("coupled"), [Coupling(f, f), Coupling(conv_block(), f)], memory="reversible").double()
    assert_same_gradients(stage, make_state())


def test_parameters_that_are_not_trained_get_no_gradient() -> None:
    stage = make_stage().double()
    stage.blocks[1].requires_grad_(False)
    stage.blocks[0].g.convs[0].weight.requires_grad_(False)
    assert_same_gradients(stage, make_state())
    x, _ = stage(make_state())
    x.sum().backward()
    assert stage.blocks[1].f.convs[0].weight.grad is None
    assert stage.blocks[0].f.convs[0].weight.grad is not None


def test_an_input_without_gradient_trains_the_parameters_all_the_same() -> None:
    x, y = (part.detach() for part in make_state())
    assert_same_gradients(make_stage().double(), (x, y))


def test_a_hook_on_a_parameter_runs_once() -> None:
    stage, calls = make_stage().double(), []
    stage.blocks[0].f.convs[0].weight.register_hook(calls.append)
    x, _ = stage(make_state())
    x.sum().backward()
    assert len(calls) == 1


def test_a_parameter_changed_before_the_backward_pass_is_noticed() -> None:
    stage = make_stage().double()
    x, _ = stage(make_state())
    with torch.no_grad():
        stage.blocks[0].f.convs[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x.sum().backward()


def test_no_grad_and_evaluation_are_the_plain_march() -> None:
    stage = make_stage().double()
    with torch.no_grad():
        x, _ = stage(make_state())
    assert x.grad_fn is None
    x, y = stage.eval()(make_state())
    assert type(x.grad_fn).__name__ == "AddBackward0"
    assert all(torch.equal(a, b) for a, b in zip((x, y), list(stage.states(make_state()))[-1], strict=True))


def test_copies_and_pickles_compute_the_same() -> None:
    stage = make_stage().double()
    expected = stage(make_state())[0]
    pickled = io.BytesIO(pickle.dumps(stage))
    for twin in (copy.deepcopy(stage), pickle.load(pickled)):
        assert torch.equal(twin(make_state())[0], expected)


def test_training_under_compile_falls_back_to_eager_and_stores_nothing() -> None:
    stage = make_stage().double()
    compiled = torch.compile(stage, backend="eager")
    for ours, autograd in zip(gradients(compiled, make_state()), gradients(stored(stage), make_state()), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-10, atol=1e-10)
    assert saved_bytes(compiled, make_state()) == 2 * make_state()[0].nbytes


def test_a_scheme_without_inverse_is_refused() -> None:
    with pytest.raises(UserError, match="'euler' has no inverse"):
        Stage(get_scheme("euler"), [], memory="reversible")
    with pytest.raises(UserError, match="dt = 0"):
        make_stage(dt=0)


def test_data_parallel_training_gets_every_gradient(tmp_path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        stage = make_stage().double()
        expected = gradients(stored(stage), make_state())[2:]
        parallel = nn.parallel.DistributedDataParallel(stage)
        x, y = parallel(make_state())
        ((x * x).sum() + (x * y).sum()).backward()
        for p, gradient in zip(stage.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, gradient, rtol=1e-10, atol=1e-10)
    finally:
        parallel = None
        gc.collect()  # a DistributedDataParallel that outlives its process group may wait for its threads for ever
        torch.distributed.destroy_process_group()


def lm_stage(k: float, depth: int = 12, scheme: str = "lm", dt: float = 1, block=conv_block) -> Stage:
    torch.manual_seed(0)
    options = {"initial_k": k} if scheme.startswith("lm") else {}
    return Stage(get_scheme(scheme), [block() for _ in range(depth)], dt=dt, memory="reversible", **options)


def lm_gradients(stage: Stage, u: Tensor, **options: object) -> list[Tensor]:
    torch.manual_seed(2)
    return list(torch.autograd.grad(stage(u, **options).square().sum(), [u, *stage.parameters()], allow_unused=True))


@pytest.mark.parametrize("k", [-0.9, -0.5, 0.3, -0.05, 0.0])
def test_lm_is_taken_back_whatever_its_k(k: float) -> None:
    stage, (u, _) = lm_stage(k).double(), make_state()
    for ours, autograd in zip(lm_gradients(stage, u), lm_gradients(stored(stage), u), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("scheme", ["leapfrog", "midpoint2"])
def test_other_two_step_schemes_are_taken_back(scheme: str) -> None:
    stage, (u, _) = lm_stage(0, 5, scheme, dt=0.3).double(), make_state()
    for ours, autograd in zip(lm_gradients(stage, u), lm_gradients(stored(stage), u), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("base", ["heun", "neumann2", "fractal3"])
def test_lm_over_any_one_step_method_is_taken_back(base: str) -> None:
    """Its increment depends on `u_n` alone, wherever between the states it evaluates `f`."""
    evaluations = get_scheme(base).stages
    stage = lm_stage(-0.9, 5, f"lm+{base}", 0.3, lambda: PreActivation(basic(WIDTH, WIDTH), evaluations)).double()
    (u, _), twin = make_state(), stored(stage)
    for ours, autograd in zip(lm_gradients(stage, u), lm_gradients(twin, u), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(stage.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def lm_pairs(k: float, depth: int = 6, block=conv_block, memory: str = "reversible") -> Stage:
    torch.manual_seed(0)
    pairs = [Coupling(block(), block()) for _ in range(depth)]
    return Stage(get_scheme("lm+coupled"), pairs, initial_k=k, memory=memory)  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [-0.9, -0.05])
def test_lm_over_pairs_is_taken_back(k: float) -> None:
    assert_same_gradients(lm_pairs(k).double(), make_state())
    assert_same_gradients(lm_pairs(k, block=Dropped).double(), make_state())
    x, y = torch.cat(make_state(), 1).chunk(2, 1)  # as a network splits its channels: two parts of one storage
    assert_same_gradients(lm_pairs(k).double(), (x, y))


def test_statistics_of_lm_over_pairs_move_once() -> None:
    stage, twin = lm_pairs(-0.9), lm_pairs(-0.9, memory="stored")
    for net in (stage, twin):
        gradients(net, make_state(torch.float32))
    for (name, ours), theirs in zip(stage.named_buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)


def test_memory_of_lm_over_pairs_is_flat_where_k_is_away_from_zero() -> None:
    shallow, deep = (saved_bytes(lm_pairs(-0.9, depth).double(), make_state()) for depth in (6, 24))
    state = 2 * make_state()[0].nbytes
    assert deep - shallow < state / 10  # the coefficients
    assert saved_bytes(lm_pairs(-0.9, 24, memory="stored").double(), make_state()) > 24 * state


def test_dropout_of_lm_over_pairs_is_replayed_when_a_graph_is_used_twice() -> None:
    stage, state = lm_pairs(-0.7, 3, Dropped).double(), make_state()
    loss = sum(part.square().sum() for part in stage(state))
    first = torch.autograd.grad(loss, state, retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(loss, state), strict=True))


def test_gates_and_dropout_of_lm_are_replayed() -> None:
    stage, (u, _) = lm_stage(-0.7, 4, block=Dropped).double(), make_state()
    image = torch.rand(3, 1, 1, 1, dtype=torch.float64)
    for gates in ([1, 0, 1, 0.5], [1, image, 1, image]):
        ours = lm_gradients(stage, u, gates=gates)
        for a, b in zip(ours, lm_gradients(stored(stage), u, gates=gates), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_in_single_precision_what_is_found_again_is_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same march with every state kept: the inverse adds nothing to rounding."""
    state = make_state(torch.float32)
    march, pairs = lm_stage(-0.9, 18, dt=0.1), lm_pairs(-0.9, 18)
    found = [*lm_gradients(march, state[0]), *gradients(pairs, state)]
    monkeypatch.setattr(reversible, "SPARE_BITS", -1.0)
    for ours, kept in zip(found, [*lm_gradients(march, state[0]), *gradients(pairs, state)], strict=True):
        torch.testing.assert_close(ours, kept, rtol=0, atol=1e-6 * float(kept.abs().max()))


class ReusedAtOnce:
    """The address of a tensor's storage from an allocator that gives a freed one to the next storage that asks."""

    def __init__(self) -> None:
        self.given: list[StorageWeakRef] = []

    def __call__(self, tensor: Tensor) -> int:
        own = StorageWeakRef(tensor.untyped_storage())
        for address, other in enumerate(self.given):
            if not other.expired() and other.cdata == own.cdata:
                return address
        freed = [address for address, other in enumerate(self.given) if other.expired()]
        address = freed[0] if freed else len(self.given)
        self.given[address : address + 1] = [own]
        return address


def test_what_lies_where_a_state_lay_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's k in double precision is a new tensor, and may lie where an older state was freed."""
    monkeypatch.setattr(reversible, "storage", ReusedAtOnce())
    stage, state = lm_pairs(-0.9), make_state(torch.float32)
    for ours, autograd in zip(gradients(stage, state), gradients(stored(stage), state), strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-3, atol=1e-5 * float(autograd.abs().max()))


def test_memory_of_lm_is_flat_where_k_is_away_from_zero() -> None:
    def peak(k: float, depth: int, memory: str) -> int:
        stage, (u, _) = lm_stage(k, depth), make_state(torch.float32, 32)
        stage.set_memory(memory)
        stage(u).sum().backward()  # gradients are allocated
        return peak_bytes(lambda: stage(u).sum().backward())

    state = make_state(torch.float32, 32)[0].nbytes
    assert peak(-0.9, 24, "reversible") < peak(-0.9, 8, "reversible") + state
    assert peak(-0.9, 8, "reversible") < 24 * state  # twelve of double precision, while one step is taken back
    assert peak(-0.9, 24, "recompute") - peak(-0.9, 8, "recompute") < 17 * state
    assert peak(-0.9, 24, "stored") - peak(-0.9, 8, "stored") > 4 * 16 * state


def test_the_gradient_of_an_inner_state_needs_the_last() -> None:
    stage, (u, _), visited = lm_stage(-0.9, 5).double(), make_state(), []
    stage(u, visit=visited.append)
    with pytest.raises(RuntimeError, match="depends on an inner state only"):
        visited[3].sum().backward()
    found = []
    for net in (stage, stored(stage)):
        net(u, visit=(visited := []).append)
        found.append(torch.autograd.grad(visited[3].square().sum() + visited[-1].sum(), u, retain_graph=True)[0])
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
    stage(u, visit=(visited := []).append)
    torch.autograd.grad(visited[-1].sum(), u, retain_graph=True)
    with pytest.raises(RuntimeError, match="depends on an inner state only"):  # the states found first are gone
        visited[3].sum().backward()


@pytest.mark.parametrize("make", [lambda: make_stage(6), lambda: lm_stage(-0.9, 6), lambda: lm_stage(-0.05, 6)])
def test_second_derivatives(make: Callable[[], Stage]) -> None:
    """Of a sum, whose first derivative does not read the last state: the second pass begins inside the march."""
    stage = make().double()
    pair, found = isinstance(stage.blocks[0], Coupling), []
    for net in (stage, stored(stage)):
        x, y = make_state()
        out = net((x, y))[0] if pair else net(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), [x, *net.parameters()], materialize_grads=True))
    for ours, autograd in zip(*found, strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dropped", [[0], [0, 1], [2]])
def test_a_channel_that_is_exactly_zero_stays_so(dropped: list[int]) -> None:
    """A dropped transition leaves its new channels at 0, where batch norm and ReLU have a kink at initialisation."""
    torch.manual_seed(0)
    transition = Transition(PreActivation(basic(2, WIDTH, 2)), Subsample(2, WIDTH, 2))
    blocks = [PreActivation(basic(WIDTH, WIDTH)) for _ in range(5)]
    stage = Stage(get_scheme("lm"), blocks, transition, initial_k=-0.3, memory="reversible").double()
    gates, x = [0 if n in dropped else 1 for n in range(6)], torch.randn(3, 2, 8, 8, dtype=torch.float64)
    found = []
    for net in (stage, stored(stage)):
        weights = [p for p in net.blocks.parameters() if p.requires_grad]
        found.append(torch.autograd.grad(net(x, gates=gates).square().sum(), weights, materialize_grads=True))
    for ours, autograd in zip(*found, strict=True):
        torch.testing.assert_close(ours, autograd, rtol=1e-9, atol=1e-9)
