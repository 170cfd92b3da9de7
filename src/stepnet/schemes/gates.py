"""The gate of a stochastic step (paper, section 3.1), for numbers, arrays, tensors and symbols alike.

A random variable eta of mean m, put in front of the increment `dt f`, becomes a step of a stochastic differential
equation when its fluctuation is scaled like Brownian motion:

    dt gate = dt m + sqrt(dt) (eta - m),    dX = m f dt + sqrt(Var eta) f dB.

At dt = 1 the gate is eta itself: stochastic depth (eta is 0 or 1) and shake-shake (eta uniform) as published. At any
other dt a gate with eta = 0 is `m (1 - 1/sqrt(dt))`, not 0: a block can be skipped at dt = 1 only.
"""

from __future__ import annotations

from fractions import Fraction

from stepnet.schemes.arithmetic import Coefficient, is_number


def stochastic_gate(eta: Coefficient, mean: Coefficient, dt: Coefficient = 1) -> Coefficient:
    """`m + (eta - m) / sqrt(dt)`: the factor of `dt f` in the paper's general form."""
    if is_number(dt, 1):
        return eta
    return mean + (eta - mean) / dt ** Fraction(1, 2)
