"""Compare the step times of two revisions.

    python benchmarks/revisions.py ea64464 [HEAD] [--repeats 21]

Each revision is checked out into a temporary git worktree and runs in a process of its own; the processes take
turns, one training step each, and report the processor time of the step. The baseline runs in two processes: the
A/A control. Networks: lm_resnet20, and timm's resnet18 converted to LM.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from script import RESULTS
from workers import Worker

from stepnet.timing.harness import CONTROL, Row, Seconds, interleave, print_rows, ratio, write_rows

ROOT = Path(__file__).parents[1]
NETWORKS = ("lm_resnet20", "converted resnet18")

WORKER = """
import sys, time, torch, torch.nn.functional as F
sys.path.insert(0, sys.argv[2])
from peers import declare_missing_operators
declare_missing_operators()
import stepnet
torch.set_num_threads(1)
torch.manual_seed(0)
if sys.argv[1] == "lm_resnet20":
    images, model = torch.randn(32, 3, 32, 32), stepnet.create_model("lm_resnet20")
else:
    import timm
    images = torch.randn(4, 3, 160, 160)
    model = stepnet.convert(timm.create_model("resnet18", num_classes=10), "lm", images[:1])
labels = torch.zeros(len(images), dtype=torch.long)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
print("ready", flush=True)
for _ in sys.stdin:
    start = time.process_time()
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    optimizer.step()
    print(time.process_time() - start, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", help="the baseline revision")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    with checked_out(options.before) as before, checked_out(options.after) as after:
        for network in NETWORKS:
            seconds = take_turns(network, {"before": before, CONTROL: before, "after": after}, options.repeats)
            what = f"training step, {options.after} / {options.before}, {network}"
            rows.append(Row(what, ratio(seconds, "after", "before"), control=ratio(seconds, CONTROL, "before")))
    print_rows(rows, "revisions")
    command = f"python benchmarks/revisions.py {options.before} {options.after} --repeats {options.repeats}"
    write_rows(options.out, "revisions", rows, command)


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Check out a revision into a temporary worktree."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), revision], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def take_turns(network: str, trees: dict[str, Path], repeats: int) -> Seconds:
    """Return the seconds of each step of each process, after two steps to warm up."""
    with ExitStack() as stack:
        workers = {}
        for name, tree in trees.items():
            environment = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
            arguments = [network, str(Path(__file__).parent)]
            workers[name] = stack.enter_context(Worker(WORKER, arguments, environment, tree))
        for worker in workers.values():
            worker.wait_until_ready()
        return interleave(workers, repeats, warmup=2)


if __name__ == "__main__":
    main()
