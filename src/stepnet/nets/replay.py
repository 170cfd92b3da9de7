"""Evaluations of `f` that keep nothing: what their backward pass needs is made again by evaluating once more.

Autograd saves tensors while `f` is evaluated. Here it is given numbered slots instead, and the first slot that the
backward pass asks for lets the evaluation run again, from the same argument under the same conditions: autocast, random
generators, running statistics (which are not moved a second time). The graph itself is autograd's own, so hooks,
DistributedDataParallel and tied parameters meet nothing unusual. The mechanism is that of `torch.utils.checkpoint`;
what is ours is that batch norm moves once, that noise which a network drew for its blocks is theirs again, and that the
argument may come from elsewhere: see `stepnet.nets.reversible`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_map

from stepnet.schemes import parts_of

Result = TypeVar("Result")
OwnedTensors = tuple[nn.Module, dict[str, nn.Parameter | None], dict[str, Tensor | None]]  # parameters and buffers
RandomState = tuple[Tensor, ...]  # of the CPU's generator, and of the device's where that is another


def only_reverse_mode() -> bool:
    """Whether neither a `torch.func` transform nor a level of forward-mode differentiation is active.

    These differentiate the evaluation itself, tangents included. A repetition in the backward pass would be outside of
    them, so a network stores whatever autograd saves while one is active.
    """
    return not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0


@_disable_dynamo  # torch.compiler.disable, which imports the compiler when first called, not with this file
def recomputed(f: Callable[..., Result], module: nn.Module, *args: Any) -> Result:
    """`f(*args)`, a function of the module's parameters, of which only the arguments are kept."""
    if not (torch.is_grad_enabled() and only_reverse_mode()):
        return f(*args)
    kept = tree_map(_leaf, args)
    return RepeatedEvaluation(f, module, lambda: kept)(*args)  # type: ignore[no-any-return]


class RepeatedEvaluation:
    """`f(*args)` whose saved tensors are slots; `argument` gives the arguments again when one is asked for.

    They are leaves that want a gradient where the first ones did: then autograd saves the same tensors.
    """

    def __init__(
        self, f: Callable[..., Any], module: nn.Module, argument: Callable[[], tuple[Any, ...]], whole: bool = False
    ) -> None:
        self.f, self.module, self.argument = f, module, argument
        self.whole = whole  # the value is wanted too; otherwise the repetition ends when the last slot is filled
        self.count = 0
        self.slots: dict[int, Tensor] = {}
        self.value: Any = None
        self.versions: list[tuple[Tensor, int]] = []
        self.parameter_storages: set[int] = set()  # the storages of the parameters, which are kept as they are

    def __call__(self, *args: Any) -> Any:
        parts = list(self.module.modules())
        self.tensors = [(part, dict(part._parameters), dict(part._buffers)) for part in parts]
        parameters = [p for part in parts for p in part._parameters.values() if p is not None]
        self.versions = [(p, p._version) for p in parameters]
        self.parameter_storages = {storage(p) for p in parameters}
        self.noise = [(part, part.drawn_noise) for part in parts if "drawn_noise" in vars(part)]
        tensors = (part for value in args for part in parts_of(value) if isinstance(part, Tensor))
        self.conditions = Conditions(next((part.device for part in tensors), torch.device("cpu")))
        with self.conditions.recorded(), saved_tensors_hooks(self._number, self._fetch):
            return self.f(*args)

    def again(self, *args: Any) -> Any:
        """Fill the slots by an evaluation at these arguments; its value, if the whole of it is wanted."""
        if any(p._version != version for p, version in self.versions):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                "a parameter was changed between the forward pass and the backward pass that evaluates its block again"
            )
        self.slots, filled = {}, 0

        def fill(tensor: Tensor) -> None:
            nonlocal filled
            if storage(tensor) not in self.parameter_storages:
                self.slots[filled] = tensor.detach()
                filled += 1
                if filled == self.count and not self.whole:
                    raise _AllFilled

        with torch.enable_grad(), self.conditions.replayed(), tensors_again(self.tensors), _given(self.noise):
            try:
                with saved_tensors_hooks(fill, lambda _: None):  # type: ignore[arg-type, return-value]
                    value = self.f(*args)
            except _AllFilled:
                return None
        if filled != self.count:
            raise RuntimeError(f"a block kept {self.count} tensors and then {filled}: it cannot be evaluated again")
        self.value = tree_map(_detached, value)
        return self.value

    def _number(self, tensor: Tensor) -> Tensor | int:
        if storage(tensor) in self.parameter_storages:
            return tensor
        self.count += 1
        return self.count - 1

    def _fetch(self, slot: Tensor | int) -> Tensor:
        if isinstance(slot, Tensor):
            return slot
        if slot not in self.slots:
            args = self.argument()
            if slot not in self.slots:  # finding the argument may have taken this evaluation
                self.again(*args)
        return self.slots.pop(slot)


class _AllFilled(Exception):
    """Nothing more is wanted of this repetition."""


class Conditions:
    """What a call depends on besides its arguments: the autocast mode, and the random generators if it draws."""

    def __init__(self, device: torch.device) -> None:
        kind = device.type if torch.amp.is_autocast_available(device.type) else "cpu"
        self.mode = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        self.device = None if device.type in ("cpu", "meta") else device
        self.before: RandomState | None = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Note the state of the generators, if the call draws from them."""
        before = self._state()
        with self._autocast():
            yield
        if any(not torch.equal(a, b) for a, b in zip(before, self._state(), strict=True)):
            self.before = before

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """The conditions as they were; afterwards the generators go on as if nothing had been."""
        with ExitStack() as stack:
            stack.enter_context(self._autocast())
            if self.before is not None:
                devices, kind = ([], "cuda") if self.device is None else ([self.device], self.device.type)
                stack.enter_context(torch.random.fork_rng(devices, device_type=kind))
                cpu, *own = self.before
                torch.set_rng_state(cpu)
                for state in own:
                    torch.get_device_module(self.device).set_rng_state(state, self.device)
            yield

    def _autocast(self) -> AbstractContextManager[None]:
        """Its cache is off: a weight that was cast in the one pass must not serve in the other."""
        kind, dtype, enabled = self.mode
        return torch.autocast(kind, dtype, enabled, cache_enabled=False)

    def _state(self) -> RandomState:
        state: RandomState = (torch.get_rng_state(),)
        if self.device is not None:
            state += (torch.get_device_module(self.device).get_rng_state(self.device),)
        return state


@contextmanager
def tensors_again(owned: Iterable[OwnedTensors]) -> Iterator[None]:
    """The modules have the parameters that they had, and copies of their buffers, on which a call may work.

    `torch.func.functional_call` lends a network parameters for its forward pass alone.
    """
    now = [(part, part._parameters, part._buffers) for part, _, _ in owned]
    for part, parameters, buffers in owned:
        part._parameters = parameters
        part._buffers = {name: None if b is None else b.clone() for name, b in buffers.items()}
    try:
        yield
    finally:
        for part, parameters, buffers in now:
            part._parameters, part._buffers = parameters, buffers


@contextmanager
def _given(noise: list[tuple[nn.Module, Any]]) -> Iterator[None]:
    """What a network gave to its blocks for one pass (Shake-Shake's coefficients) is given again."""
    before = [(part, part.drawn_noise) for part, _ in noise]
    for part, drawn in noise:
        part.drawn_noise = drawn
    try:
        yield
    finally:
        for part, drawn in before:
            part.drawn_noise = drawn


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _leaf(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def storage(tensor: Tensor) -> int:
    """What tensors that share memory have in common, also on the meta device, where there is none."""
    address: int = tensor.untyped_storage()._cdata
    return address
