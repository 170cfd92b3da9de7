"""What processes tell each other; alone, a process asks itself. Two are in test_distributed.py."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from stepnet import UserError, create_model
from stepnet.training import TrainConfig
from stepnet.training.machine import check_without_float64, default_device
from stepnet.training.processes import Processes, _on_cpu
from training.tiny import tiny_config


def test_one_process_is_its_own_answer(tmp_path):
    alone = Processes(tiny_config(tmp_path))
    assert (alone.count, alone.rank, alone.is_main) == (1, 0, True)
    assert alone.sum(torch.tensor([1.0, 2.0])) == [1.0, 2.0]
    assert alone.largest([3, 0.5]) == [3, 0.5]
    assert alone.on_main(lambda: {"found": True}) == {"found": True}


def test_runs_of_one_process_may_differ_in_precision(tmp_path):
    tiny = tiny_config(tmp_path)
    for precision, known in (("bf16", "bf16"), ("fp32", "no")):
        assert Processes(replace(tiny, precision=precision)).accelerator.mixed_precision == known


def test_deepspeed_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")  # as `accelerate launch` sets it
    with pytest.raises(UserError, match="launch the run without DeepSpeed"):
        Processes(tiny_config(tmp_path))


@pytest.mark.parametrize(
    ("variables", "changes", "said"),
    [
        ({"FSDP_VERSION": "1"}, {}, "FSDP version 1: launch with --fsdp_version 2"),
        ({"FSDP_OFFLOAD_PARAMS": "true"}, {}, "--fsdp_offload_params: not with FSDP"),
        ({}, {"recipe": {"ema": 0.9}}, "--ema: not with FSDP"),
        ({}, {"recipe": {"levels": (8, 14)}}, "--levels: not with FSDP"),
        ({}, {"compile": True}, "--compile: not with FSDP"),
    ],
)
def test_what_does_not_go_with_fsdp_is_refused(tmp_path, monkeypatch, variables, changes, said):
    for name, value in {"ACCELERATE_USE_FSDP": "true", **variables}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=said):
        Processes(tiny_config(tmp_path, **changes))


def test_one_process_has_the_whole_network_under_fsdp_too(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    alone = Processes(tiny_config(tmp_path))
    assert not alone.is_sharded and isinstance(alone.inference(), torch.inference_mode)


def test_what_the_main_process_refuses_is_refused(tmp_path):
    def refuse():
        raise UserError("there is a run already")

    with pytest.raises(UserError, match="there is a run already"):
        Processes(tiny_config(tmp_path)).on_main(refuse)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("gpu", "device = 'gpu': expected cpu, cuda, cuda:1 or mps"),
        ("cuda:x", "expected cpu, cuda, cuda:1 or mps"),
        ("cuda:99", "device = 'cuda:99': this machine has"),
    ],
)
def test_a_device_that_is_not_there_is_refused(device, said):
    with pytest.raises(UserError, match=said):
        Processes(TrainConfig("tiny", device=device))


def test_a_run_is_on_the_device_that_is_named():
    assert Processes(TrainConfig("tiny", device="cpu")).device.type == "cpu"


def test_apples_gpu_is_taken_where_torch_has_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not torch.backends.mps.is_available() and _on_cpu(None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert not _on_cpu(None) and _on_cpu("cpu") and default_device() == "mps"


@pytest.mark.parametrize(
    ("options", "said"),
    [({"memory": "reversible"}, "memory 'reversible' undoes sums in float64"), ({"memory": "recompute"}, None)],
)
def test_what_apples_gpus_cannot_do_is_refused(options, said):
    network = create_model("gpt2x8", scheme="leapfrog", num_classes=5, **options)
    with pytest.raises(UserError, match=said) if said else nullcontext():
        check_without_float64(network)
    with pytest.raises(UserError, match="is in float64, which Apple's GPUs do not have"):
        check_without_float64(network.double())
