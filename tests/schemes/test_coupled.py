"""RevNet's step: its inverse, and that it preserves area, which forward Euler does not."""

import torch

from stepnet.schemes import Coupled, get_scheme, solve

X, Y = torch.tensor([0.3, -1.2], dtype=torch.float64), torch.tensor([0.8, 0.5], dtype=torch.float64)
RHS = (lambda y, c, i: torch.tanh(2 * y), lambda x, c, i: -torch.sin(x) + x**2)


def test_the_inverse_gives_back_the_state():
    scheme, pair = Coupled(), (X, Y)
    run = solve((lambda y: RHS[0](y, 0, 0), lambda x: RHS[1](x, 0, 0)), pair, (0.0, 2.0), 20, "coupled")
    state = tuple(part[-1] for part in run.u)
    for _ in range(20):
        state = scheme.inverse((state,), RHS, 0.1, None, 1)
    for found, wanted in zip(state, pair, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-13)


def test_it_is_symplectic_euler_and_not_forward_euler():
    """The Jacobian of one step has determinant 1 for every f and g; that of forward Euler is `1 - dt^2 f' g'`."""
    f, g = (lambda y: torch.tanh(2 * y)), (lambda x: torch.sin(x))

    def step(state):
        run = solve((f, g), (state[:1], state[1:]), (0.0, 0.5), 1, "coupled")
        return torch.cat([part[-1] for part in run.u])

    def forward_euler(state):
        return torch.cat([state[:1] + 0.5 * f(state[1:]), state[1:] + 0.5 * g(state[:1])])

    state = torch.tensor([0.4, 0.2], dtype=torch.float64)
    area = torch.autograd.functional.jacobian(step, state).det()
    torch.testing.assert_close(area, torch.ones_like(area), rtol=0, atol=1e-14)
    assert abs(torch.autograd.functional.jacobian(forward_euler, state).det() - 1) > 0.1


def test_its_inverse_takes_gradients():
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: get_scheme("rev").inverse(((x, y),), RHS, 0.3, None, 1), (x, y))

    assert torch.autograd.gradcheck(lambda x, y: get_scheme("rev").inverse((x, y), RHS, 0.3, None, 1), (x, y))


def test_shears_can_be_taken_back_and_a_determinant_of_1_does_not_say_so():
    """`(X, Y) -> (X + f(Y), Y)` is undone by `X - f(Y)`, for an f that has no inverse and no bound on its slope.

    A determinant of 1 everywhere is not enough: the map of the punctured plane that doubles the angle of (x, y) and
    keeps areas, `r -> r/sqrt(2)`, has it, and takes opposite points to one.
    """
    f = lambda y, c, i: 100 * y.round()  # noqa: E731
    zero = lambda x, c, i: 0 * x  # noqa: E731
    state = (X, Y)
    run = solve((lambda y: f(y, 0, 0), lambda x: zero(x, 0, 0)), state, (0.0, 1.0), 1, "coupled")
    back = Coupled().inverse((tuple(part[-1] for part in run.u),), (f, zero), 1.0, None, 1)
    for found, wanted in zip(back, state, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)

    def double_angle(point):
        x, y = point
        radius = torch.hypot(x, y)
        return torch.stack([(x * x - y * y) / radius, 2 * x * y / radius]) / 2**0.5

    point = torch.tensor([0.6, 0.3], dtype=torch.float64)
    area = torch.autograd.functional.jacobian(double_angle, point).det()
    torch.testing.assert_close(area, torch.ones_like(area), rtol=0, atol=1e-14)
    assert torch.equal(double_angle(point), double_angle(-point))
