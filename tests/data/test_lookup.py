from pathlib import Path

import pytest

from data.photographs import write_photos
from stepnet.data import get_data
from stepnet.errors import UserError


def test_a_name_a_folder_and_a_data_set_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = get_data("digits")
    assert get_data(digits) is digits
    write_photos(tmp_path / "flowers", size=(20, 20))
    for name in (tmp_path / "flowers", str(tmp_path / "flowers")):
        assert get_data(name, tmp_path / "root").name == "flowers"
    monkeypatch.chdir(tmp_path)
    assert get_data("flowers", tmp_path / "root", image_size=16).image_size == 16


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifar1O", {}, "unknown data set, file or folder 'cifar1O': did you mean 'cifar10'"),
        ("no/such/folder", {}, "no/such/folder: no such file or folder; give a folder of images"),
        ("n" * 300, {}, "unknown data set, file or folder"),
        ("/" + "n" * 300, {}, "no such file or folder"),
        ("zero\0byte", {}, "unknown data set, file or folder"),
        ("digits", {"image_size": 32}, "image_size = 32 for images of 8x8: expected a divisor of their size"),
        ("digits", {"val_share": 0.1}, "data 'digits' has its own test set"),
        ("digits", {"image_size": 0}, "image_size = 0: expected 1 or more"),
        ("digits", {"image_size": 1.5}, "image_size = 1.5: expected a whole number"),
    ],
)
def test_mistakes_are_told(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        get_data(name, **options)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
