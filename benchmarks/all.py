"""Every set of measurements, one after the other, and the page made of them.

    python benchmarks/all.py [SET …] [--skip SET …] [--quick]

Each set is a script of its own process that writes its section of results/benchmarks.json when it is done, so that a
stop loses no more than the set under way; a set that fails is told, and the others go on. For a quiet machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

SETS = (
    *("lm_step", "converted", "stochastic_depth", "train_vs_script", "commands"),
    *("memory_modes", "reversible", "growth", "cpu", "input_pipeline"),
)
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--skip", nargs="+", default=[], metavar="SET")
    parser.add_argument("--quick", action="store_true", help="try every script; nothing is written")
    options = parser.parse_args()
    if unknown := {*options.sets, *options.skip} - {*SETS}:
        parser.error(f"no set {', '.join(sorted(unknown))}: expected some of {', '.join(SETS)}")
    told = []
    for name in options.sets or SETS:
        if name not in options.skip:
            start = time.monotonic()
            code = subprocess.run([sys.executable, HERE / f"{name}.py", *["--quick"] * options.quick]).returncode
            told.append(f"{name}: {time.monotonic() - start:.0f} s" + (f", failed with code {code}" if code else ""))
            print(told[-1], file=sys.stderr, flush=True)
    if not options.quick:
        subprocess.run([sys.executable, HERE / "page.py"], check=True)
    print("\n".join(told))
    return int(any("failed" in line for line in told))


if __name__ == "__main__":
    sys.exit(main())
