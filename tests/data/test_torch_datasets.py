import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from stepnet.data import evaluation_batches, get_data, training_batches
from stepnet.errors import UserError

Item = tuple[object, object]


class Items(Dataset[Item]):
    def __init__(self, items: list[Item]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Item:
        return self.items[index]


class Noisy(Dataset[Item]):
    """Its transform draws from all three generators."""

    classes = ("no", "yes")

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Item:
        return torch.rand(1, 4, 4) + np.random.rand() + random.random() + index, index % 2


def images_of(data: object, **options: int) -> torch.Tensor:
    return torch.cat([images for images, _ in training_batches(data, 4, seed=3, **options).epoch(1)])  # type: ignore[arg-type]


def test_float_tensors_go_in_as_they_are() -> None:
    images, labels = torch.randn(12, 3, 8, 8), torch.arange(12) % 3
    data = get_data((TensorDataset(images, labels), TensorDataset(images[:4], labels[:4])))
    assert (data.num_classes, data.in_channels, data.image_size) == (3, 3, 8)
    assert data.train.classes == ("0", "1", "2")
    found = list(evaluation_batches(data, 4).epoch())
    assert torch.equal(found[0][0], images[:4]) and found[0][1].tolist() == [0, 1, 2, 0]
    assert found[0][0].is_contiguous(memory_format=torch.channels_last)
    assert (data.normalise.mean, data.normalise.std) == ((0.0,) * 3, (1.0,) * 3)


def test_bytes_and_pil_images_are_normalised() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 5, 3), dtype=np.uint8)
    forms = (
        [(Image.fromarray(image), i % 2) for i, image in enumerate(pixels)],
        [(image, np.int64(i % 2)) for i, image in enumerate(pixels)],
        [(torch.from_numpy(image).permute(2, 0, 1), torch.tensor(i % 2)) for i, image in enumerate(pixels)],
    )
    expected = (pixels / 255 - (pixels / 255).mean((0, 1, 2))) / (pixels / 255).std((0, 1, 2))
    for form in forms:
        data = get_data((Items(form), Items(form)))  # type: ignore[arg-type]
        [(images, labels)] = evaluation_batches(data, 6).epoch()
        assert np.allclose(images.permute(0, 2, 3, 1), expected, atol=1e-5)
        assert labels.tolist() == [0, 1] * 3


def test_random_transforms_are_functions_of_the_word_and_the_generators_stay() -> None:
    data = get_data((Noisy(), Noisy()))
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[union-attr]
    whole = images_of(data)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[union-attr]
    assert torch.equal(before[0], after[0]) and before[1:] == after[1:]
    torch.manual_seed(2)
    assert torch.equal(whole, images_of(data))
    later = torch.cat([images for images, _ in training_batches(data, 4, seed=3).epoch(1, start=1)])
    assert torch.equal(whole[4:], later)
    ranks = [list(training_batches(data, 10, seed=3, rank=rank, world_size=2).epoch(1)) for rank in range(2)]
    assert torch.equal(whole, torch.cat([images for [(images, _)] in ranks]))
    assert data.train.classes == ("no", "yes")


def test_one_set_is_split_by_a_share() -> None:
    data = get_data(Subset(Noisy(), list(range(10))), val_share=0.3)
    assert len(data.train) + len(data.test) == 10 and len(data.test) >= 1
    with pytest.raises(UserError, match=r"data is one Dataset: expected \(train, test\), or the share"):
        get_data(Noisy())


class Endless(IterableDataset[Item]):
    def __iter__(self) -> Iterator[Item]:
        yield torch.zeros(1, 4, 4), 0


IMAGE = torch.zeros(1, 4, 4)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "holds no items"),
        ([(IMAGE, 1.7), (IMAGE, 0)], r"Items\[0\]: tuple of label 1.7: expected \(image, whole number\)"),
        ([(IMAGE, 0), (IMAGE, b"1")], r"Items\[1\]: tuple of label b'1'"),
        ([(IMAGE, 0), (IMAGE, True)], r"Items\[1\]: tuple of label True"),
        ([(IMAGE, torch.tensor([0, 1]))], r"Items\[0\]"),
        ([IMAGE], r"Items\[0\]"),
        ([("photo.jpg", 0)], r"Items\[0\]: an image of type str"),
        ([(torch.zeros(4), 0)], r"an image of shape \(4,\): expected \[channels, height, width\]"),
        ([(IMAGE, 0), (torch.zeros(1, 5, 5), 1)], r"Items\[1\]: an image of shape \(1, 5, 5\)"),
        ([(IMAGE, 0), (IMAGE.byte(), 1)], r"torch.uint8, the first is \(1, 4, 4\) and torch.float32"),
        (
            [(IMAGE, 0), (IMAGE, 10**9)],
            r"Items\[1\]: label 1000000000: expected the number of a class, from 0 to 99999",
        ),
        ([(IMAGE, -1), (IMAGE, 1)], "label -1: expected a whole number from 0 to 1"),
    ],
)
def test_items_that_do_not_fit_are_told_in_one_line(items: list[Item], message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        data = get_data((Items(items), Items(items)))
        list(evaluation_batches(data, 4).epoch())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("data", [Endless(), (Endless(), Endless()), 3, None, {"train": 1}, (Noisy(),)])
def test_what_cannot_be_indexed_is_told_what_cannot_be_promised(data: object) -> None:
    with pytest.raises(UserError, match=r"other data can neither be shuffled nor resumed to the bit|val_share"):
        get_data(data)  # type: ignore[arg-type]
