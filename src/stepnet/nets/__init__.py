"""The networks: blocks (f), stages (a scheme marching blocks), one file per family, the registry."""

from stepnet.nets import (  # noqa: F401  (each registers its family)
    densenet,
    fractalnet,
    polynet,
    resnet,
    resnext,
    revnet,
    shakeshake,
    very_deep_polynet,
)
from stepnet.nets.compiled import compile_blocks
from stepnet.nets.cost import KineticCost
from stepnet.nets.learned import coefficients
from stepnet.nets.model_registry import create_model, list_models, model_entry, register_model
from stepnet.nets.pretrained import list_pretrained
from stepnet.nets.residual import Backbone, Network, ResidualNetwork
from stepnet.nets.stage import Stage, Transition
from stepnet.nets.stochastic import StochasticDepth
from stepnet.nets.weights import load_weights

__all__ = [
    "Backbone",
    "KineticCost",
    "Network",
    "ResidualNetwork",
    "Stage",
    "StochasticDepth",
    "Transition",
    "coefficients",
    "compile_blocks",
    "create_model",
    "list_models",
    "list_pretrained",
    "load_weights",
    "model_entry",
    "register_model",
]
