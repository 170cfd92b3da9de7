"""`stepnet.Residual`: a sum `u + f(u)` inside a forward, written so that `convert` finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn


class Residual(nn.Module):
    """`u + f(u)`. A network that sums inside its own forward has one, and calls it for each sum:

        self.residual = stepnet.Residual()
        …
        x = self.residual(x, self.attention)
        x = self.residual(x, lambda v: self.mlp(self.norm(v)))

    It has no parameters and computes the plain sum. `convert` makes every call a step, with a `k` of its own.
    """

    def forward(self, u: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return u + f(u)


def bound_now(f: Any) -> Any:
    """The function with the variables that it closes over as they are now, for a call after they have changed.

    A lambda in a loop would otherwise be evaluated again, in a backward pass, with the values of the last turn.
    """
    if isinstance(f, partial):
        return partial(bound_now(f.func), *f.args, **f.keywords)
    if not (isinstance(f, FunctionType) and f.__closure__):
        return f
    cells = tuple(CellType(bound_now(cell.cell_contents)) for cell in f.__closure__)
    return FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, cells)


def modules_of(f: Any) -> Iterator[nn.Module]:
    """The modules that a function calls: itself, or what it is bound to or closes over."""
    if isinstance(f, nn.Module):
        yield f
    elif isinstance(f, partial):
        for part in (f.func, *f.args, *f.keywords.values()):
            yield from modules_of(part)
    elif isinstance(f, MethodType):
        yield from modules_of(f.__self__)
    elif isinstance(f, FunctionType):
        cells = [cell.cell_contents for cell in f.__closure__ or ()]
        for part in (*cells, *(f.__defaults__ or ())):
            yield from modules_of(part)
