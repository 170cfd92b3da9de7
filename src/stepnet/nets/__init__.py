"""The networks: blocks (f), stages (a scheme marching blocks), one file for each family, the registry."""

from stepnet.nets import (  # noqa: F401  (each registers its family)
    densenet,
    fractalnet,
    gpt,
    polynet,
    resnet,
    resnext,
    revnet,
    shakeshake,
    vit,
)
from stepnet.nets.blocks import UnsharedWeights as UnsharedWeights
from stepnet.nets.bounds import Bound as Bound
from stepnet.nets.bounds import BoundOption as BoundOption
from stepnet.nets.bounds import CoefficientLayout as CoefficientLayout
from stepnet.nets.bounds import initial_k as initial_k
from stepnet.nets.bounds import outermost as outermost
from stepnet.nets.carried_coefficients import GridStep as GridStep
from stepnet.nets.carried_coefficients import carried as carried
from stepnet.nets.carried_coefficients import free_k as free_k
from stepnet.nets.coarsening import Choice as Choice
from stepnet.nets.coarsening import Refit as Refit
from stepnet.nets.coarsening import coarsen_network as coarsen_network
from stepnet.nets.coarsening import count_to_drop as count_to_drop
from stepnet.nets.coarsening import refitted as refitted
from stepnet.nets.coarsening import removals as removals
from stepnet.nets.cost import Flops as Flops
from stepnet.nets.cost import on_meta as on_meta
from stepnet.nets.cost import profile as profile
from stepnet.nets.cost import saved_bytes as saved_bytes
from stepnet.nets.draws import Draw as Draw
from stepnet.nets.draws import SeededNoise as SeededNoise
from stepnet.nets.draws import compile_blocks as compile_blocks
from stepnet.nets.draws import compiled as compiled
from stepnet.nets.draws import drawn_options as drawn_options
from stepnet.nets.draws import zero_gradient as zero_gradient
from stepnet.nets.early_exit import EarlyExit as EarlyExit
from stepnet.nets.march import March as March
from stepnet.nets.march import Memory as Memory
from stepnet.nets.march import RecordedStep as RecordedStep
from stepnet.nets.march import Slopes as Slopes
from stepnet.nets.march import States as States
from stepnet.nets.march import choose_memory as choose_memory
from stepnet.nets.march import recorded as recorded
from stepnet.nets.matrix_steps import check_takes_matrices as check_takes_matrices
from stepnet.nets.mixins import InstanceMixin as InstanceMixin
from stepnet.nets.mixins import add_mixin as add_mixin
from stepnet.nets.mixins import remove_mixin as remove_mixin
from stepnet.nets.model_registry import MODELS as MODELS
from stepnet.nets.model_registry import create_model as create_model
from stepnet.nets.model_registry import list_models as list_models
from stepnet.nets.model_registry import list_pretrained as list_pretrained
from stepnet.nets.model_registry import model_entry as model_entry
from stepnet.nets.model_registry import origin_of as origin_of
from stepnet.nets.model_registry import pretrained_file as pretrained_file
from stepnet.nets.model_registry import register_family as register_family
from stepnet.nets.model_registry import register_model as register_model
from stepnet.nets.model_registry import remember_origin as remember_origin
from stepnet.nets.model_registry import split_tag as split_tag
from stepnet.nets.network import Network as Network
from stepnet.nets.network_grid import Grid as Grid
from stepnet.nets.network_grid import NetworkOnGrid as NetworkOnGrid
from stepnet.nets.network_grid import StageOnGrid as StageOnGrid
from stepnet.nets.network_grid import carried_over as carried_over
from stepnet.nets.network_grid import check_step_sizes as check_step_sizes
from stepnet.nets.network_grid import depths_of as depths_of
from stepnet.nets.network_grid import last_layers as last_layers
from stepnet.nets.network_grid import on_grid as on_grid
from stepnet.nets.network_grid import own_stages as own_stages
from stepnet.nets.network_grid import regrid as regrid
from stepnet.nets.network_grid import scale as scale
from stepnet.nets.network_grid import stage_paths as stage_paths
from stepnet.nets.network_steps import NetworkStep as NetworkStep
from stepnet.nets.network_steps import Stepped as Stepped
from stepnet.nets.network_steps import steps_by_stage as steps_by_stage
from stepnet.nets.options import StepSizes as StepSizes
from stepnet.nets.refinement import Interpolation as Interpolation
from stepnet.nets.refinement import check_refines as check_refines
from stepnet.nets.refinement import depths_at as depths_at
from stepnet.nets.refinement import refine_network as refine_network
from stepnet.nets.refinement import refined_grid as refined_grid
from stepnet.nets.replay import only_reverse_mode as only_reverse_mode
from stepnet.nets.replay import recomputed as recomputed
from stepnet.nets.residual import Backbone as Backbone
from stepnet.nets.residual import ResidualNetwork as ResidualNetwork
from stepnet.nets.residual import sizes_by_stage as sizes_by_stage
from stepnet.nets.reversible import ReversibleMarch as ReversibleMarch
from stepnet.nets.stage import Stage as Stage
from stepnet.nets.stage import check_makes_network as check_makes_network
from stepnet.nets.stage import step_sizes as step_sizes
from stepnet.nets.stage import written as written
from stepnet.nets.statistics import BUFFERS as BUFFERS
from stepnet.nets.statistics import at_evaluation as at_evaluation
from stepnet.nets.statistics import join_statistics as join_statistics
from stepnet.nets.statistics import separate_statistics as separate_statistics
from stepnet.nets.stochastic import StochasticDepth as StochasticDepth
from stepnet.nets.trajectories import KineticCost as KineticCost
from stepnet.nets.trajectories import takes_cost as takes_cost
from stepnet.nets.trajectories import training_mode as training_mode
from stepnet.nets.trajectories import trajectory as trajectory
from stepnet.nets.transitions import Coupling as Coupling
from stepnet.nets.transitions import Transition as Transition
from stepnet.nets.transitions import entry_of as entry_of
from stepnet.nets.vit import ViT as ViT
from stepnet.nets.weights import STEP_MIXING as STEP_MIXING
from stepnet.nets.weights import classifier as classifier
from stepnet.nets.weights import classifier_names as classifier_names
from stepnet.nets.weights import coefficients as coefficients
from stepnet.nets.weights import first_convolution as first_convolution
from stepnet.nets.weights import is_coefficient as is_coefficient
from stepnet.nets.weights import load_weights as load_weights
from stepnet.nets.weights import shape_of as shape_of
from stepnet.nets.weights import vectors as vectors
