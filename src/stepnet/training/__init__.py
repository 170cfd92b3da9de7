"""Training: recipes as data, one visible loop, checkpoints that lose nothing, evaluation and comparison.

recipes     the paper's recipes and a fast one          loop         the training loop
config      what a run is made of                       checkpoint   one safetensors file
run         the run's folder                            signals, precision, build, display
"""

from stepnet.training.compare import Comparison, compare
from stepnet.training.config import TrainConfig
from stepnet.training.evaluate import Evaluation, evaluate, load_network
from stepnet.training.loop import Watcher, train
from stepnet.training.recipes import RECIPES, Recipe, get_recipe
from stepnet.training.run import Run

__all__ = [
    "RECIPES",
    "Comparison",
    "Evaluation",
    "Recipe",
    "Run",
    "TrainConfig",
    "Watcher",
    "compare",
    "evaluate",
    "get_recipe",
    "load_network",
    "train",
]
