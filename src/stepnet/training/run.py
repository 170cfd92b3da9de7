"""The folder of a run, and the user modules that it needs.

config.yaml          the settings                  metrics.jsonl       one line for each epoch
environment.yaml     machine, versions, command    last.safetensors    the checkpoint to resume from
.lock                locked during training        best.safetensors    the network after its best epoch
                                                   model.safetensors   the network after its last epoch
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NotRequired

import yaml
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

import stepnet
from stepnet.arguments import CountFromZero, checked
from stepnet.data import data_root
from stepnet.errors import UserError, counted, first_line
from stepnet.escaping import for_terminal
from stepnet.files import LAST, LOCK, MODEL, atomic_file, read_file, sweep, try_lock
from stepnet.schema import LARGEST, read_as, read_yaml
from stepnet.training.config import FINGERPRINTS, TrainConfig
from stepnet.training.tasks import TaskRecord

if TYPE_CHECKING:
    from stepnet.training.checkpoint import Progress

EpochMetrics = dict[str, Any]  # a line of metrics.jsonl: the fields of `EveryRun`, and the metrics of the task


class EveryRun(TypedDict):
    """The fields of a line for every task; `k` by layer, one number or one for each channel."""

    epoch: CountFromZero
    loss: float
    test_loss: float
    lr: float
    seconds: float
    k: dict[str, float | list[float]]
    stopped: NotRequired[bool]  # by a callback, after this epoch
    depth: NotRequired[CountFromZero]  # of the level


class Environment(TypedDict):
    """The machine and versions of a run; `earlier` lists those of earlier parts of the run that differ."""

    command: str
    processes: int
    stepnet: str
    revision: str
    python: str
    torch: str
    machine: str
    device: str
    earlier: NotRequired[list[dict[str, Any]]]


class Run:
    """The folder of one run."""

    @checked
    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = folder = Path(folder)
        self.config_file, self.metrics_file = folder / "config.yaml", folder / "metrics.jsonl"
        self.class_errors_file = folder / "class_errors.json"  # of `stepnet evaluate RUN --classes`
        self.environment_file = folder / "environment.yaml"
        self.last, self.model, self.best = folder / LAST, folder / MODEL, folder / "best.safetensors"

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    def _repr_html_(self) -> str | None:
        """Return the metrics of the last epoch and the curves so far, for a notebook."""
        from stepnet.training.notebook import run_as_html

        try:
            config, lines = self.config, self.metrics()
        except UserError:  # no run, or a damaged one: shown by its repr
            return None
        scheme = f":{config.scheme}" if config.scheme else ""
        about = f"{config.model}{scheme} on {config.data}, seed {config.seed}"
        return run_as_html(str(self.folder), about, lines, config.recipe.epochs, self.task)

    @property
    def config(self) -> TrainConfig:
        """The settings of the run."""
        if not self.config_file.exists():
            raise UserError(f"{self.folder} is not a run: it has no config.yaml")
        return TrainConfig.read(self.config_file)

    @property
    def task(self) -> TaskRecord:
        """The record of the task in the config; classification if there is none."""
        return (self.config.task if self.config_file.exists() else None) or TaskRecord()

    def open(self, config: TrainConfig, resume: bool, overwrite: bool = False) -> IO[bytes]:
        """Create the folder, or open the run of the same config in it; lock it until the returned handle is closed.

        Another run in the folder is replaced if it has not finished an epoch, or with `overwrite`.
        """
        known = self.config_file.exists()
        if not known and self.folder.exists() and self._holds_something_else():
            raise UserError(f"{self.folder} exists and is not a run: name another --out")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = try_lock(self.folder)
        except OSError as error:
            raise UserError(f"cannot write to {self.folder}: {error.strerror}") from None
        if lock is None:
            raise UserError(f"{self.folder} is in use by another process: wait until it ends, or name another --out")
        if known and (overwrite or self._is_replaced(config, resume)):
            self._clear()
        elif known:  # keep the fingerprints of the run's start
            began = self.config
            config = dataclasses.replace(config, **{name: getattr(began, name) for name in FINGERPRINTS})
        sweep(self.folder)
        config.write(self.config_file)
        return lock

    def _holds_something_else(self) -> bool:
        return not self.folder.is_dir() or bool({path.name for path in self.folder.iterdir()} - {LOCK})

    def _is_replaced(self, config: TrainConfig, resume: bool) -> bool:
        """Whether to replace the run in the folder, which has finished no epoch; raise if it has and is another run."""
        differences = self.config.differences(config)
        if (differences or not resume) and not self.metrics():
            return True
        if differences:
            more = config.recipe.epochs > self.config.recipe.epochs
            warm = " with warm-up" if config.recipe.warmup and config.recipe.schedule == "constant" else ""
            schedule = f"the schedule {config.recipe.schedule!r}{warm}"
            why = f"; with more epochs, {schedule} has other learning rates from the start" if more else ""
            further = f" (with --weights {self.folder} it starts from these weights)" if more else ""
            raise UserError(
                f"{self.folder} holds another run: {differences[0]}{why}; name another --out{further}, or replace it "
                "with --overwrite"
            )
        if not resume:
            raise UserError(f"{self.folder} already holds a run: name another --out, or replace it with --overwrite")
        return False

    def _clear(self) -> None:
        """Remove the files of the run in the folder, and no others."""
        described = (self.config_file, self.metrics_file, self.environment_file, self.class_errors_file)
        for path in (*described, self.last, self.best, self.model):
            path.unlink(missing_ok=True)

    def record_environment(self) -> None:
        """Write the machine and versions, and keep those of earlier parts of the run that differ."""
        here: dict[str, Any] = {**environment()}
        if self.environment_file.exists():
            before = {**self.recorded_environment()}
            earlier = before.pop("earlier", [])
            here["earlier"] = [*earlier, *([] if before == here else [before])]  # type: ignore[misc]
        with atomic_file(self.environment_file) as partial:
            partial.write_text(yaml.safe_dump({k: v for k, v in here.items() if v != []}, sort_keys=False))

    def recorded_environment(self) -> Environment:
        """Read what `record_environment` wrote."""
        what = f"{self.environment_file}: not the environment of a stepnet run"
        return read_as(Environment, read_yaml(self.environment_file, what), what)

    def metrics(self) -> list[EpochMetrics]:
        """Return the metrics of the epochs so far, without an incomplete last line."""
        if not self.metrics_file.exists():
            return []
        lines = read_file(self.metrics_file, LARGEST).decode(errors="replace").splitlines()
        task, epochs = self.task, []
        for number, line in enumerate(lines):
            what = f"{self.metrics_file} is damaged in line {number + 1}"
            try:
                epochs.append(_read_line(json.loads(line), task, what))
            except (ValueError, RecursionError) as error:
                if number < len(lines) - 1:
                    raise error if isinstance(error, UserError) else UserError(f"{what}: {error}") from None
        return epochs

    def finished(self) -> list[EpochMetrics]:
        """Return the metrics of the epochs; raise if none is finished."""
        epochs = self.metrics()
        if not epochs:
            raise UserError(
                f"{self.folder}: no epoch of this run is finished yet; resume it by the command that began it"
            )
        return epochs

    def kept_metrics(self, progress: Progress) -> list[EpochMetrics]:
        """Return the metrics of the epochs that the checkpoint counts as done; raise if they do not fit it."""
        kept = [line for line in self.metrics() if line["epoch"] < progress.epoch]
        if [line["epoch"] for line in kept] != list(range(progress.epoch)):
            epochs = counted(progress.epoch, "epoch")
            raise UserError(f"{self.metrics_file} does not hold the {epochs} that {self.last} counts as done")
        task = self.task
        best = task.metric.best([task.choice(line) for line in kept]) if kept else None
        if best != progress.best:
            raise UserError(f"{self.last} is damaged: it says {progress.best} at best, and {self.metrics_file} {best}")
        return kept

    def cut_metrics(self, progress: Progress) -> None:
        """Drop the metrics of epochs after the checkpoint, which will run again."""
        kept = self.kept_metrics(progress)
        with atomic_file(self.metrics_file) as partial:
            partial.write_text("".join(json.dumps(line) + "\n" for line in kept))

    def check_still_there(self) -> None:
        """Raise if the folder was removed during the run."""
        if not self.config_file.exists():
            raise UserError(f"{self.folder} was removed during the run: start the run again")

    def append_metrics(self, line: EpochMetrics) -> None:
        """Append the metrics of an epoch; they are on disk before the checkpoint that counts the epoch as done."""
        self.check_still_there()
        try:
            with self.metrics_file.open("a") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise UserError(f"cannot write {self.metrics_file}: {error.strerror}; {self.last} is untouched") from None


def _read_line(values: Any, task: TaskRecord, what: str) -> EpochMetrics:
    """Validate an untrusted line; metrics other than the task's first one may be missing."""
    line: EpochMetrics = {**read_as(EveryRun, values, what)}
    numbers = {name: value for name, value in values.items() if name not in line and not isinstance(value, bool)}
    needed = {name: values.get(name) for name in (f"test_{task.metric.name}", task.speed)}
    return line | read_as(dict[str, float], numbers | needed, what)


def environment() -> Environment:
    """Return the command, versions of the code, and the machine."""
    import torch  # not above: a report reads runs without it

    program = Path(sys.argv[0]).name.replace("cli.py", "stepnet")  # under a launcher: -m stepnet.cli
    threads = counted(torch.get_num_threads(), "thread")
    return {
        "command": for_terminal(shlex.join([program, *sys.argv[1:]])),
        "processes": int(os.environ.get("WORLD_SIZE", 1)),
        "stepnet": stepnet.__version__,
        "revision": git_revision(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "machine": f"{platform.machine()}, {counted(os.cpu_count() or 1, 'core')}, {threads}",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


def git_revision() -> str:
    """Return the commit of the running code, with `-dirty` if files differ from it; `unknown` outside a checkout."""
    return _revision_of(Path(__file__).parent)


@functools.cache  # the code that runs stays the same, whatever is committed meanwhile
def _revision_of(folder: Path) -> str:
    # Not `describe --dirty`: it locks the index, so that a commit at the same time fails.
    git = ["git", "--no-optional-locks", "-C", str(folder)]
    commands = ([*git, "rev-parse", "--short=12", "HEAD"], [*git, "status", "--porcelain", "--untracked-files=no"])
    try:
        revision, changes = (
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{revision}-dirty" if changes else revision


# User modules are imported for a run that names them (`--import`), and again when a run of this machine is opened. The
# config of a run names its modules, and anybody may have written it: opening an untrusted run must not execute code.
# The modules of runs trained on this machine are therefore recorded in the data folder, outside of the run; those of
# other runs must be named by --import.


def import_modules(names: Sequence[str]) -> None:
    """Import modules by name, also from the working directory."""
    if names and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # a module may raise anything
            raise UserError(f"cannot import {name!r}: {type(error).__name__}: {first_line(error)}") from error


def remember_imports(run: Run, names: Sequence[str]) -> None:
    """Record that this machine trained the run with these modules."""
    if names:
        with atomic_file(_record(run)) as partial:
            partial.write_text("\n".join(names))


def import_modules_of(path: str, named: Sequence[str] = ()) -> None:
    """Import the named modules, and those that a run was trained with if that was on this machine."""
    import_modules(named)
    run = Run(Path(path))
    names = run.config.imports if run.config_file.is_file() else ()
    if not names or set(names) <= set(named):
        return
    record = _record(run)
    if not record.is_file() or record.read_text().split("\n") != list(names):
        raise UserError(
            f"{path} was trained elsewhere with user modules: if you trust them, add --import {' '.join(names)}"
        )
    import_modules(names)


def _record(run: Run) -> Path:
    name = hashlib.sha256(os.fsencode(run.folder.resolve())).hexdigest()[:32]
    return data_root() / "imports" / name
