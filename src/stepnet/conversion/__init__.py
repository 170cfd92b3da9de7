"""Put a scheme into a network that we did not write."""

from stepnet.conversion.adapters import split_block
from stepnet.conversion.foreign import list_foreign, load_foreign
from stepnet.conversion.summary import Conversion, ConvertedStage
from stepnet.conversion.transform import convert, describe, revert

__all__ = [
    "Conversion",
    "ConvertedStage",
    "convert",
    "describe",
    "list_foreign",
    "load_foreign",
    "revert",
    "split_block",
]
