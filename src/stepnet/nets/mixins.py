"""Add behaviour to a module in place, by a subclass of its class, and remove it again.

The module stays the same object (as in `torch.nn.utils.parametrize`), so submodules, hooks, `isinstance` and the names
in `state_dict` do not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast

from torch import nn


class InstanceMixin(nn.Module):
    """The base of such behaviour: added to a module by `add_mixin`, never instantiated.

    The names of what it adds contain `step`, since a name of the module's own class would be hidden by it.
    """

    step_original: ClassVar[type[nn.Module]]
    step_mixin: ClassVar[type[InstanceMixin]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle by the original class: the subclass cannot be imported, it is created again."""
        make, arguments, *state = cast(tuple[Any, ...], super().__reduce_ex__(max(int(protocol), 2)))
        return (_made_again, (self.step_mixin, self.step_original, make, *arguments[1:]), *state)

    @classmethod
    def step_members(cls, original: type[nn.Module]) -> dict[str, Any]:
        """Return further members of the subclass of this `original`."""
        return {}


Mixin = TypeVar("Mixin", bound=InstanceMixin)


def add_mixin(module: nn.Module, added: type[Mixin]) -> Mixin:
    """Make the module an instance of `added` and of its own class; return it."""
    module.__class__ = _subclass(added, type(module))
    return cast(Mixin, module)


def remove_mixin(module: InstanceMixin) -> None:
    """Restore the class of the module."""
    module.__class__ = module.step_original  # type: ignore[assignment]


_subclasses: dict[tuple[type[InstanceMixin], type[nn.Module]], type[nn.Module]] = {}


def _subclass(added: type[InstanceMixin], original: type[nn.Module]) -> type[nn.Module]:
    """Return the subclass for a pair; it keeps the name of the original, by which libraries recognise blocks."""
    if (added, original) in _subclasses:
        return _subclasses[added, original]
    described = {"__module__": original.__module__, "__doc__": original.__doc__}
    members = {"step_original": original, "step_mixin": added, **described}
    made = type(original.__name__, (added, original), members)
    further = added.step_members(original)
    for name, member in further.items():  # after the original's __init_subclass__, which may wrap it
        setattr(made, name, member)
    return _subclasses.setdefault((added, original), made)


def _made_again(
    added: type[InstanceMixin], original: type[nn.Module], make: Callable[..., nn.Module], *args: Any
) -> nn.Module:
    return make(_subclass(added, original), *args)
