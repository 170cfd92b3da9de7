"""What the tests of training share."""

from training.made_runs import write_run

__all__ = ["write_run"]
