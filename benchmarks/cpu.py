"""Ways to be faster on a CPU: glibc's thresholds, fused optimisers, threads, processes, folded batch norms.

    python benchmarks/cpu.py [--repeats 9]

A training step of ResNet-20, batch 128, channels last. What a process is started with (environment, threads) is
compared between processes that take turns. Two processes of one thread train half a batch each as
DistributedDataParallel over gloo. All in wall time: on a busy machine the A/A control shows that they mean nothing.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from script import measure
from torch.fx.experimental.optimization import fuse
from workers import Worker

from stepnet import create_model
from stepnet.timing.harness import CONTROL, Row, compare, compared, interleave, ratio
from stepnet.timing.steps import batch, forward_pass, training_step

BATCH = 128
# glibc then keeps freed memory; 32 MiB is its largest threshold for mmap.
KEEP = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}
WORKER = """
import json, sys, time, torch, stepnet
from stepnet.timing.steps import batch, training_step
options = json.loads(sys.argv[1])
torch.set_num_threads(options["threads"])
torch.manual_seed(0)
images, labels = batch(options["batch"])
images = images.contiguous(memory_format=torch.channels_last)
model = stepnet.create_model("resnet20").to(memory_format=torch.channels_last)
if options["store"]:
    torch.distributed.init_process_group("gloo", "file://" + options["store"], rank=options["rank"], world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(model)
step = training_step(model, images, labels)
print("ready", flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    step()
    print(time.perf_counter() - start, flush=True)
if options["store"]:
    torch.distributed.destroy_process_group()
"""


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    size, threads = (8, 1) if quick else (BATCH, 2)
    yield from of_processes(size, threads, repeats)
    yield from of_optimizers(size, repeats)
    yield from of_folding(size, repeats)


def of_processes(size: int, threads: int, repeats: int) -> Iterator[Row]:
    with ExitStack() as stack:
        store = stack.enter_context(tempfile.TemporaryDirectory()) + "/store"
        whole = {"batch": size, "threads": threads, "store": "", "rank": 0}
        half = {"batch": size // 2, "threads": 1, "store": store}

        def start(environment: Mapping[str, str], *options: dict[str, object]) -> Callable[[], float]:
            workers = [stack.enter_context(Worker(WORKER, [json.dumps(each)], environment)) for each in options]
            for worker in workers:
                worker.wait_until_ready()

            def step() -> float:
                began = time.perf_counter()
                for worker in workers:
                    worker.begin()
                for worker in workers:
                    worker.end()
                return time.perf_counter() - began

            return step

        variants = {
            "two threads": start({}, whole),
            CONTROL: start({}, whole),
            "glibc keeps its memory (trim and mmap thresholds)": start(KEEP, whole),
            "one thread": start({}, {**whole, "threads": 1}),
            "two processes of one thread": start({}, *({**half, "rank": rank} for rank in (0, 1))),
        }
        seconds = interleave(variants, repeats, warmup=2)
    control = ratio(seconds, CONTROL, "two threads")
    for name in list(variants)[2:]:
        median = sorted(seconds[name])[len(seconds[name]) // 2]
        note = f"({size / median:.0f} images/s)"
        yield Row(
            f"training step, {name} / two threads", ratio(seconds, name, "two threads"), control=control, note=note
        )


def of_optimizers(size: int, repeats: int) -> Iterator[Row]:
    images, labels = batch(size)

    def step(**options: bool) -> Callable[[], None]:
        return training_step(create_model("resnet20"), images, labels, **options)

    variants = {"foreach": step(foreach=True), "fused": step(fused=True)}
    ratios, control = compare(variants, step(foreach=False), repeats)
    for name, over in ratios.items():
        yield Row(f"training step, SGD {name} / one loop over parameters", over, control=control)


def of_folding(size: int, repeats: int) -> Iterator[Row]:
    images, _ = batch(size)
    model = create_model("resnet20").eval()
    passes = [forward_pass(each, images) for each in (fuse(model), model)]
    yield compared("inference, batch norms folded into convolutions / not", passes, repeats)


if __name__ == "__main__":
    measure("what a CPU gains", __doc__, rows, repeats=9, threads=2)
