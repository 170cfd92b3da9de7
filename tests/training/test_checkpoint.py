import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from stepnet import UserError, create_model
from stepnet.exchange.model_description import describe_network
from stepnet.exchange.model_files import RESUME
from stepnet.tensors import checksum
from stepnet.training import checkpoint
from stepnet.training.checkpoint import Progress
from training.tiny import read_all


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.fixture
def trained():
    torch.manual_seed(0)
    model = create_model("lm_resnet20", in_channels=1)
    optimizer = sgd(model)
    model(torch.randn(4, 1, 8, 8)).sum().backward()
    optimizer.step()
    return model, optimizer


def save(path, model, optimizer, progress):
    checkpoint.save(path, checkpoint.collect(model, optimizer), progress, describe_network(model))


def header_of(path):
    with safe_open(path, framework="pt") as file:
        return file.metadata()


def forge(path, tensors, header):
    """What someone who can compute a checksum may write."""
    save_file(tensors, path, metadata=header | {"checksum": str(checksum(tensors))})


def test_a_round_trip_restores_every_bit(tmp_path, trained):
    model, optimizer = trained
    progress = Progress(3, 7, {"loss": 1 / 3, "wrong": 5.0}, seen=128, best=9.25, best_epoch=2)
    save(tmp_path / "a", model, optimizer, progress)
    other = create_model("lm_resnet20", in_channels=1)
    other_optimizer = sgd(other)
    assert checkpoint.load(tmp_path / "a", other, other_optimizer) == (progress, {})
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(optimizer.state[mine]["momentum_buffer"], other_optimizer.state[theirs]["momentum_buffer"])


def test_a_damaged_file_leaves_the_model_untouched(tmp_path, trained):
    model, optimizer = trained
    path = tmp_path / "a"
    save(path, model, optimizer, Progress())
    path.write_bytes(path.read_bytes()[:-100])
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(UserError, match="damaged or not a safetensors file"):
        checkpoint.load(path, model, optimizer)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_foreign_safetensors_file_is_told_apart(tmp_path, trained):
    save_file({"w": torch.zeros(2)}, tmp_path / "a")
    with pytest.raises(UserError, match="not the resume state of a run"):
        checkpoint.load(tmp_path / "a", *trained)


@pytest.mark.parametrize(
    "progress",
    [
        None,
        "not json",
        "[]",
        "[" * 100_000,
        *(
            json.dumps(vars(Progress()) | change)
            for change in (
                {"epoch": "1"},
                {"step": -1},
                {"more": 1},
                {"seconds": float("nan")},
                {"sums": {"loss": float("nan")}},
                {"best": 3.0},  # of no epoch
                {"best": 3.0, "best_epoch": 7},  # of one to come
            )
        ),
    ],
)
def test_a_header_that_anyone_may_have_written_is_checked(tmp_path, trained, progress):
    path = tmp_path / "a"
    save(path, *trained, Progress())
    header = header_of(path)
    header.pop("progress")
    forge(path, read_all(path), header | ({} if progress is None else {"progress": progress}))
    with pytest.raises(UserError, match="its position cannot be read"):
        checkpoint.load(path, *trained)


@pytest.mark.parametrize(
    "name",
    ["optimizer.nobody.momentum_buffer", "optimizer.stem.weight.momentum", "optimizer.stages.0.k.momentum_buffer"],
)
def test_a_state_that_fits_no_parameter_changes_nothing(tmp_path, trained, name):
    model, optimizer = trained
    path, tensors = tmp_path / "a", {f"model.{n}": t + 1 for n, t in model.state_dict().items()}
    tensors[name] = torch.zeros(1, 1, 77)
    forge(path, tensors, {"format": RESUME, "progress": json.dumps(vars(Progress()))})
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(UserError, match=f"'{name}' belongs to no parameter"):
        checkpoint.load(path, model, optimizer)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


@pytest.mark.parametrize("described", [True, False], ids=["today's file", "an old file"])
def test_a_momentum_that_got_lost_is_missed(tmp_path, trained, described):
    path = tmp_path / "a"
    save(path, *trained, Progress(epoch=1, best=9.0, best_epoch=0))
    tensors, header = read_all(path), header_of(path)
    if not described:
        header = {key: header[key] for key in ("format", "what", "progress")}
    forge(path, tensors, header)
    assert checkpoint.load(path, *trained)[0].epoch == 1
    del tensors["optimizer.head.weight.momentum_buffer"]
    forge(path, tensors, header)
    with pytest.raises(UserError, match=r"'head\.weight\.momentum_buffer' is missing"):
        checkpoint.load(path, *trained)


def test_a_parameter_that_no_gradient_reaches_has_no_momentum(tmp_path, trained):
    model, optimizer = trained
    del optimizer.state[model.head.weight]
    save(tmp_path / "a", model, optimizer, Progress(step=1))
    other = create_model("lm_resnet20", in_channels=1)
    assert checkpoint.load(tmp_path / "a", other, sgd(other))[0].step == 1


def test_another_networks_checkpoint_is_named(tmp_path, trained):
    other = create_model("resnet32", in_channels=1)
    save(tmp_path / "a", other, sgd(other), Progress())
    with pytest.raises(UserError, match="holds 'resnet32', which is another network: they differ in"):
        checkpoint.load(tmp_path / "a", *trained)
