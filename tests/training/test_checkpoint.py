import json

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from stepnet import UserError, create_model
from stepnet.training import checkpoint
from stepnet.training.checkpoint import Progress
from training.tiny import read_all


@pytest.fixture
def trained():
    torch.manual_seed(0)
    model = create_model("lm_resnet20", in_channels=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.randn(4, 1, 8, 8)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_round_trip_restores_every_bit(tmp_path, trained):
    model, optimizer = trained
    progress = Progress(epoch=3, step=7, loss_sum=1 / 3, wrong=5.0, seen=128, best_error=9.25, best_epoch=2)
    checkpoint.save(tmp_path / "a", model, optimizer, progress, "lm_resnet20")
    other = create_model("lm_resnet20", in_channels=1)
    other_optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    assert checkpoint.load(tmp_path / "a", other, other_optimizer) == progress
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(optimizer.state[mine]["momentum_buffer"], other_optimizer.state[theirs]["momentum_buffer"])


def test_a_truncated_file_is_refused_and_the_model_untouched(tmp_path, trained):
    model, optimizer = trained
    path = tmp_path / "a"
    checkpoint.save(path, model, optimizer, Progress(), "x")
    path.write_bytes(path.read_bytes()[:-100])
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(UserError, match="damaged or no checkpoint"):
        checkpoint.load(path, model, optimizer)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_flipped_bit_is_found_by_the_checksum(tmp_path, trained):
    model, optimizer = trained
    path = tmp_path / "a"
    checkpoint.save(path, model, optimizer, Progress(), "x")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="checksum"):
        checkpoint.load(path, model, optimizer)


def test_a_lying_header_is_refused(tmp_path, trained):
    model, _ = trained
    header = {"model.w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}
    content = json.dumps(header).encode()
    (tmp_path / "a").write_bytes(len(content).to_bytes(8, "little") + content + b"\0" * 64)
    with pytest.raises(UserError, match="damaged or no checkpoint"):
        checkpoint.load(tmp_path / "a", model)
    (tmp_path / "b").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with pytest.raises(UserError, match="damaged or no checkpoint"):
        checkpoint.load(tmp_path / "b", model)


def test_a_pickle_is_never_executed(tmp_path, trained):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    (tmp_path / "a").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(UserError, match="damaged or no checkpoint"):
        checkpoint.load(tmp_path / "a", trained[0])
    assert not (tmp_path / "executed").exists()


def test_a_foreign_safetensors_file_is_told_apart(tmp_path, trained):
    save_file({"w": torch.zeros(2)}, tmp_path / "a")
    with pytest.raises(UserError, match="not a stepnet checkpoint"):
        checkpoint.load(tmp_path / "a", trained[0])


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (None, "does not say where the run stood"),
        ("not json", "does not say where the run stood"),
        ("[]", "does not say where the run stood"),
        (json.dumps(vars(Progress()) | {"epoch": "1"}), "does not say where the run stood"),
        (json.dumps(vars(Progress()) | {"step": -1}), "a position below zero"),
        (json.dumps(vars(Progress()) | {"more": 1}), "does not say where the run stood"),
    ],
)
def test_a_header_that_anyone_may_have_written_is_checked(tmp_path, trained, progress, said):
    path = tmp_path / "a"
    checkpoint.save(path, trained[0], None, Progress(), "x")
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    header.pop("progress")
    save_file(read_all(path), path, metadata=header | ({} if progress is None else {"progress": progress}))
    with pytest.raises(UserError, match=said):
        checkpoint.load(path, trained[0])


@pytest.mark.parametrize("name", ["optimizer.nobody.momentum_buffer", "optimizer.stages.0.k.momentum_buffer"])
def test_a_state_that_fits_no_parameter_changes_nothing(tmp_path, trained, name):
    model, optimizer = trained
    path, tensors = tmp_path / "a", {f"model.{n}": t + 1 for n, t in model.state_dict().items()}
    tensors[name] = torch.zeros(1, 1, 77)
    header = {"format": checkpoint.FORMAT, "progress": json.dumps(vars(Progress()))}
    save_file(tensors, path, metadata=header | {"checksum": str(checkpoint._checksum(tensors))})
    before = {n: t.clone() for n, t in model.state_dict().items()}
    with pytest.raises(UserError, match=f"'{name}' is the optimiser's state of no parameter"):
        checkpoint.load(path, model, optimizer)
    assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items())


def test_another_networks_checkpoint_is_named(tmp_path, trained):
    checkpoint.save(tmp_path / "a", create_model("resnet32", in_channels=1), None, Progress(), "resnet32")
    with pytest.raises(UserError, match="holds 'resnet32', which is another network: they differ in"):
        checkpoint.load(tmp_path / "a", trained[0])


@pytest.mark.parametrize("kind", [OSError, SafetensorError])
def test_a_full_disk_leaves_the_earlier_checkpoint(tmp_path, trained, monkeypatch, kind):
    model, optimizer = trained
    path = tmp_path / "a"
    checkpoint.save(path, model, optimizer, Progress(epoch=1), "x")
    before = read_all(path)

    def full(tensors, partial, metadata):
        partial.write_bytes(b"half")
        raise kind("I/O error: No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(UserError, match="No space left on device; the one before it is untouched"):
        checkpoint.save(path, model, optimizer, Progress(epoch=2), "x")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    after = read_all(path)
    assert all(torch.equal(after[name], before[name]) for name in before)
