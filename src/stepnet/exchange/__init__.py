"""Models that stand on their own: saved, loaded, shown pictures, exported and shared, with no data set at hand.

model_description    what a file says of its model
model_files          `load` and `save`
rebuild              from a description to a network
transformers_folder  what transformers' `save_pretrained` wrote of a converted network
prediction           from a picture to the network's input, and to its likeliest classes
depth                the same network on a finer or a coarser grid of steps
exporting            ONNX and torch.export
hub, card            the Hugging Face Hub, and the card of a model
"""

from stepnet.exchange.depth import coarsen as coarsen
from stepnet.exchange.depth import refine as refine
from stepnet.exchange.model_description import ModelDescription as ModelDescription
from stepnet.exchange.model_description import Preprocessing as Preprocessing
from stepnet.exchange.model_files import load as load
from stepnet.exchange.model_files import save as save
