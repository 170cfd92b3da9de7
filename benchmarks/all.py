"""Run all benchmarks one after the other, and make their page.

    python benchmarks/all.py [SET …] [--skip SET …] [--quick]

Each set is a script in a process of its own, which writes its section of results/benchmarks.json when it is done or
interrupted: a stop by Ctrl-C loses the current row. A set that fails is reported, and the others still run. About
twenty minutes on an idle machine with two cores; the last set, which compiles, takes the most.
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
    outcomes: list[str] = []
    with suppress(KeyboardInterrupt):
        for name in options.sets or SETS:
            if name not in options.skip:
                start = time.monotonic()
                code = subprocess.run([sys.executable, HERE / f"{name}.py", *["--quick"] * options.quick]).returncode
                failed = f", failed with code {code}" if code else ""
                outcomes.append(f"{name}: {time.monotonic() - start:.0f} s{failed}")
                print(outcomes[-1], file=sys.stderr, flush=True)
    if not options.quick:
        subprocess.run([sys.executable, HERE / "page.py"], check=True)
    print("\n".join(outcomes))
    return int(any("failed" in line for line in outcomes))


if __name__ == "__main__":
    sys.exit(main())
