"""Training: recipes as data, one visible loop, checkpoints that lose nothing, evaluation and comparison.

recipes     the paper's recipes and a fast one          loop         the training loop
config      what a run is made of                       checkpoint   one safetensors file
build       from a config to a network                  run          the run's folder
evaluation  the test error of a run                     comparison   several models and seeds
display     what a person sees of it                    precision    what the machine can compute in
signals     how it is asked to stop                     rendezvous   where its processes meet
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepnet.lazy import lazy_names

if TYPE_CHECKING:
    from stepnet.training.comparison import Comparison, compare
    from stepnet.training.config import TrainConfig
    from stepnet.training.evaluation import Evaluation, evaluate, load_network
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

__getattr__ = lazy_names(
    __name__,
    {
        "Comparison": "stepnet.training.comparison",
        "Evaluation": "stepnet.training.evaluation",
        "RECIPES": "stepnet.training.recipes",
        "Recipe": "stepnet.training.recipes",
        "Run": "stepnet.training.run",
        "TrainConfig": "stepnet.training.config",
        "Watcher": "stepnet.training.loop",
        "compare": "stepnet.training.comparison",
        "evaluate": "stepnet.training.evaluation",
        "get_recipe": "stepnet.training.recipes",
        "load_network": "stepnet.training.evaluation",
        "train": "stepnet.training.loop",
    },
)
