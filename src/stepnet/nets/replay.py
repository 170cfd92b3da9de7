"""Evaluations of `f` that save no tensors: the backward pass evaluates `f` again to get them.

While `f` is evaluated, autograd saves numbered slots instead of tensors. The first slot that the backward pass needs
triggers a second evaluation, with the same argument under the same conditions: autocast, random generators, running
statistics (which are not updated again). The graph is autograd's, so hooks, DistributedDataParallel and tied parameters
work as usual. The mechanism is that of `torch.utils.checkpoint`. In addition, batch norm is updated once, noise that a
network drew for its blocks is used again, and the argument may be computed: see `stepnet.nets.reversible`.
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

    These differentiate the evaluation itself, including tangents, and would not see a second evaluation in the backward
    pass. While one is active, a network stores what autograd saves.
    """
    return not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0


@_disable_dynamo  # torch.compiler.disable, which imports the compiler when first called, not with this file
def recomputed(f: Callable[..., Result], module: nn.Module, *args: Any) -> Result:
    """Return `f(*args)`, a function of the module's parameters, saving the arguments only."""
    if not (torch.is_grad_enabled() and only_reverse_mode()):
        return f(*args)
    saved = tree_map(_leaf, args)
    return RepeatedEvaluation(f, module, lambda: saved)(*args)  # type: ignore[no-any-return]


class RepeatedEvaluation:
    """An evaluation `f(*args)` whose saved tensors are slots; `argument` returns the arguments for filling them.

    Those are leaves that require a gradient if the first ones did, so that autograd saves the same tensors.
    """

    def __init__(
        self, f: Callable[..., Any], module: nn.Module, argument: Callable[[], tuple[Any, ...]], whole: bool = False
    ) -> None:
        self.f, self.module, self.argument = f, module, argument
        self.whole = whole  # compute the value too; otherwise stop when the last slot is filled
        self.count = 0
        self.slots: dict[int, Tensor] = {}
        self.value: Any = None
        self.versions: list[tuple[Tensor, int]] = []
        self.parameter_storages: set[int] = set()  # parameters need no slot

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
        """Fill the slots by an evaluation at these arguments; return its value, if `whole`."""
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

        with torch.enable_grad(), self.conditions.replayed(), tensors_again(self.tensors), _noise_again(self.noise):
            try:
                with saved_tensors_hooks(fill, lambda _: None):  # type: ignore[arg-type, return-value]
                    value = self.f(*args)
            except _AllFilled:
                return None
        if filled != self.count:
            raise RuntimeError(f"a block saved {self.count} tensors and then {filled}: its evaluations must be alike")
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
            if slot not in self.slots:  # computing the argument may have repeated this evaluation
                self.again(*args)
        return self.slots.pop(slot)


class _AllFilled(Exception):
    """All slots are filled: stop the evaluation."""


class Conditions:
    """What a call depends on besides its arguments: the autocast mode, and the random generators if it uses them."""

    def __init__(self, device: torch.device) -> None:
        kind = device.type if torch.amp.is_autocast_available(device.type) else "cpu"
        self.mode = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        self.device = None if device.type in ("cpu", "meta") else device
        self.before: RandomState | None = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Save the state of the generators, if the call draws from them."""
        before = self._state()
        with self._autocast():
            yield
        if any(not torch.equal(a, b) for a, b in zip(before, self._state(), strict=True)):
            self.before = before

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Restore the conditions of the first call; on exit, the generators continue as before."""
        with ExitStack() as stack:
            stack.enter_context(self._autocast())
            if self.before is not None:
                devices, kind = ([], "cuda") if self.device is None else ([self.device], self.device.type)
                stack.enter_context(torch.random.fork_rng(devices, device_type=kind))
                cpu, *of_device = self.before
                torch.set_rng_state(cpu)
                for state in of_device:
                    torch.get_device_module(self.device).set_rng_state(state, self.device)
            yield

    def _autocast(self) -> AbstractContextManager[None]:
        """Return the autocast mode without its cache: a weight cast in one pass must not be used in the other."""
        kind, dtype, enabled = self.mode
        return torch.autocast(kind, dtype, enabled, cache_enabled=False)

    def _state(self) -> RandomState:
        state: RandomState = (torch.get_rng_state(),)
        if self.device is not None:
            state += (torch.get_device_module(self.device).get_rng_state(self.device),)
        return state


@contextmanager
def tensors_again(owned: Iterable[OwnedTensors]) -> Iterator[None]:
    """Give the modules the parameters of the first call, and copies of their buffers, which a call may change.

    The parameters may differ now: `torch.func.functional_call` replaces them during a forward pass.
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
def _noise_again(noise: list[tuple[nn.Module, Any]]) -> Iterator[None]:
    """Set the noise that a network drew for its blocks in the first call, such as Shake-Shake's coefficients."""
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
    """Return an identifier shared by tensors that share memory, also on the meta device."""
    address: int = tensor.untyped_storage()._cdata
    return address
