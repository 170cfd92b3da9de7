"""`accelerate launch`, whose launcher imports torchvision: beside a CPU-only torch its operators are declared first."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import conftest  # noqa: F401  (declares them)

# isort: split
from accelerate.commands.launch import main

if __name__ == "__main__":
    main()
