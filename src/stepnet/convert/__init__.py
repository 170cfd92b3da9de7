"""Put a scheme into a network that we did not write."""

from stepnet.convert.conversion import convert, describe, revert
from stepnet.convert.foreign import list_foreign, load_foreign
from stepnet.convert.report import Conversion, Stage

__all__ = ["Conversion", "Stage", "convert", "describe", "list_foreign", "load_foreign", "revert"]
