"""Training: recipes as data, the loop, checkpoints, evaluation and comparison.

recipes     the paper's recipes and a fast one          loop         the training loop
config      what a run is made of                       trainer      the objects of a run
tasks       loss, sums and metrics                      trial        trial passes before the first step
build       from a config to network and optimiser      callbacks    called after each step and epoch
run         the run's folder, modules of --import       scores       losses and metrics, summed on the device
checkpoint  the state to resume from                    saving       when a run is saved, how it stops
evaluation  test metrics of a model, errors by class    processes    communication between processes
comparison  several models, seeds, depths               sharding     a network divided over processes (FSDP2)
histories   metrics of finished epochs                  machine      memory, cores, precision, torch.compile
entry       stepnet.train                               levels       multilevel training
display     progress on a terminal                      mixing       RandAugment, mixup, cutmix
notebook    progress in a notebook                      describe     descriptions of a run
depth_transfer  a recipe tuned on a shallow network, for a deep one
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
