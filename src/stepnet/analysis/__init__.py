"""What theory says of a scheme, found by running the scheme itself on symbols, trees and test equations."""

from stepnet.analysis.acceleration import Descent, best_euler, best_lm, convergence_rate, descend
from stepnet.analysis.amplification import amplification, companion
from stepnet.analysis.modified import modified_equation
from stepnet.analysis.notation import amplification_line, modified_lines, plain, plain_equation, step_lines
from stepnet.analysis.order import Convergence, convergence, empirical_order, order
from stepnet.analysis.stability import (
    Region,
    growth,
    imaginary_limit,
    stability_interval,
    stability_region,
    zero_stable,
)
from stepnet.analysis.symbols import is_symbolic, subject
from stepnet.analysis.transport import LAX_FRIEDRICHS, LAX_WENDROFF, Stencil, modified_transport

__all__ = [
    "LAX_FRIEDRICHS",
    "LAX_WENDROFF",
    "Convergence",
    "Descent",
    "Region",
    "Stencil",
    "amplification",
    "amplification_line",
    "best_euler",
    "best_lm",
    "companion",
    "convergence",
    "convergence_rate",
    "descend",
    "empirical_order",
    "growth",
    "imaginary_limit",
    "is_symbolic",
    "modified_equation",
    "modified_lines",
    "modified_transport",
    "order",
    "plain",
    "plain_equation",
    "stability_interval",
    "stability_region",
    "step_lines",
    "subject",
    "zero_stable",
]
