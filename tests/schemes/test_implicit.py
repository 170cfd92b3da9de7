"""Backward Euler and its differentiable root solve."""

import numpy as np
import pytest
import torch

from stepnet import UserError, solve
from stepnet.schemes import BackwardEuler

MATRIX = np.array([[-2.0, 1.0], [0.5, -30.0]])


def test_the_linear_step_is_the_inverse():
    u0 = np.array([1.0, -1.0])
    wanted = np.linalg.solve(np.eye(2) - 0.1 * MATRIX, u0)
    assert np.allclose(solve(lambda u: MATRIX @ u, u0, (0, 0.1), 1, "backward_euler").u[-1], wanted, rtol=0, atol=1e-12)


def test_arrays_and_tensors_agree_on_a_stiff_nonlinear_problem():
    def f(u):
        return -1000.0 * (u**3 - 1)

    found = solve(f, np.array([2.0, 0.5]), (0.0, 1.0), 10, "backward_euler").u
    tensor = solve(f, torch.tensor([2.0, 0.5], dtype=torch.float64), (0.0, 1.0), 10, "backward_euler").u
    assert np.allclose(found, tensor.numpy(), rtol=0, atol=1e-10)
    assert np.allclose(found[-1], 1, atol=1e-3)


def test_complex_states():
    step = 1 / (1 - 0.5j)  # u' = i u, dt = 1/2
    for u0 in (np.array([1.0 + 0j]), torch.tensor([1.0 + 0j], dtype=torch.complex128)):
        found = solve(lambda u: 1j * u, u0, (0.0, 1.0), 2, "backward_euler").u[-1]
        assert complex(found[0]) == pytest.approx(step**2, abs=1e-12)


def test_gradients_reach_the_state_and_the_parameters():
    u0 = torch.tensor([0.5, -0.2], dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)

    def end(u0, weight):
        return solve(lambda u: torch.tanh(weight @ u) - u, u0, (0.0, 1.0), 3, "backward_euler").u[-1]

    assert torch.autograd.gradcheck(end, (u0, weight))


def closed_form(u0, a):
    """Two steps of `u' = -a u^2` with dt = 1/2: each is the positive root of `u + a/2 u^2 = u_n`."""
    for _ in range(2):
        u0 = ((1 + 2 * a * u0).sqrt() - 1) / a
    return u0


def by_scheme(u0, a):
    return solve(lambda u: -a * u**2, u0, (0.0, 1.0), 2, "backward_euler").u[-1]


def derivatives(end, u0, a):
    """The value, and all first, second and third derivatives in (u_0, a), each that of the one before."""
    found = [end(u0, a)]
    for _ in range(3):
        latest = torch.cat([d.reshape(-1) for d in found[-1]]) if isinstance(found[-1], tuple) else found[-1]
        weights = torch.linspace(0.3, 1.1, latest.numel(), dtype=torch.float64)
        found.append(torch.autograd.grad((weights * latest).sum(), (u0, a), create_graph=True))
    return [torch.cat([d.reshape(-1) for d in ds]) for ds in found[1:]]


def test_first_second_and_third_derivatives_are_those_of_the_closed_form():
    u0, a = (torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (0.8, 1.7))
    for ours, exact in zip(derivatives(by_scheme, u0, a), derivatives(closed_form, u0, a), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-9)


def test_forward_mode_and_second_derivatives_by_torch_func():
    u0, a = (torch.tensor([v], dtype=torch.float64) for v in (0.8, 1.7))
    for transform in (torch.func.jacfwd, torch.func.jacrev, torch.func.hessian):
        ours, exact = (transform(end, argnums=(0, 1))(u0, a) for end in (by_scheme, closed_form))
        torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-9)


def test_vmap_is_refused():
    with pytest.raises(UserError, match=r"^an implicit step cannot run under torch.vmap.*as one state"):
        torch.vmap(by_scheme, (0, None))(torch.ones(2, 1), torch.ones(1))


def test_a_step_without_a_solution_is_told():
    """`u = 1 + u^2 + 1` has no real solution."""
    for u0 in (np.array([1.0]), torch.tensor([1.0], dtype=torch.float64)):
        with pytest.raises(UserError, match=r"did not converge|blew up"):
            solve(lambda u: u**2 + 1, u0, (0.0, 1.0), 1, "backward_euler")


def test_a_step_at_the_pole_is_told():
    """`u' = u` at dt = 1: `u_1 = u_0 + u_1` has no solution, and its Jacobian is 0."""
    for u0 in (np.ones(2), torch.ones(2)):
        with pytest.raises(UserError, match=r"the implicit step did not converge .*: take more steps"):
            solve(lambda u: u, u0, (0.0, 1.0), 1, "backward_euler")


@pytest.mark.parametrize("tolerance", [0, -1e-3, 1, float("nan")])
def test_a_bad_tolerance_is_refused(tolerance):
    with pytest.raises(UserError, match=r"tolerance = .*: expected (more than 0|less than 1|a finite number)"):
        BackwardEuler(tolerance)
