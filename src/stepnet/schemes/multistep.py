"""Explicit linear multistep methods (paper, section 2.2 and appendix A.3).

    sum_{j=0}^s alpha_j u_{n+1-j} = dt^m sum_{j=1}^s beta_j f_{n+1-j}

for `mass u^(m) = f`, where the coefficients themselves fix the mass: `mass = rho^(m)(1) / (m! sigma(1))`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Le

from stepnet.arguments import Count, checked, shown
from stepnet.errors import UserError
from stepnet.schemes.arithmetic import (
    Coefficient,
    Difference,
    State,
    combine,
    is_finite,
    is_number,
    is_tensor,
    mix,
    scale,
)
from stepnet.schemes.core import Equation, LearnedCoefficient, Past, Point, RightHandSides, Scheme, name_coefficients
from stepnet.schemes.runge_kutta import RK4, Euler, Heun
from stepnet.schemes.scheme_registry import get_scheme, register_family, register_scheme

Coefficients = Sequence[Coefficient]
DEFAULT_STEPS = 3
Steps = Annotated[int, Ge(2), Le(16)]


class LinearMultistep(Scheme):
    """Any explicit linear multistep method; coefficients may be numbers, rationals, symbols or tensors.

    `alpha` and `beta` are ordered from newest to oldest; `beta[0]`, the weight of `f_{n+1}`, is 0. The one-step method
    `start` takes the first steps; it preserves the order if its own is at least `order - 1`.
    """

    derivative: int = 1

    @checked
    def __init__(
        self, alpha: Coefficients, beta: Coefficients, start: Scheme | None = None, order: Count | None = None
    ) -> None:
        _check(alpha, beta)
        self._alpha, self._beta = tuple(alpha), tuple(beta)
        self.steps = len(alpha) - 1
        self.start = start or RK4()
        self.order = order or self.order

    def coefficients(self, k: Coefficient) -> tuple[Coefficients, Coefficients]:
        """`alpha` and `beta`, newest first; in `lm` they depend on the step's `k`."""
        return self._alpha, self._beta

    def carry_weights(self, k: Coefficient) -> Coefficients:
        """The weights of `u_{n-1}, u_{n-2}, …` in the carry, `-alpha_j / alpha_0`."""
        alpha, _ = self.coefficients(k)
        return [_divide(-a, alpha[0]) for a in alpha[2:]]

    def converted(self, convert: Callable[[Coefficient], Coefficient]) -> LinearMultistep:
        """Return the method with converted coefficients, alpha_1 such that alpha sums to exactly 0."""
        method = copy.copy(self)
        first, _, *rest = map(convert, self._alpha)
        method._alpha, method._beta = (first, -first - sum(rest), *rest), tuple(map(convert, self._beta))
        return method

    def mass(self, k: Coefficient = None) -> Coefficient:
        """The factor in `mass u^(m) = f`: `sum_j alpha_j C(s-j, m) / sum_j beta_j`."""
        alpha, beta = self.coefficients(self.k if k is None else k)
        rho = sum(a * math.comb(self.steps - j, self.derivative) for j, a in enumerate(alpha))
        return _divide(rho, sum(beta))

    @property
    def equation(self) -> Equation:
        return Equation(self.derivative, self.mass())

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        # Consistency makes the weights of the past sum to one, so the carry is u_n moved towards each older state.
        state = past[0].u
        for point, weight in zip(past[1:], self.carry_weights(k), strict=True):
            if state is past[0].u:
                state = mix(state, point.u, weight)
            else:
                state = combine((1, state), (weight, point.u), (-weight, past[0].u))
        return state

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        alpha, beta = self.coefficients(k)
        step = dt**self.derivative
        # Skip an f with weight 0 here: `combine` would drop the term only after evaluating it.
        used = [(b, point) for b, point in zip(beta[1:], past, strict=True) if not is_number(b, 0)]
        return combine(*((scale(_divide(b, alpha[0]), step), point.f) for b, point in used))

    @property
    def invertible(self) -> bool:
        """Whether it is a two-step method whose increment reads only `u_n`, so that `u_{n-1}` is in the carry only."""
        return self.steps == 2 and is_number(self._beta[2], 0) and not is_number(self._alpha[2], 0)

    def inverse(
        self, after: tuple[State, ...], rhs: RightHandSides | None, dt: Coefficient, k: Coefficient, gate: Coefficient
    ) -> State:
        """The carry `(1 - w) u_n + w u_{n-1}` is `u_{n+1} - gate increment(u_n)`: mixed with `1/w` it gives `u_{n-1}`.

        The weight `w` is k for `lm`.
        """
        new, u = after
        (weight,) = self.carry_weights(k)
        dropped = is_number(gate, 0)
        carry = new if dropped else combine((1, new), (-gate, self.increment((Point(u, rhs), Point(u)), dt, k)))
        return mix(u, carry, _divide(1, weight))

    def lost_bits(self, k: Coefficient) -> float:
        (weight,) = self.carry_weights(k)
        least = float(weight.detach().abs().min() if is_tensor(weight) else abs(weight))
        return max(0.0, -math.log2(least)) if least else math.inf

    def starter(self) -> Scheme:
        return Start(self)

    def __repr__(self) -> str:
        alpha, beta = (" ".join(map(str, part)) for part in self.coefficients(self.k))
        k = "" if self.k is None else f"k = {self.k}, "
        return f"{self.name}({k}alpha = {alpha}, beta = {beta})"


class Start(Scheme):
    """The first steps of a multistep method: its one-step `start`, on the equation `u' = f / mass`.

    For a method of order 1 a step on `u' = f` is accurate enough. For LM it is the step of a network, whose first step
    has no k, and that of the heavy ball from rest, `u_{-1} = u_0`. A step on `u' = f / (1 + k)` would be `1/(1 + k)`
    times as long: near k = -1 it leaves the interval of stability, and the run overshoots.
    """

    def __init__(self, method: LinearMultistep) -> None:
        self.method = method
        self.name = method.start.name

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        plain = self.method.order == 1 or (k is None and self.method.trainable)
        mass = 1 if plain else self.method.mass(k)
        return self.method.start.increment(past[:1], _divide(dt, mass), None)


class LM(LinearMultistep):
    """`u_{n+1} = (1 - k) u_n + k u_{n-1} + dt f(u_n)`: the paper's LM-architecture, with trainable k.

    Consistent with `(1 + k) u' = f`; zero-stable for -1 < k <= 1; k = 0 is Euler. By default k is the
    mean of the paper's initial distribution U[-0.1, 0]; with a k, a network starts from it.
    """

    name = "lm"

    reference = "paper, equation (1)"
    network: ClassVar[str] = "LM-ResNet, LM-ResNeXt"
    order = 1
    trainable: ClassVar[bool] = True
    initial_k = (-0.1, 0.0)
    stable_k = (-1.0, 1.0)

    def __init__(self, k: Coefficient = None) -> None:
        if k is not None and not _is_real(k):
            raise UserError(f"lm with k = {shown(k)}: k must be a finite number (zero-stable for -1 < k <= 1)")
        if isinstance(k, int | float | Fraction) or getattr(k, "is_number", False):
            self.initial_k = (float(k), float(k))
        self.k = Fraction(-1, 20) if k is None else k
        super().__init__(*self.coefficients(self.k), start=Euler())

    def coefficients(self, k: Coefficient) -> tuple[Coefficients, Coefficients]:
        (weight,) = self.carry_weights(k)
        return (1, weight - 1, -weight), (0, 1, 0)

    def carry_weights(self, k: Coefficient) -> Coefficients:
        return (k,)

    def over(self, base: Scheme) -> LM:
        """Return LM's carry, with the same distribution of k, over the increment of `base`."""
        if type(self) is not LM:
            return self
        method = LM(self.k) if isinstance(base, Euler) else LMOver(base, self.k)
        method.initial_k = self.initial_k
        return method


class LMOver(LM):
    """`u_{n+1} = (1 - k) u_n + k u_{n-1} + (step(u_n) - u_n)`: LM's carry with the increment of any one-step method.

    LM-PolyNet is LM over `neumann2`, LM-RevNet LM over `coupled`. If the step is consistent with `m u' = f`,
    this is consistent with `(1 + k) m u' = f`. It is zero-stable for the same k as LM; k = 0 is the one-step method.
    """

    name = ""
    network: ClassVar[str] = ""

    def __init__(self, base: Scheme, k: Coefficient = None) -> None:
        if base.steps > 1:
            raise UserError(f"lm over {base.name!r}: it reads {base.steps} past states; expected a one-step method")
        if not base.identity_path:
            raise UserError(f"lm over {base.name!r}: its step has no term u_n that LM's carry could replace")
        super().__init__(k)
        self.base = self.start = base
        self.name, self.stages, self.makes_network = f"lm+{base.name}", base.stages, base.makes_network
        self.splits = base.splits

    @property
    def equation(self) -> Equation:
        return replace(self.base.equation, mass=self.mass() * self.base.equation.mass)

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        return self.base.increment(past[:1], dt, None)

    def __repr__(self) -> str:
        return str(self)


@register_scheme("lm", aliases=("lm2", "linear_multistep"))
def make_lm(k: Coefficient = None, base: str | Scheme = "euler") -> LM:
    """LM, or its carry over the increment of another one-step method, `base`."""
    return LM(k).over(get_scheme(base))


@register_scheme("multistep", aliases=("trained_multistep",))
class TrainedMultistep(LinearMultistep):
    """`u_{n+1} = u_n + sum_j a_j (u_{n-j} - u_n) + dt sum_j b_j f_{n-j}`: s steps, every coefficient learned.

    `lm` is s = 2 with b = (1, 0). At a = 0, b = (1, 0, …) it is Euler.
    """

    reference = "Dahlquist 1956; paper, section 2.2, with all coefficients free"
    order = 1
    trainable: ClassVar[bool] = True

    @checked
    def __init__(
        self, steps: Steps = DEFAULT_STEPS, a: Coefficient = None, b: Coefficient = None, stable: bool = False
    ) -> None:
        rest = (0,) * (steps - 1)
        if steps != DEFAULT_STEPS or stable:
            self.name = f"{'stable_' if stable else ''}multistep{steps}"  # the name from which `get_scheme` builds it
        self.learned = (
            LearnedCoefficient("a", rest, bound="zero-stable" if stable else None),
            LearnedCoefficient("b", (1, *rest)),
        )
        name_coefficients(self, a=a, b=b)
        super().__init__(*self.coefficients(self.k), start=Euler())

    def coefficients(self, k: Coefficient) -> tuple[Coefficients, Coefficients]:
        return (1, sum(k["a"]) - 1, *(-weight for weight in k["a"])), (0, *k["b"])

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        f, b = past[0].f, k["b"][0]
        if not isinstance(f, Difference) or is_number(b, 1):
            return super().increment(past, dt, k)
        # Exactly the block's result if b is (1, 0, …).
        older = [(scale(weight, dt), point.f) for weight, point in zip(k["b"][1:], past[1:], strict=True)]
        return Difference(combine((1, f.end), (scale(b, dt) - 1, f.value), *older), f.start)


register_family("multistep", lambda steps: TrainedMultistep(steps))
register_family("stable_multistep", lambda steps: TrainedMultistep(steps, stable=True))


@register_scheme("midpoint2", aliases=("two_step_midpoint", "nystrom2"))
class TwoStepMidpoint(LinearMultistep):
    """`u_{n+1} = u_{n-1} + 2 dt f(u_n)`: the midpoint network of Haber and Ruthotto; `lm` at k = 1 with step 2 dt."""

    reference = "Nyström 1925; Haber, Ruthotto 2017"
    order = 2

    def __init__(self) -> None:
        super().__init__((1, 0, -1), (0, 2, 0), start=Euler())


@register_scheme("leapfrog", aliases=("stormer", "verlet"))
class Leapfrog(LinearMultistep):
    """`u_{n+1} = 2 u_n - u_{n-1} + dt^2 f(u_n)` for `u'' = f`: at dt = 1 it is `lm` at k = -1.

    Its start, `u_0 + dt u'(0) + dt^2/2 f(u_0)`, takes the initial velocity `u'(0)`.
    """

    reference = "Störmer 1907; Haber, Ruthotto 2017"
    order = 2
    derivative = 2

    def __init__(self, velocity: State = 0) -> None:
        try:
            self.velocity = np.asarray(velocity, dtype=float) if isinstance(velocity, list) else velocity
        except (TypeError, ValueError):
            raise UserError(f"velocity = {shown(velocity)}: expected an array of numbers") from None
        super().__init__((1, -2, 1), (0, 1, 0), start=TaylorStart(self.velocity))

    def starter(self) -> Scheme:
        return self.start


class TaylorStart(Scheme):
    """`u_0 + dt u'(0) + dt^2/2 f(u_0)`: the first step of a second-order equation."""

    name = "taylor2"

    def __init__(self, velocity: State) -> None:
        self.velocity = velocity

    def carry(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        u, velocity = past[0].u, self.velocity
        if is_number(velocity, 0):
            return u
        if is_tensor(u) and isinstance(velocity, np.ndarray):
            velocity = u.new_tensor(velocity)
        shapes = [tuple(getattr(part, "shape", ())) for part in (velocity, u)]
        if shapes[0] not in ((), shapes[1]):
            raise UserError(
                f"velocity of shape {shapes[0]} for a state of shape {shapes[1]}: expected the same, or one number"
            )
        return combine((1, u), (dt, velocity))

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        return combine((dt * dt * Fraction(1, 2), past[0].f))


@register_scheme("ab2", aliases=("adams_bashforth2",))
class AB2(LinearMultistep):
    """`u_{n+1} = u_n + dt (3 f_n - f_{n-1}) / 2`."""

    reference = "Adams, Bashforth 1883"
    order = 2

    def __init__(self) -> None:
        super().__init__((1, -1, 0), (0, Fraction(3, 2), Fraction(-1, 2)), start=Euler())


@register_scheme("ab3", aliases=("adams_bashforth3",))
class AB3(LinearMultistep):
    """`u_{n+1} = u_n + dt (23 f_n - 16 f_{n-1} + 5 f_{n-2}) / 12`."""

    reference = "Adams, Bashforth 1883"
    order = 3

    def __init__(self) -> None:
        beta = (0, Fraction(23, 12), Fraction(-16, 12), Fraction(5, 12))
        super().__init__((1, -1, 0, 0), beta, start=Heun())


def _check(alpha: Coefficients, beta: Coefficients) -> None:
    shown = f"alpha = {tuple(alpha)}, beta = {tuple(beta)}"
    if len(alpha) < 2 or len(alpha) != len(beta):
        raise UserError(f"multistep coefficients {shown}: expected two lists of one length, 2 or more")
    if not all(map(is_finite, (*alpha, *beta))):
        raise UserError(f"multistep coefficients {shown}: expected finite numbers")
    if is_number(alpha[0], 0):
        raise UserError(f"multistep coefficients {shown}: alpha_0 must not be 0")
    if not is_number(beta[0], 0):
        raise UserError(f"multistep coefficients {shown}: not explicit, beta_0 must be 0")
    if not _vanishes(sum(alpha)):
        raise UserError(f"multistep coefficients {shown}: not consistent, alpha must sum to 0")
    if _vanishes(sum(beta)):
        raise UserError(f"multistep coefficients {shown}: not consistent with any equation, beta sums to 0")


def _is_real(k: Coefficient) -> bool:
    """Whether a coefficient is a finite real number, a tensor or an array of them, or a symbol for one."""
    if hasattr(k, "free_symbols"):
        return k.is_extended_real is not False and is_finite(k)
    return not isinstance(k, complex | str | bytes | bool) and hasattr(k, "__sub__") and is_finite(k)


def _vanishes(total: Coefficient) -> bool:
    if hasattr(total, "free_symbols"):
        return bool(total.expand() == 0)
    if is_tensor(total):  # 1 + (k - 1) - k is 0 up to the rounding of k's own type
        import torch

        return bool((total.detach().abs() < 16 * torch.finfo(total.dtype).eps).all())
    return bool(np.all(np.abs(np.asarray(total, dtype=float)) < 1e-9))


def _divide(a: Coefficient, b: Coefficient) -> Coefficient:
    """Return `a / b`, a Fraction for integers."""
    if is_number(b, 1):
        return a
    if is_tensor(b):
        return float(a) / b if isinstance(a, Fraction) else a / b
    return Fraction(a, b) if isinstance(a, int) and isinstance(b, int) else a / b
