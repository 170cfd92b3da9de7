"""The networks: blocks (f), stages (a scheme marching blocks), one file per family, the registry."""

from stepnet.nets import (  # noqa: F401  (each registers its family)
    densenet,
    fractalnet,
    gpt,
    polynet,
    resnet,
    resnext,
    revnet,
    shakeshake,
    very_deep_polynet,
    vit,
)
from stepnet.nets.draws import compile_blocks as compile_blocks
from stepnet.nets.model_registry import create_model as create_model
from stepnet.nets.model_registry import list_models as list_models
from stepnet.nets.model_registry import list_pretrained as list_pretrained
from stepnet.nets.model_registry import model_entry as model_entry
from stepnet.nets.model_registry import register_family as register_family
from stepnet.nets.model_registry import register_model as register_model
from stepnet.nets.residual import Backbone as Backbone
from stepnet.nets.residual import Network as Network
from stepnet.nets.residual import ResidualNetwork as ResidualNetwork
from stepnet.nets.stage import Stage as Stage
from stepnet.nets.stage import Transition as Transition
from stepnet.nets.stochastic import StochasticDepth as StochasticDepth
from stepnet.nets.trajectories import KineticCost as KineticCost
from stepnet.nets.weights import coefficients as coefficients
from stepnet.nets.weights import load_weights as load_weights
