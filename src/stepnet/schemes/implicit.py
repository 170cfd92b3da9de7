"""Backward Euler, and the primitive that implicit schemes need: a differentiable fixed point."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from stepnet.arguments import OpenShare, checked
from stepnet.errors import UserError
from stepnet.schemes.arithmetic import Coefficient, State, combine, is_tensor
from stepnet.schemes.core import Past, Scheme
from stepnet.schemes.scheme_registry import register_scheme

if TYPE_CHECKING:
    from torch import Tensor

Map = Callable[[State], State]
DERIVATIVES = 3  # number of exact derivatives of the fixed point on tensors


@register_scheme("backward_euler", aliases=("implicit_euler",))
class BackwardEuler(Scheme):
    """`u_{n+1} = u_n + dt f(t_{n+1}, u_{n+1})`, solved to a tolerance: the limit of PolyNet's truncations.

    For `solve` and analysis only: a network would have to invert its block. On tensors it can be
    differentiated up to three times, in reverse and in forward mode.
    """

    reference = "paper, appendix A.1"
    order = 1
    makes_network = False

    @checked
    def __init__(self, tolerance: OpenShare = 1e-12) -> None:
        self.tolerance = tolerance

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        point = past[0]
        new = fixed_point(point.u, lambda u: combine((1, point.u), (dt, point.rhs(u, 1, 0))), self.tolerance)
        return combine((1, new), (-1, point.u))


@singledispatch
def fixed_point(guess: State, phi: Map, tolerance: float) -> State:
    """Solve `u = phi(u)` near `guess`; other types of state register their own solver."""
    if is_tensor(guess):  # not registered by its class: that would import torch for every caller
        return _fixed_tensor(guess, phi, tolerance)
    raise UserError(f"no implicit step for a state of type {type(guess).__name__}: expected an array or a tensor")


@fixed_point.register(np.ndarray)
@fixed_point.register(np.generic)
def _(guess: Any, phi: Map, tolerance: float) -> State:
    import scipy.optimize

    result = phi(guess).dtype  # complex if f is, for a real state too
    dtype = np.complex128 if result.kind == "c" else np.float64

    def unpack(x: np.ndarray) -> np.ndarray:
        return x.view(dtype).reshape(guess.shape)

    def residual(x: np.ndarray) -> np.ndarray:
        u = unpack(x)
        return np.ascontiguousarray(u - phi(u), dtype=dtype).ravel().view(np.float64)

    start = np.ascontiguousarray(guess, dtype=dtype).ravel().view(np.float64)
    solution = scipy.optimize.root(residual, start, method="hybr", options={"xtol": tolerance})
    if np.abs(solution.fun).max(initial=0.0) > 1e3 * tolerance * (1 + np.abs(solution.x).max(initial=0.0)):
        raise UserError(
            f"the implicit step did not converge (residual {np.abs(solution.fun).max():.1e}): take more steps"
        )
    return unpack(solution.x).astype(result)


def _fixed_tensor(guess: Tensor, phi: Map, tolerance: float) -> State:
    import torch

    result = phi(guess).dtype
    complex_values = result.is_complex

    def pack(u: Tensor) -> Tensor:
        return (torch.view_as_real(u) if complex_values else u).reshape(-1)

    def unpack(x: Tensor) -> Tensor:
        if complex_values:
            return torch.view_as_complex(x.reshape(*guess.shape, 2))
        return x.reshape(guess.shape)

    def residual(x: Tensor) -> Tensor:
        return x - pack(phi(unpack(x)))

    def jacobian(x: Tensor) -> Tensor:
        pull_back = torch.func.vjp(residual, x)[1]
        rows = torch.eye(x.numel(), dtype=x.dtype, device=x.device)
        return torch.stack([pull_back(row)[0] for row in rows]).detach()

    def correction(matrix: Tensor, defect: Tensor) -> Tensor:
        wide = torch.promote_types(defect.dtype, torch.float32)  # torch cannot factorise in half precision
        solution, failed = torch.linalg.solve_ex(matrix.to(wide), defect.to(wide))
        if _holds(failed):
            raise UserError("the implicit step did not converge (its Jacobian is singular): take more steps")
        return torch.as_tensor(solution, dtype=defect.dtype)

    x = pack(guess.detach().to(result)).clone()
    tolerance = max(tolerance, 10 * torch.finfo(x.dtype).eps)
    with torch.no_grad():
        for _ in range(50):
            matrix = jacobian(x)
            update = correction(matrix, residual(x).detach())
            x = x - update
            if not _holds(update.abs().max() > tolerance * (1 + x.abs().max())):
                break
        else:
            size = f"last update {update.abs().max():.1e}"
            raise UserError(f"the implicit step did not converge ({size}): take more steps")
    # Derivatives reach u_n and the parameters of f through further Newton steps with that matrix held fixed. An error
    # e of x becomes (I - matrix^-1 J) e + O(e^2), where J is the matrix at the fixed point: each step makes one more
    # derivative that of the fixed point (for the first, this is the implicit function theorem).
    for _ in range(DERIVATIVES):
        x = x - correction(matrix, residual(x))
    return unpack(x)


def _holds(condition: Tensor) -> bool:
    try:
        return bool(condition)
    except RuntimeError:
        raise UserError(
            "an implicit step cannot run under torch.vmap, since each sample takes its own number of iterations: "
            "take the whole batch as one state, or loop over it"
        ) from None
