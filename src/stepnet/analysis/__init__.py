"""What theory says of a scheme, found by running the scheme itself on symbols, trees and test equations."""

from stepnet.analysis.acceleration import Descent, best_euler, best_lm, convergence_rate, descend
from stepnet.analysis.amplification import amplification, companion
from stepnet.analysis.condition import one_step_error, weak_condition
from stepnet.analysis.modified import between_states, modified_equation
from stepnet.analysis.noise import get_noise, list_noises
from stepnet.analysis.notation import amplification_line, modified_lines, plain, plain_equation, step_lines
from stepnet.analysis.order import Convergence, convergence, empirical_order, order
from stepnet.analysis.stability import (
    Region,
    growth,
    imaginary_limit,
    stability_interval,
    stability_region,
    stable,
    zero_stable,
)
from stepnet.analysis.stochastic import stochastic_equation
from stepnet.analysis.symbols import is_symbolic, subject
from stepnet.analysis.transport import LAX_FRIEDRICHS, LAX_WENDROFF, Stencil, modified_transport
from stepnet.analysis.weak import Problem, WeakError, WeakOrder, weak_error, weak_order

__all__ = [
    "LAX_FRIEDRICHS",
    "LAX_WENDROFF",
    "Convergence",
    "Descent",
    "Problem",
    "Region",
    "Stencil",
    "WeakError",
    "WeakOrder",
    "amplification",
    "amplification_line",
    "best_euler",
    "best_lm",
    "between_states",
    "companion",
    "convergence",
    "convergence_rate",
    "descend",
    "empirical_order",
    "get_noise",
    "growth",
    "imaginary_limit",
    "is_symbolic",
    "list_noises",
    "modified_equation",
    "modified_lines",
    "modified_transport",
    "one_step_error",
    "order",
    "plain",
    "plain_equation",
    "stability_interval",
    "stability_region",
    "stable",
    "step_lines",
    "stochastic_equation",
    "subject",
    "weak_condition",
    "weak_error",
    "weak_order",
    "zero_stable",
]
