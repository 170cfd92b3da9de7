"""The journey of docs/your_images.md on photos that somebody took: folder, training, errors by class, report.

Crops of scikit-learn's two photos are always there. CIFAR-10's photos are used where they have been fetched.
"""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stepnet.cli import main
from stepnet.data import get_data
from stepnet.errors import UserError

ROOT = Path(__file__).parents[1]
PHOTOS = runpy.run_path(str(ROOT / "results" / "photos.py"), run_name="photos")


def write_crops(folder: Path) -> None:
    """Crops of a photo of a temple and of one of a flower; those for validation come from another part of it."""
    sample = pytest.importorskip("sklearn.datasets").load_sample_image
    rng = np.random.default_rng(0)
    for name in ("china", "flower"):
        photo = sample(f"{name}.jpg")
        for split, left, right, count in (("train", 0, 400, 40), ("val", 400, 640, 15)):
            (folder / split / name).mkdir(parents=True)
            for n in range(count):
                x, y = rng.integers(left, right - 96), rng.integers(0, len(photo) - 96)
                crop = Image.fromarray(photo[y : y + 96, x : x + 96])
                crop.save(folder / split / name / f"{name}{n}.jpg", quality=90)


def journey(folder: Path, out: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict:
    """Train on the folder, evaluate by class, predict one image, write the report."""
    assert main(["train", "lm_resnet20", "--data", str(folder), *flags, "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(out), "--classes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    wrong = [Path(mistake["image"]) for mistake in told["mistakes"]]
    assert all(image.is_file() and image.is_relative_to(folder) for image in wrong)  # named by their files
    image = next((folder / "val").glob("*/*"))
    assert main(["predict", str(out), str(image), "--json"]) == 0
    capsys.readouterr()
    assert main(["report", str(out), "-o", str(out / "report.html")]) == 0
    page = (out / "report.html").read_text()
    assert "Confusion matrix" in page and all(path.name in page for path in wrong)
    return told


def test_from_crops_of_two_photos_to_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_crops(tmp_path / "photos")
    flags = ("--image-size", "32", "--epochs", "4", "--batch-size", "16", "--lr", "0.002")
    told = journey(tmp_path / "photos", tmp_path / "run", capsys, *flags)
    assert list(told["class_errors"]) == ["china", "flower"] and told["images"] == 30
    assert told["error"] <= 30.0


def test_from_files_of_cifar_10_to_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        get_data("cifar10")
    except UserError:
        pytest.skip("CIFAR-10 is not on this machine: stepnet data fetch cifar10")
    PHOTOS["write_folder"](tmp_path / "photos", ("dog", "horse"), train=41, validation=40)
    assert [len(list((tmp_path / "photos/train" / name).iterdir())) for name in ("dog", "horse")] == [20, 21]
    flags = ("--weights", "lm_resnet20.cifar10", "--epochs", "10", "--batch-size", "16")
    told = journey(tmp_path / "photos", tmp_path / "run", capsys, *flags)
    assert told["images"] == 40 and told["error"] < 25.0  # the weights have seen these classes, not these images


def test_the_table_of_the_page_is_what_was_measured() -> None:
    assert (ROOT / "docs" / "your_images.md").read_text() == PHOTOS["page"](), "run python results/photos.py"
