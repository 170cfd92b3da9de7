"""Training: recipes as data, one visible loop, checkpoints that lose nothing, evaluation and comparison.

recipes     the paper's recipes and a fast one          loop         the training loop, top to bottom
config      what a run is made of                       trainer      the parts of a run under way
tasks       loss, sums and metrics                      callbacks    what is called as it goes on
build       from a config to network and optimiser      scores       losses and errors, summed on the device
run         the run's folder                            saving       when it is saved, how it stops
checkpoint  where to go on from                         signals      how it is asked to stop
evaluation  the test error of a model                   processes    what its processes tell each other
comparison  several models and seeds                    rendezvous   where they meet
histories   what finished epochs tell                   paired       two networks, seed by seed
entry       stepnet.train: any network, any data        compiling    torch.compile, and what to fall back on
display     what a person sees of it                    precision    what the machine can compute in
imports     modules of one's own                        notebook     the same in a notebook
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
