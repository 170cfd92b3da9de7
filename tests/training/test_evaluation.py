"""The test error of a run's checkpoint."""

import pytest
import torch
from PIL import Image

from stepnet import UserError, load
from stepnet.data import get_data
from stepnet.training import evaluate, train
from training.tiny import tiny_config


def test_a_checkpoint_has_the_error_that_its_run_measured(tmp_path):
    run = train(tiny_config(tmp_path / "run", model="tiniest", recipe={"epochs": 1, "milestones": ()}))
    evaluation = evaluate(run)
    [line] = run.metrics()
    assert evaluation.error == pytest.approx(line["test_error"]) and evaluation.epochs == 1

    data = get_data("digits")
    network = load(run.folder)
    images = torch.from_numpy(data.test.images).permute(0, 3, 1, 2).double()
    mean, std = (
        torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1)
        for values in (data.normalise.mean, data.normalise.std)
    )
    with torch.no_grad():
        guessed = network.double().eval()((images / 255 - mean) / std).argmax(1)
    wrong = (guessed != torch.from_numpy(data.test.labels)).double().mean()
    assert evaluation.error == pytest.approx(100 * wrong.item()) and evaluation.items == len(data.test)


def test_another_folder_has_its_own_share(tmp_path):
    for place in ("one/a", "one/b", "two/train/a", "two/train/b", "two/val/a", "two/val/b"):
        (tmp_path / place).mkdir(parents=True)
        for n in range(12):
            Image.new("L", (8, 8), 20 * n).save(tmp_path / place / f"{n}.png")
    recipe = {"epochs": 1, "milestones": ()}
    options = {"data": str(tmp_path / "one"), "data_root": str(tmp_path / "data"), "val_share": 0.3}
    run = train(tiny_config(tmp_path / "run", model="tiniest", recipe=recipe, **options))
    root = str(tmp_path / "data")
    assert evaluate(run, data_root=root, data=str(tmp_path / "two")).items == 24
    (tmp_path / "one").rename(tmp_path / "three")
    with pytest.raises(UserError, match="--val-share"):
        evaluate(run, data_root=root, data=str(tmp_path / "three"))
    assert 0 < evaluate(run, data_root=root, data=str(tmp_path / "three"), val_share=0.3).items < 24
