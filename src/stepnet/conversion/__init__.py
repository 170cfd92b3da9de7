"""Put a scheme into a network that we did not write; read the scheme that it has."""

from stepnet.conversion.foreign import list_foreign as list_foreign
from stepnet.conversion.foreign import load_foreign as load_foreign
from stepnet.conversion.inline import Residual as Residual
from stepnet.conversion.reading import Reading as Reading
from stepnet.conversion.reading import StageReading as StageReading
from stepnet.conversion.reading import assert_scheme as assert_scheme
from stepnet.conversion.reading import read as read
from stepnet.conversion.split import split_block as split_block
from stepnet.conversion.summary import Conversion as Conversion
from stepnet.conversion.summary import ConvertedStage as ConvertedStage
from stepnet.conversion.transform import convert as convert
from stepnet.conversion.transform import describe as describe
from stepnet.conversion.transform import revert as revert
