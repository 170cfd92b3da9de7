"""A trained network as a dynamical system: its steps, the coefficients with their roots, and what f does near a state.

Eigenvalues of f's Jacobian come by Arnoldi's method from products with it (two vector-Jacobian products), so the
matrix, of as many rows as a state has numbers, is never formed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import sympy
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigs
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from stepnet.analysis import analyse, z, zeta
from stepnet.conversion import ConvertedStep, Role, state_in
from stepnet.errors import UserError
from stepnet.nets import Coupling, NetworkStep, steps_by_stage, trajectory
from stepnet.schemes import Difference, Scheme, State

Complex: TypeAlias = NDArray[np.complex128]
EIGENVALUES = 6


def network_steps(model: nn.Module) -> list[list[NetworkStep]]:
    """Return the steps of every stage, in the order of `trajectory`."""
    stages = steps_by_stage(model)
    if not stages:
        raise UserError(f"{type(model).__name__} has no scheme: there are no steps to look at")
    return stages


def roots(scheme: Scheme, k: float | None, at: complex = 0) -> Complex:
    """Return the roots of the amplification polynomial at `z`: for lm at 0, those of `zeta^2 - (1-k) zeta - k`."""
    of_z_and_k, symbolic = _coefficients_of_polynomial(scheme.name if k is not None else scheme)
    values = of_z_and_k(at, k) if symbolic else of_z_and_k(at)
    return np.roots(np.asarray(values, dtype=complex)).astype(np.complex128)


@cache
def _coefficients_of_polynomial(scheme: str | Scheme) -> tuple[Callable[..., Sequence[complex]], bool]:
    polynomial = sympy.Poly(analyse(scheme).amplification.as_expr(), zeta)
    free = sorted(polynomial.free_symbols_in_domain - {z}, key=str)
    return sympy.lambdify([z, *free], polynomial.all_coeffs()), bool(free)


def verdict(scheme: Scheme, k: float) -> str:
    """Describe a coefficient: not zero-stable outside its interval; `k < 0` lengthens the step, `k > 0` damps."""
    if not scheme.zero_stable_at(k):
        return f"outside the stable interval {scheme.stable_range}"
    return "accelerates" if k < 0 else "damps" if k > 0 else "Euler"


def effective_steps(model: nn.Module, images: Tensor) -> list[list[float]]:
    """Return `||u_{n+1} - u_n|| / ||u_n||` of every step of every stage, averaged over the images."""
    with torch.no_grad():
        stages = trajectory(model, images)
    return [[_relative_step(old, new) for old, new in pairwise(states)] for states in stages]


def principal_plane(states: Sequence[State]) -> NDArray[np.float64]:
    """Project the states of a stage on their first two principal components: `[steps + 1, images, 2]`."""
    table = torch.stack([_flat(u).flatten(1) for u in states]).double().numpy()
    centred = table - table.mean(axis=(0, 1))
    rows = centred.reshape(-1, centred.shape[-1])
    _, _, directions = np.linalg.svd(rows, full_matrices=False)
    plane: NDArray[np.float64] = centred @ directions[:2].T
    return plane


@dataclass(frozen=True)
class StepSpectrum:
    """The largest eigenvalues of `dt f'(u_n)` at one image, and the largest |root| of the scheme there."""

    step: NetworkStep
    z: Complex
    growth: float | None  # None for a pair, whose parts have one z between them
    stage: int = 0


def spectra(model: nn.Module, image: Tensor, count: int = EIGENVALUES) -> list[StepSpectrum]:
    """Return the spectrum of every step that keeps the shape, for one image `[1, channels, height, width]`."""
    if len(image) != 1:
        raise UserError(f"{len(image)} images: a Jacobian is taken at the state of one")
    exact = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        stages = trajectory(exact, image.double())
    result = []
    for stage, (steps, states) in enumerate(zip(network_steps(exact), stages, strict=True)):
        for step, u in zip(steps, states[:-1], strict=True):
            if not step.transition:
                factor = step.dt**step.scheme.equation.derivative
                values = factor * jacobian_eigenvalues(right_hand_side(step.block), u, count)
                result.append(StepSpectrum(step, values, _growth(step, values), stage))
    return result


def jacobian_eigenvalues(
    f: Callable[[State], State], u: State, count: int = EIGENVALUES, tolerance: float = 1e-3
) -> Complex:
    """Return the `count` eigenvalues of largest modulus of `f'(u)`, for a tensor or a pair of tensors."""
    flat = _flat(u).detach().reshape(-1).requires_grad_()
    size = flat.numel()
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):  # other kernels of attention have no second derivative
        image = _flat(f(_like(u, flat))).reshape(-1)
        weights = torch.zeros_like(image, requires_grad=True)
        (transposed,) = torch.autograd.grad(image, flat, weights, create_graph=True)  # f'(u)^T w, linear in w

    def product(v: NDArray[np.float64]) -> NDArray[np.float64]:
        """`f'(u) v` as the derivative of `f'(u)^T w` with respect to w: six times faster than forward mode."""
        tangent = torch.from_numpy(np.ascontiguousarray(v.reshape(-1), dtype=np.float64)).to(flat)
        (result,) = torch.autograd.grad(transposed, weights, tangent, retain_graph=True)
        values: NDArray[np.float64] = result.double().numpy()
        return values

    if count >= size - 1:  # nothing for Arnoldi to save
        columns = np.stack([product(row) for row in np.eye(size)], axis=1)
        values = np.linalg.eigvals(columns)
    else:
        operator = LinearOperator((size, size), matvec=product, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(size)
        values = eigs(
            operator, k=count, ncv=min(size - 1, 10 * count), v0=start, return_eigenvectors=False, tol=tolerance
        )
    largest: Complex = values[np.argsort(-np.abs(values))][:count].astype(np.complex128)
    return largest


def right_hand_side(block: nn.Module) -> Callable[[State], State]:
    """Return `f` of a step's block at its first evaluation: `B(u) - u` of a block `B`, both parts, or their sum."""
    if isinstance(block, ConvertedStep):
        role = block.step_role
        check_is_layer(role)
        split = role.split
        if split is not None:
            return lambda u: split.terms(block, u)[1]
        return lambda u: state_in(block.step_original.forward(block, u)) - u
    if isinstance(block, Coupling):
        f, g = block.f, block.g
        return lambda u: (_value(f(u[1], 0)), _value(g(u[0], 0))) if isinstance(u, tuple) else f(u, 0) + g(u, 0)
    return lambda u: _value(block(u, 0))


def check_is_layer(role: Role) -> None:
    """Raise for a step inside a layer."""
    if role.kinds:
        raise UserError(
            f"{role.name!r}: f inside a layer is not known by itself; convert to euler or lm with step='layer'"
        )


def _value(f: Tensor | Difference) -> Tensor:
    value: Tensor = f.value if isinstance(f, Difference) else f
    return value


def _growth(step: NetworkStep, values: Complex) -> float | None:
    if len(step.scheme.functions) > 1:
        return None
    return max(float(np.abs(roots(step.scheme, step.k, complex(value))).max()) for value in values)


def _relative_step(old: State, new: State) -> float:
    before, after = _flat(old).flatten(1), _flat(new).flatten(1)
    return float(((after - before).norm(dim=1) / before.norm(dim=1)).mean())


def _flat(u: State) -> Tensor:
    """Concatenate the channels of a pair."""
    return torch.cat(u, dim=1) if isinstance(u, tuple) else u


def _like(u: State, v: Tensor) -> State:
    if isinstance(u, tuple):
        return tuple(v.view_as(_flat(u)).chunk(2, dim=1))
    return v.view_as(u)
