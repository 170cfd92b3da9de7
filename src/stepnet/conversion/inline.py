"""`stepnet.Residual`: a sum `u + f(u)` inside a forward, written so that `convert` finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn


class Residual(nn.Module):
    """`u + f(u)`: a module for networks that add inside their own forward, called for each sum:

        self.residual = stepnet.Residual()
        …
        x = self.residual(x, self.attention)
        x = self.residual(x, lambda v: self.mlp(self.norm(v)))

    It has no parameters and computes the plain sum. `convert` makes every call a step with its own `k`.
    """

    def forward(self, u: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        return u + f(u)


def bound_now(f: Any) -> Any:
    """Return the function with the current values of the variables that it closes over.

    In a backward pass, a lambda from a loop would otherwise be evaluated with the values of the last iteration.
    """
    if isinstance(f, partial):
        return partial(bound_now(f.func), *f.args, **f.keywords)
    if not (isinstance(f, FunctionType) and f.__closure__):
        return f
    cells = tuple(CellType() for _ in f.__closure__)
    bound = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, cells)
    bound.__kwdefaults__ = f.__kwdefaults__
    for cell, own in zip(cells, f.__closure__, strict=True):
        value = own.cell_contents
        cell.cell_contents = bound if value is f else bound_now(value)  # a function may call itself
    return bound


def modules_of(f: Any) -> Iterator[nn.Module]:
    """Return the modules that a function calls: itself, or those that it is bound to or closes over."""
    if isinstance(f, nn.Module):
        yield f
    elif isinstance(f, partial):
        for part in (f.func, *f.args, *f.keywords.values()):
            yield from modules_of(part)
    elif isinstance(f, MethodType):
        yield from modules_of(f.__self__)
    elif isinstance(f, FunctionType):
        cells = [cell.cell_contents for cell in f.__closure__ or () if cell.cell_contents is not f]
        for part in (*cells, *(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()):
            yield from modules_of(part)
