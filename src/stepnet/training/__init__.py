"""Training: recipes as data, one visible loop, checkpoints that lose nothing, evaluation and comparison.

recipes     the paper's recipes and a fast one          loop         the training loop
config      what a run is made of                       checkpoint   one safetensors file
build       from a config to a network                  run          the run's folder
evaluation  the test error of a run                     comparison   several models and seeds
display     what a person sees of it                    precision    what the machine can compute in
signals     how it is asked to stop                     rendezvous   where its processes meet
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
