"""Every set of measurements, one after the other, and the page made of them.

    python benchmarks/all.py [SET …] [--skip SET …] [--quick]

Each set is a script in a process of its own, which writes its section of results/benchmarks.json when it is done or
interrupted: a stop by Ctrl-C loses the row under way. A set that fails is told, and the others go on. About twenty
minutes of a quiet machine with two cores, of which the last set, which compiles, takes the most.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

SETS = (
    *("by_hand", "lm_step", "converted", "stochastic_depth", "train_vs_script", "gpt", "commands"),
    *("memory_modes", "resident", "growth", "cpu", "input_pipeline", "reversible", "lm_compiled"),
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
    told: list[str] = []
    with suppress(KeyboardInterrupt):
        for name in options.sets or SETS:
            if name not in options.skip:
                start = time.monotonic()
                code = subprocess.run([sys.executable, HERE / f"{name}.py", *["--quick"] * options.quick]).returncode
                failed = f", failed with code {code}" if code else ""
                told.append(f"{name}: {time.monotonic() - start:.0f} s{failed}")
                print(told[-1], file=sys.stderr, flush=True)
    if not options.quick:
        subprocess.run([sys.executable, HERE / "page.py"], check=True)
    print("\n".join(told))
    return int(any("failed" in line for line in told))


if __name__ == "__main__":
    sys.exit(main())
