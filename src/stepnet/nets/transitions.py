"""How a stage starts: the first block where the shape changes, for one state and for a pair."""

from __future__ import annotations

from typing import cast

from torch import nn

from stepnet.nets.blocks import PreActivation
from stepnet.nets.march import Slopes
from stepnet.schemes import Entry, State


class Coupling(nn.Module):
    """The pair `(f, g)` of one step: of a coupled system, `X' = f(Y)`, `Y' = g(X)`, or of a sum, `u' = f(u) + g(u)`."""

    def __init__(self, f: nn.Module, g: nn.Module) -> None:
        super().__init__()
        self.f, self.g = f, g


class Transition(nn.Module):
    """The first block of a stage that changes the shape: `u_0 = P x`, `u_1 = P x + f(x)`.

    Down-sampling is not part of the differential equation, so this is always an Euler step with `f` at the old
    resolution. The projected input `P x` is the past of the next step. With `project_past` (LM-ResNeXt) the state
    before `x` is projected too, by a separate convolution, and the transition is a full step of the scheme.
    """

    def __init__(self, block: nn.Module, shortcut: nn.Module, project_past: nn.Module | None = None) -> None:
        super().__init__()
        self.block = block
        self.shortcut = shortcut
        self.project_past = project_past

    def enter(self, x: State) -> tuple[State, Slopes]:
        """Return `u_0 = P x`, and `f` at the state before the projection."""
        return self.shortcut(x), lambda u, i: self.block(x)


class SharedTransition(Transition):
    """A pre-activation transition whose shortcut shares the block's first (bn, relu): `u_0 = P relu(bn(x))`."""

    def enter(self, x: State) -> tuple[State, Slopes]:
        activated = cast(PreActivation, self.block).activated(x)
        return self.shortcut(activated), lambda u, i: self.block(x, activated=activated)


class CoupledTransition(nn.Module):
    """The transition of a pair: `X_1 = P X + f(Y)`, `Y_1 = P Y + g(X_1)`, with `g` at the new resolution."""

    project_past = None

    def __init__(self, coupling: Coupling, shortcuts: tuple[nn.Module, nn.Module]) -> None:
        super().__init__()
        self.coupling = coupling
        self.shortcuts = nn.ModuleList(shortcuts)

    @property
    def block(self) -> nn.Module:
        """The pair `(f, g)`."""
        return self.coupling

    def enter(self, state: State) -> tuple[State, Slopes]:
        """Return the projected pair, and `(f, g)` with `f` at the state before the projection."""
        projected = tuple(shortcut(part) for shortcut, part in zip(self.shortcuts, state, strict=True))
        return projected, (lambda u, i: self.coupling.f(state[1]), lambda u, i: self.coupling.g(u, i))


def entry_of(transition: Transition | CoupledTransition | None) -> Entry:
    """Return how a stage with this transition starts."""
    return "identity" if transition is None else "projected" if transition.project_past is None else "with past"
