"""What processes tell each other; alone, a process asks itself. Two are in test_distributed.py."""

import pytest
import torch

from stepnet import UserError
from stepnet.training import TrainConfig
from stepnet.training.processes import Processes
from training.tiny import tiny_config


def test_one_process_is_its_own_answer(tmp_path):
    alone = Processes(tiny_config(tmp_path))
    assert (alone.count, alone.rank, alone.is_main) == (1, 0, True)
    assert alone.sum(torch.tensor([1.0, 2.0])) == [1.0, 2.0]
    assert alone.largest([3, 0.5]) == [3, 0.5]
    assert alone.on_main(lambda: {"found": True}) == {"found": True}


@pytest.mark.parametrize("name", ["FSDP", "DeepSpeed"])
def test_a_network_in_pieces_is_refused_in_one_line(tmp_path, monkeypatch, name):
    monkeypatch.setenv(f"ACCELERATE_USE_{name.upper()}", "true")  # as `accelerate launch` sets it
    with pytest.raises(UserError, match=f"launch it without {name}"):
        Processes(tiny_config(tmp_path))


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
