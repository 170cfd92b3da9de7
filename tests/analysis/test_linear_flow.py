"""The march of a linear flow beside the solution of its modified equation."""

import numpy as np
import pytest

from stepnet import UserError, get_scheme
from stepnet.analysis import march_and_modified


@pytest.mark.parametrize("k", [0.3, 0, -0.5, -0.7])
def test_the_march_decays_as_its_modified_equation_one_order_better_than_as_its_own(k):
    """Where dt is halved, the rate at t = 1 comes four times nearer to the modified one, and twice to its own."""

    def distances(steps):
        flow = march_and_modified(get_scheme("lm", k=k), [0.7], 1 / steps, steps)
        found, modified = (np.log(states[-2, 0] / states[-1, 0]) * steps for states in (flow.march, flow.modified))
        return abs(found - modified), abs(found - 0.7 / (1 + k))

    (coarse, far), (fine, near) = distances(400), distances(800)
    assert coarse / fine > 3.4 and far / near == pytest.approx(2, rel=0.1)


def test_a_slow_wave_swings_where_the_damping_is_small():
    """`(1 + k)^2 < 2 (1 - k) dt lambda`: the diffusion of the picture."""
    swings = march_and_modified(get_scheme("lm", k=-0.9), [39.0], 7e-4, 40)
    assert swings.march.min() < 0 and np.abs(swings.march - swings.modified).max() < 0.02
    falls = march_and_modified(get_scheme("lm", k=-0.3), [39.0], 7e-4, 40)
    assert (np.diff(falls.march[:, 0]) < 0).all() and falls.march.min() > 0


def test_a_method_without_such_an_equation_is_refused():
    for name in ("rk4", "leapfrog", "midpoint2"):
        with pytest.raises(UserError, match=name):
            march_and_modified(name, [1.0], 0.1, 4)
