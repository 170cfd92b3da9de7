from . import analysis as analysis
from .analysis import analyse as analyse
from .conversion import convert as convert
from .conversion import revert as revert
from .errors import UserError as UserError
from .exchange import load as load
from .exchange import save as save
from .nets import coefficients as coefficients
from .nets import create_model as create_model
from .nets import list_models as list_models
from .nets import register_model as register_model
from .report.modified_plots import plot_modified as plot_modified
from .report.scheme_plots import plot_order as plot_order
from .report.scheme_plots import plot_stability as plot_stability
from .schemes import get_scheme as get_scheme
from .schemes import list_schemes as list_schemes
from .schemes import register_scheme as register_scheme
from .schemes import solve as solve
from .training import train as train

__version__: str
