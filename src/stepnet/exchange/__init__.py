"""Models that stand on their own: saved, loaded, shown pictures, exported and shared, with no data set at hand.

model_description  what a file says of its model       rebuild      from a description to a network
model_files        `load` and `save`                   preprocess   from a picture to the network's input
"""

from stepnet.exchange.model_description import ModelDescription as ModelDescription
from stepnet.exchange.model_description import Preprocessing as Preprocessing
from stepnet.exchange.model_files import load as load
from stepnet.exchange.model_files import save as save
