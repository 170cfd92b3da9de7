"""The numerical methods: every scheme written once, for networks, `solve` and analysis alike."""

from stepnet.schemes.arithmetic import Difference, combine, mix
from stepnet.schemes.core import Equation, Point, Scheme, advance, march
from stepnet.schemes.coupled import Coupled
from stepnet.schemes.fractal import Fractal
from stepnet.schemes.implicit import BackwardEuler, fixed_point
from stepnet.schemes.initial_value import Trajectory, solve
from stepnet.schemes.multistep import AB2, AB3, LM, Leapfrog, LinearMultistep, TwoStepMidpoint
from stepnet.schemes.polynomial import Neumann, Picard
from stepnet.schemes.runge_kutta import RK4, Euler, Heun, Midpoint, RungeKutta, Tableau, ThreeEighths
from stepnet.schemes.scheme_registry import aliases_of, get_scheme, list_schemes, register_family, register_scheme

__all__ = [
    "AB2",
    "AB3",
    "LM",
    "RK4",
    "BackwardEuler",
    "Coupled",
    "Difference",
    "Equation",
    "Euler",
    "Fractal",
    "Heun",
    "Leapfrog",
    "LinearMultistep",
    "Midpoint",
    "Neumann",
    "Picard",
    "Point",
    "RungeKutta",
    "Scheme",
    "Tableau",
    "ThreeEighths",
    "Trajectory",
    "TwoStepMidpoint",
    "advance",
    "aliases_of",
    "combine",
    "fixed_point",
    "get_scheme",
    "list_schemes",
    "march",
    "mix",
    "register_family",
    "register_scheme",
    "solve",
]
