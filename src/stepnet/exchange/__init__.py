"""Models that stand on their own: saved, loaded, shown pictures, exported and shared, with no data set at hand.

description  what a file says of its model       rebuild      from a description to a network
files        `load` and `save`                   preprocess   from a picture to the network's input
legacy       runs made before checkpoints described themselves
"""

from stepnet.exchange.description import Description, Preprocessing
from stepnet.exchange.files import load, save

__all__ = ["Description", "Preprocessing", "load", "save"]
