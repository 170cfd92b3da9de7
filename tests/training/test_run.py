"""The folder of a run: whose it is, what it says of its machine, and its metrics."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from stepnet import UserError
from stepnet.training import Run, run
from training.tiny import tiny_config


def test_a_folder_in_use_by_another_process_is_refused(tmp_path):
    config = tiny_config(tmp_path / "a")
    here = Run(tmp_path / "a")
    held = here.open(config, resume=True)
    before = here.config_file.stat()
    child = os.fork()
    if not child:
        try:
            here.open(config, resume=True)
        except UserError as error:
            os._exit(42 if "is in use by another process" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert here.config_file.stat() == before
    held.close()


def test_a_folder_that_another_process_has_just_made_is_not_a_strangers(tmp_path):
    (tmp_path / ".lock").touch()
    here = Run(tmp_path)
    held = here.open(tiny_config(tmp_path), resume=True)
    assert here.config == tiny_config(tmp_path)
    held.close()


def test_the_environment_of_earlier_parts_is_kept_where_it_differs(tmp_path, monkeypatch):
    here = Run(tmp_path)
    for torch_version in ("1", "1", "2", "3", "3"):
        monkeypatch.setattr(run, "environment", lambda version=torch_version: {"torch": version})
        here.record_environment()
    known = yaml.safe_load(here.environment_file.read_text())
    assert known == {"torch": "3", "earlier": [{"torch": "1"}, {"torch": "2"}]}


@pytest.mark.parametrize("content", [None, "", "- 1", "a: [", "words"])
def test_an_environment_that_is_none_is_told_in_one_line(tmp_path, content):
    here = Run(tmp_path)
    if content is not None:
        here.environment_file.write_text(content)
    with pytest.raises(UserError, match=r"^.*environment\.yaml: not the environment of a stepnet run .*$"):
        here.recorded_environment()


def test_the_environment_names_command_revision_and_processes(monkeypatch):
    monkeypatch.setattr(run.sys, "argv", ["/some/where/stepnet", "train", "a model"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    known = run.environment()
    assert known["command"] == "stepnet train 'a model'" and known["processes"] == 2
    assert {"revision", "torch", "machine", "device"} <= known.keys()


def test_a_line_that_was_cut_off_is_left_out_and_any_other_damage_named(tmp_path):
    here = Run(tmp_path)
    here.metrics_file.write_text('{"epoch": 0}\n{"epo')
    assert here.metrics() == [{"epoch": 0}]
    for damage in ('{"epo', "[]", '{"loss": 1}', "\ufffd"):
        here.metrics_file.write_text(f'{{"epoch": 0}}\n{damage}\n{{"epoch": 2}}\n')
        with pytest.raises(UserError, match=r"metrics.jsonl is damaged in line 2"):
            here.metrics()
    here.metrics_file.write_bytes(b"\xff\n\xff\n")
    with pytest.raises(UserError, match="damaged in line 1"):
        here.metrics()


@pytest.mark.parametrize("epochs", [[], [0], [0, 0, 1], [1]])
def test_metrics_that_do_not_fit_the_checkpoint_are_refused_and_kept(tmp_path, epochs):
    here = Run(tmp_path)
    text = "".join(json.dumps({"epoch": epoch}) + "\n" for epoch in epochs)
    here.metrics_file.write_text(text)
    with pytest.raises(UserError, match=r"does not hold the 2 epochs that .*last\.safetensors counts as done"):
        here.cut_metrics(2)
    assert here.metrics_file.read_text() == text


def test_a_disk_that_is_full_when_an_epoch_is_added(tmp_path):
    here = Run(tmp_path)
    here.metrics_file.symlink_to("/dev/full")
    with pytest.raises(UserError, match=r"metrics.jsonl: No space left on device; .*last\.safetensors is untouched"):
        here.append_metrics({"epoch": 0})


@pytest.mark.parametrize("content", [b"\xff\xfe", b"model: [", b"[]", b"model: tiny"])
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
    for command in (["init", "-q"], ["add", "code.py"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    os.utime(code, (1, 1))  # the index now looks out of date
    before = (tmp_path / ".git" / "index").read_bytes()
    monkeypatch.setattr(run, "__file__", str(code))
    assert len(run.git_revision()) >= 7 and not run.git_revision().endswith("dirty")
    assert (tmp_path / ".git" / "index").read_bytes() == before
