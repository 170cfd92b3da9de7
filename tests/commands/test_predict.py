"""`stepnet predict`."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import stepnet
from exchange.greys import GREY
from stepnet.cli import main


@pytest.fixture
def model(tmp_path):
    torch.manual_seed(0)
    network = stepnet.create_model("lm_resnet20", in_channels=1, num_classes=3)
    stepnet.save(network, tmp_path / "m.safetensors", classes=["ant", "bee", "cat"], preprocessing=GREY)
    (tmp_path / "photos").mkdir()
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 256, (12, 9, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.png")
    return str(tmp_path / "m.safetensors")


def test_without_pictures_it_says_so(model, capsys):
    assert main(["predict", model]) == 2
    assert capsys.readouterr().err.startswith("stepnet: no images: name pictures")


def test_files_folders_and_lists(tmp_path, model, capsys, monkeypatch):
    photos = sorted(map(str, (tmp_path / "photos").iterdir()))
    assert main(["predict", model, *photos]) == 0
    by_files = capsys.readouterr().out
    lines = by_files.splitlines()
    assert lines[0] == photos[0] and lines[4] == photos[1] and len(lines) == 8
    assert sum(float(line.split()[0]) for line in lines[1:4]) == pytest.approx(100, abs=0.2)
    assert main(["predict", model, str(tmp_path / "photos")]) == 0
    assert capsys.readouterr().out == by_files
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(photos) + "\n"))
    assert main(["predict", model, "-"]) == 0
    assert capsys.readouterr().out == by_files


def test_json(tmp_path, model, capsys):
    assert main(["predict", model, str(tmp_path / "photos"), "--json", "--top", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(each["classes"]) for each in found] == [1, 1]
    assert found[0]["classes"][0]["name"] in ("ant", "bee", "cat")


def test_what_cannot_be_read_is_told_and_the_others_are_predicted(tmp_path, model, capsys):
    (tmp_path / "photos" / "1.png").write_text("no picture")
    assert main(["predict", model, str(tmp_path / "photos")]) == 2
    shown = capsys.readouterr()
    assert "0.png" in shown.out and "1.png cannot be read as an image" in shown.err
    assert shown.err.endswith("stepnet: 1 of 2 pictures could not be read\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{m}", "nowhere.png"], "stepnet: nowhere.png: no such file\n"),
        (["{m}", "{t}/empty"], "empty holds no pictures"),
        (["{m}", "x.png", "--top", "0"], "top = 0"),
        (["nowhere", "x.png"], "nowhere: no such file"),
        (["preact_resnet1202", "x.png"], "preact_resnet1202: no such file"),
        (["{t}/other.pth", "x.png"], "other.pth is damaged or not a safetensors file"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, model, capsys, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pth")
    assert main(["predict", *(word.format(m=model, t=tmp_path) for word in words)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_names_from_a_file_do_not_command_the_terminal(tmp_path, model, capsys):
    network = stepnet.load(model)
    evil = ["\x1b]0;owned\x07", "\x1b[2J\x1b[31mred", "a\rb\u202ec"]
    stepnet.save(network, tmp_path / "evil.safetensors", classes=evil)
    picture = tmp_path / "photos" / "\x1b[2J\udcff.png"
    (tmp_path / "photos" / "0.png").rename(picture)
    assert main(["predict", str(tmp_path / "evil.safetensors"), str(picture)]) == 0
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    for shown in (r"\x1b]0;owned\x07", r"\x1b[2J\x1b[31mred", r"a\rb\u202ec", r"\x1b[2J\udcff.png"):
        assert shown in out
