"""Where a network errs, against a count by hand."""

import base64
import dataclasses
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from stepnet import UserError, create_model
from stepnet.cli import main
from stepnet.data import get_data
from stepnet.report.page import report_page
from stepnet.training import ClassErrors, RunHistory, evaluate, train
from stepnet.training.evaluation import class_errors
from training.tiny import tiny_config


class Brightness(nn.Module):
    """Tells a digit by its mean brightness alone: often wrong, and never in doubt."""

    def forward(self, images):
        mean = images.mean(dim=(1, 2, 3))
        guess = (3 * mean).round().long() % 10
        return 9.0 * nn.functional.one_hot(guess, 10) + 0.01 * mean[:, None] * torch.arange(10)


def test_the_matrix_counts_each_image_once() -> None:
    network, digits = Brightness(), get_data("digits")
    result, found = class_errors(network, data=digits, mistakes=3)
    images, labels = digits.test.images, digits.test.labels
    with torch.no_grad():
        outputs = network(digits.normalise(images))
    guesses = outputs.argmax(dim=1).numpy()
    wanted = [[int(((labels == a) & (guesses == b)).sum()) for b in range(10)] for a in range(10)]
    assert [list(row) for row in found.confusion] == wanted
    assert result == evaluate(network, data=digits)
    by_hand = [100 * float((guesses[labels == a] != a).mean()) for a in range(10)]
    assert found.errors == pytest.approx(by_hand)
    sure = outputs.softmax(dim=1).max(dim=1).values.numpy() * (guesses != labels)
    assert [m.probability for m in found.mistakes] == pytest.approx(np.sort(sure)[::-1][:3].tolist())
    first = int(found.mistakes[0].image)
    assert (found.mistakes[0].label, found.mistakes[0].prediction) == (str(labels[first]), str(guesses[first]))


def test_text_has_no_errors_by_class(tmp_path) -> None:
    (tmp_path / "play.txt").write_text("To be, or not to be?\n" * 99)
    with pytest.raises(UserError, match=r"errors by class: play.txt has no labels of classes; leave out --classes"):
        class_errors(create_model("gpt1x16"), data=get_data(tmp_path / "play.txt"))


def test_wrong_predictions_are_named_with_how_often() -> None:
    confusion = ((5, 1, 0, 3), (0, 9, 0, 0), (0, 0, 0, 0), (1, 1, 1, 0))
    found = ClassErrors(1, ("1", "2", "3", "4"), (44.44, 0.0, None, 100.0), confusion, (), ())
    assert found.rows("-") == [
        ["1", "9", "44.44", "4 (3), 2 (1)"],
        ["2", "9", "0.00", "-"],
        ["3", "0", "-", "-"],
        ["4", "3", "100.00", "1 (1), 2 (1), 3 (1)"],
    ]


def test_the_command_prints_it_and_json_has_it_all(capsys) -> None:
    assert main(["evaluate", "lm_resnet20.digits", "--classes"]) == 0
    printed = capsys.readouterr().out
    assert "test error 3.33%" in printed and "confusion matrix" in printed and "most wrong" in printed
    assert main(["evaluate", "lm_resnet20.digits", "--classes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    matrix = np.array(told["confusion"])
    assert matrix.sum() == told["images"] == 300
    assert 100 * (1 - np.trace(matrix) / 300) == pytest.approx(told["error"])
    assert told["class_errors"]["3"] == pytest.approx(100 * 4 / 31) and len(told["mistakes"]) == 5


def test_a_run_keeps_it_for_its_report(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    train(tiny_config(run, model="tiniest", recipe={"epochs": 1, "milestones": ()}))
    capsys.readouterr()
    assert main(["evaluate", str(run), "--classes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    history = RunHistory.read(run)
    kept = history.class_errors
    assert [list(row) for row in kept.confusion] == told["confusion"] and kept.classes == tuple("0123456789")
    assert dict(zip(kept.classes, kept.errors, strict=True)) == pytest.approx(told["class_errors"])
    first = get_data("digits").test.images[int(kept.mistakes[0].image)]
    with Image.open(io.BytesIO(base64.b64decode(kept.pictures[0]))) as picture:
        assert np.array_equal(np.asarray(picture), first[..., 0])
    page = report_page([history])
    assert "Confusion matrix of tiniest" in page and kept.pictures[0] in page
    longer = dataclasses.replace(history, epochs=(*history.epochs, history.epochs[-1]))
    assert longer.class_errors is None and "Confusion matrix" not in report_page([longer])  # it was of another epoch
