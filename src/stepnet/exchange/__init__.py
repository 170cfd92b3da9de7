"""Self-contained models: save, load, predict, export and share them without their data set.

model_description    the description of a model in its file
model_files          `load` and `save`
rebuild              from a description to a network
transformers_folder  converted networks that transformers' `save_pretrained` wrote
prediction           the likeliest classes of a picture, the continuation of a text
depth                the same network on a finer or a coarser grid of steps
exporting            ONNX and torch.export
hub, card            the Hugging Face Hub, and the card of a model
"""

from stepnet.exchange.depth import coarsen as coarsen
from stepnet.exchange.depth import described_like as described_like
from stepnet.exchange.depth import refine as refine
from stepnet.exchange.exporting import export_onnx as export_onnx
from stepnet.exchange.exporting import export_pt2 as export_pt2
from stepnet.exchange.model_description import ModelDescription as ModelDescription
from stepnet.exchange.model_description import Preprocessing as Preprocessing
from stepnet.exchange.model_description import TrainingRecord as TrainingRecord
from stepnet.exchange.model_description import decode as decode
from stepnet.exchange.model_description import describe_network as describe_network
from stepnet.exchange.model_description import description_of as description_of
from stepnet.exchange.model_description import encode as encode
from stepnet.exchange.model_files import DESCRIPTION as DESCRIPTION
from stepnet.exchange.model_files import PREFIX as PREFIX
from stepnet.exchange.model_files import RESUME as RESUME
from stepnet.exchange.model_files import load as load
from stepnet.exchange.model_files import read_model as read_model
from stepnet.exchange.model_files import resumed_weights as resumed_weights
from stepnet.exchange.model_files import save as save
from stepnet.exchange.model_files import write_model as write_model
from stepnet.exchange.prediction import generate as generate
from stepnet.exchange.prediction import predict as predict
from stepnet.exchange.prediction import preprocessing_of as preprocessing_of
