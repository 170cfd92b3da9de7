"""What theory says of a scheme, found by running the scheme itself on symbols, trees and test equations."""

from stepnet.analysis.acceleration import Descent, best_euler, best_lm, convergence_rate, descend
from stepnet.analysis.accuracy import Convergence, convergence, empirical_order
from stepnet.analysis.condition import one_step_error, weak_condition
from stepnet.analysis.linear_flow import LinearFlow, march_and_modified
from stepnet.analysis.noise_analysis import NoiseAnalysis, analyse_noise
from stepnet.analysis.noise_laws import falling, get_noise, list_noises
from stepnet.analysis.scheme_analysis import (
    SchemeAnalysis,
    amplification,
    analyse,
    between_states,
    companion,
    growth,
    imaginary_limit,
    modified_equation,
    order,
    stability_interval,
    stability_region,
    stable,
    zero_stable,
)
from stepnet.analysis.sde import stochastic_equation
from stepnet.analysis.stability import Region
from stepnet.analysis.symbols import is_symbolic
from stepnet.analysis.transport import LAX_FRIEDRICHS, LAX_WENDROFF, Stencil, modified_transport
from stepnet.analysis.weak import Problem, WeakError, WeakOrder, weak_error, weak_order

__all__ = [
    "LAX_FRIEDRICHS",
    "LAX_WENDROFF",
    "Convergence",
    "Descent",
    "LinearFlow",
    "NoiseAnalysis",
    "Problem",
    "Region",
    "SchemeAnalysis",
    "Stencil",
    "WeakError",
    "WeakOrder",
    "amplification",
    "analyse",
    "analyse_noise",
    "best_euler",
    "best_lm",
    "between_states",
    "companion",
    "convergence",
    "convergence_rate",
    "descend",
    "empirical_order",
    "falling",
    "get_noise",
    "growth",
    "imaginary_limit",
    "is_symbolic",
    "list_noises",
    "march_and_modified",
    "modified_equation",
    "modified_transport",
    "one_step_error",
    "order",
    "stability_interval",
    "stability_region",
    "stable",
    "stochastic_equation",
    "weak_condition",
    "weak_error",
    "weak_order",
    "zero_stable",
]
