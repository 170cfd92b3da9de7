"""A module gets new behaviour by a subclass of its own class, in place, and loses it again.

The module stays the object that it was (as in `torch.nn.utils.parametrize`), so submodules, hooks, `isinstance` and the
names in `state_dict` are as before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

from torch import nn


class InstanceMixin(nn.Module):
    """What such a subclass adds to the class of a module. Put on by `add_mixin`, never built."""

    original: ClassVar[type[nn.Module]]
    added: ClassVar[type[InstanceMixin]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copied and pickled by the original class: the subclass cannot be imported, only made again."""
        make, arguments, *state = cast(tuple[Any, ...], super().__reduce_ex__(max(int(protocol), 2)))
        return (_made_again, (self.added, self.original, make, *arguments[1:]), *state)

    @classmethod
    def members(cls, original: type[nn.Module]) -> dict[str, Any]:
        """What else the subclass of this `original` needs."""
        return {}


def add_mixin(module: nn.Module, added: type[InstanceMixin]) -> None:
    """Make the module an instance of `added` and of its own class."""
    module.__class__ = _subclass(added, type(module))


def remove_mixin(module: InstanceMixin) -> None:
    """Give the module its own class back."""
    module.__class__ = module.original  # type: ignore[assignment]


_subclasses: dict[tuple[type[InstanceMixin], type[nn.Module]], type[nn.Module]] = {}


def _subclass(added: type[InstanceMixin], original: type[nn.Module]) -> type[nn.Module]:
    """One for each pair. It keeps the original's name, by which libraries tell their blocks."""
    if (added, original) in _subclasses:
        return _subclasses[added, original]
    members = {"original": original, "added": added, "__module__": original.__module__, "__doc__": original.__doc__}
    made = type(original.__name__, (added, original), members)
    for name, member in added.members(original).items():  # after the original's __init_subclass__, which may wrap it
        setattr(made, name, member)
    return _subclasses.setdefault((added, original), made)


def _made_again(
    added: type[InstanceMixin], original: type[nn.Module], make: Callable[..., nn.Module], *args: Any
) -> nn.Module:
    return make(_subclass(added, original), *args)
