"""The networks: blocks (f), stages (a scheme marching blocks), one file per family, the registry."""

from stepnet.nets import (  # each registers its family
    densenet,
    fractalnet,
    polynet,
    resnet,
    resnext,
    revnet,
    shakeshake,
    very_deep_polynet,
)
from stepnet.nets.coefficients import coefficients
from stepnet.nets.registry import create_model, list_models, model_entry, register_model
from stepnet.nets.residual import Backbone, Network, ResidualNetwork
from stepnet.nets.stage import Stage, Transition

__all__ = [
    "Backbone",
    "Network",
    "ResidualNetwork",
    "Stage",
    "Transition",
    "coefficients",
    "create_model",
    "densenet",
    "fractalnet",
    "list_models",
    "model_entry",
    "polynet",
    "register_model",
    "resnet",
    "resnext",
    "revnet",
    "shakeshake",
    "very_deep_polynet",
]
