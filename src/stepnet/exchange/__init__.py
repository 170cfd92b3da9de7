"""Models that stand on their own: saved, loaded, shown pictures, exported and shared, with no data set at hand.

model_description  what a file says of its model       rebuild      from a description to a network
model_files        `load` and `save`                   preprocess   from a picture to the network's input
legacy             runs made before checkpoints described themselves
"""

from stepnet.exchange.model_description import ModelDescription, Preprocessing
from stepnet.exchange.model_files import load, save

__all__ = ["ModelDescription", "Preprocessing", "load", "save"]
