"""The folder of a run: whose it is, what it says of its machine, and its metrics."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from stepnet import UserError
from stepnet.files import sweep
from stepnet.training import Run, run
from stepnet.training.checkpoint import Progress
from training.tiny import tiny_config


def test_a_folder_in_use_by_another_process_is_refused(tmp_path):
    config = tiny_config(tmp_path / "a")
    here = Run(tmp_path / "a")
    held = here.open(config, resume=True)
    before = here.config_file.stat().st_mtime_ns
    child = os.fork()
    if not child:
        try:
            here.open(config, resume=True)
        except UserError as error:
            os._exit(42 if "is in use by another process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert here.config_file.stat().st_mtime_ns == before
    held.close()


def test_a_folder_that_another_process_has_just_made_is_not_a_strangers(tmp_path):
    (tmp_path / ".lock").touch()
    here = Run(tmp_path)
    held = here.open(tiny_config(tmp_path), resume=True)
    assert here.config == tiny_config(tmp_path)
    held.close()


def line_of(epoch, **changes):
    scores = dict.fromkeys(("loss", "error", "test_loss", "test_error", "lr", "images_per_second", "seconds"), 1.0)
    return {"epoch": epoch, **scores, "k": {}, **changes}


def write_lines(run, *epochs):
    run.metrics_file.write_text("".join(json.dumps(line_of(epoch)) + "\n" for epoch in epochs))


def test_the_environment_of_earlier_parts_is_kept_where_it_differs(tmp_path, monkeypatch):
    here, found = Run(tmp_path), run.environment()
    for torch_version in ("1", "1", "2", "3", "3"):
        monkeypatch.setattr(run, "environment", lambda version=torch_version: {**found, "torch": version})
        here.record_environment()
    known = here.recorded_environment()
    assert known["torch"] == "3" and [part["torch"] for part in known["earlier"]] == ["1", "2"]
    assert "earlier" not in known["earlier"][1]


@pytest.mark.parametrize("content", [None, "", "- 1", "a: [", "words", "torch: 2", "{" * 2000])
def test_an_environment_that_is_none_is_told_in_one_line(tmp_path, content):
    here = Run(tmp_path)
    expected = "No such file" if content is None else "not the environment of a stepnet run"
    if content is not None:
        here.environment_file.write_text(content)
    with pytest.raises(UserError, match=rf"^.*environment\.yaml: {expected}.*$"):
        here.recorded_environment()


def test_the_environment_names_command_revision_and_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for program in ("/some/where/stepnet", "/packages/stepnet/cli.py"):  # the latter under torchrun
        monkeypatch.setattr(run.sys, "argv", [program, "train", "a model"])
        known = run.environment()
        assert known["command"] == "stepnet train 'a model'" and known["processes"] == 2
    assert {"revision", "torch", "machine", "device"} <= known.keys()


def test_a_line_that_was_cut_off_is_left_out_and_any_other_damage_named(tmp_path):
    here = Run(tmp_path)
    good = json.dumps(line_of(0))
    here.metrics_file.write_text(f'{good}\n{{"epo')
    assert here.metrics() == [line_of(0)]
    for damage in ('{"epo', "[]", '{"loss": 1}', "\ufffd", good.replace("1.0", '"a"', 1), "[" * 10_000):
        here.metrics_file.write_text(f"{good}\n{damage}\n{good}\n")
        with pytest.raises(UserError, match=r"metrics.jsonl is damaged in line 2"):
            here.metrics()
    here.metrics_file.write_bytes(b"\xff\n\xff\n")
    with pytest.raises(UserError, match="damaged in line 1"):
        here.metrics()


@pytest.mark.parametrize("content", [None, "", '{"epo'])
def test_a_run_without_a_finished_epoch_says_so(tmp_path, content):
    if content is not None:
        Run(tmp_path).metrics_file.write_text(content)
    with pytest.raises(UserError, match=r": no epoch of this run is finished yet; resume it by the command"):
        Run(tmp_path).finished()


@pytest.mark.parametrize("epochs", [[], [0], [0, 0, 1], [1]])
def test_metrics_that_do_not_fit_the_checkpoint_are_refused_and_kept(tmp_path, epochs):
    here = Run(tmp_path)
    write_lines(here, *epochs)
    text = here.metrics_file.read_text()
    with pytest.raises(UserError, match=r"does not hold the 2 epochs that .*last\.safetensors counts as done"):
        here.cut_metrics(Progress(epoch=2, best=1.0))
    assert here.metrics_file.read_text() == text


def test_a_best_error_that_no_epoch_had_is_refused(tmp_path):
    here = Run(tmp_path)
    write_lines(here, 0, 1)
    here.cut_metrics(Progress(epoch=2, best=1.0))
    with pytest.raises(UserError, match=r"last\.safetensors is damaged: it says 0.5 at best, and .* 1.0"):
        here.cut_metrics(Progress(epoch=2, best=0.5))


def test_a_disk_that_is_full_when_an_epoch_is_added(tmp_path):
    here = Run(tmp_path)
    here.config_file.touch()
    here.metrics_file.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"metrics.jsonl: No space left on device; .*last\.safetensors is untouched"):
        here.append_metrics(line_of(0))


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"model: [", b"[]", b"data: digits", b"model: 3", b"model: tiny\nmodell: tiny"]
)
def test_a_config_that_is_none_is_told_in_a_line(tmp_path, content):
    here = Run(tmp_path)
    here.config_file.write_bytes(content)
    with pytest.raises(UserError, match=r"config\.yaml: not the config of a stepnet run"):
        print(here.config)


def test_the_revision_is_read_without_writing_the_index_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git describe --dirty` refreshes the index unless told not to, and a commit made meanwhile fails on its lock."""
    code = tmp_path / "code.py"
    code.touch()
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    plain = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}  # no hooks, no signatures
    for command in (["init", "-q"], ["add", "code.py"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True, env=plain)
    os.utime(code, (1, 1))  # the index now looks out of date
    before = (tmp_path / ".git" / "index").read_bytes()
    monkeypatch.setattr(run, "__file__", str(code))
    assert len(run.git_revision()) >= 7 and not run.git_revision().endswith("dirty")
    assert (tmp_path / ".git" / "index").read_bytes() == before
    began = run.git_revision()
    code.write_text("changed while it runs")
    assert run.git_revision() == began


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"precision": "int4"}, "precision = 'int4': expected 'fp32', 'bf16' or 'fp16'"),
        ({"seed": 1.5}, "seed = 1.5: expected a whole number"),
        ({"compile": "yes"}, "compile = 'yes': expected True or False"),
        (
            {"recipe": {"schedule": "zzz"}},
            "recipe.schedule = 'zzz': expected 'steps', 'one_cycle', 'cosine' or 'constant'",
        ),
        ({"recipe": {"epochs": float("inf")}}, "recipe.epochs = inf: expected a whole number"),
        ({"recipe": {"lr": -1.0}}, "recipe.lr = -1.0: expected more than 0"),
        ({"recipe": {"momentum": 0.0, "nesterov": True}}, "nesterov = True: expected momentum with it"),
        ({"seed": 10**30}, f"seed = {10**30}: expected {2**63 - 1} or less"),
    ],
    ids=str,
)
def test_a_value_of_a_wrong_type_or_an_unknown_word_is_named(tmp_path, change, said):
    here = Run(tmp_path)
    here.config_file.write_text(yaml.safe_dump({"model": "tiny"} | change))
    with pytest.raises(UserError) as refused:
        print(here.config)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_what_a_killed_write_left_is_swept_at_the_next_start(tmp_path):
    here = Run(tmp_path / "a")
    here.open(tiny_config(tmp_path / "a"), resume=True).close()
    (here.folder / ".tmpAbC123").touch()
    here.open(tiny_config(tmp_path / "a"), resume=True).close()
    assert {path.name for path in here.folder.iterdir()} == {"config.yaml", ".lock"}


def test_safetensors_writes_to_a_name_that_is_swept(tmp_path):
    """Whatever it is asked to write to: killed, it stays, of full size."""
    child = os.fork()
    if not child:
        while True:
            save_file({"weights": torch.zeros(8_000_000)}, tmp_path / "weights")
    until, left = time.monotonic() + 60, []
    while not left and time.monotonic() < until:
        left = [path for path in tmp_path.iterdir() if path.name != "weights"]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert left, "the write was not seen"
    left[0].touch()  # it may have been renamed between the look and the kill
    sweep(tmp_path)
    assert not left[0].exists()


def test_a_run_without_a_finished_epoch_gives_way_and_any_other_to_overwrite(tmp_path):
    here, config, other = Run(tmp_path / "a"), tiny_config(tmp_path / "a"), tiny_config(tmp_path / "a", seed=1)
    here.open(config, resume=True).close()
    here.last.write_bytes(b"of a run that diverged")
    here.open(other, resume=True).close()
    assert here.config == other and not here.last.exists()
    write_lines(here, 0)
    (here.folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"seed = 1 there, 0 here; name another --out, or replace it with --overwrite"):
        here.open(config, resume=True)
    here.open(config, resume=True, overwrite=True).close()
    assert here.config == config and here.metrics() == [] and (here.folder / "notes.txt").exists()
