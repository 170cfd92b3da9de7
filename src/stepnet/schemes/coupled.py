"""RevNet's partitioned Euler step (paper, section 2.1).

    X_{n+1} = X_n + dt f(Y_n),    Y_{n+1} = Y_n + dt g(X_{n+1})

for `X' = f(Y), Y' = g(X)`. `Y` is updated from the new `X`, so this is the symplectic Euler method rather than the
forward Euler of the paper's table; that is also what makes it invertible.
"""

from __future__ import annotations

from typing import ClassVar, cast

from stepnet.schemes.arithmetic import Coefficient, State, combine
from stepnet.schemes.core import Equation, Past, RightHandSide, RightHandSides, Scheme
from stepnet.schemes.scheme_registry import register_scheme


@register_scheme("coupled", aliases=("symplectic_euler", "partitioned_euler", "rev"))
class Coupled(Scheme):
    """The state is a pair `(X, Y)` and the right-hand side a pair `(f, g)`."""

    reference = "Gomez, Ren, Urtasun, Grosse 2017 (RevNet)"
    network: ClassVar[str] = "RevNet"
    order = 1
    stages = 1

    @property
    def equation(self) -> Equation:
        return Equation(partitioned=True)

    def increment(self, past: Past, dt: Coefficient, k: Coefficient) -> State:
        (f, g), (x, y) = past[0].pair, past[0].u
        dx = combine((dt, f(y, 0, 0)))
        dy = combine((dt, g(combine((1, x), (1, dx)), 1, 0)))
        return dx, dy

    @property
    def invertible(self) -> bool:
        return True

    def inverse(
        self, after: tuple[State, ...], rhs: RightHandSides | None, dt: Coefficient, k: Coefficient, gate: Coefficient
    ) -> State:
        """`(X_n, Y_n)` from `(X_{n+1}, Y_{n+1})`: the same evaluations, taken back in the opposite order."""
        (f, g), (x, y) = cast("tuple[RightHandSide, RightHandSide]", rhs), after[0]
        y = combine((1, y), (-dt, g(x, 1, 0)))
        x = combine((1, x), (-dt, f(y, 0, 0)))
        return x, y
