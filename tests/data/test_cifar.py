import hashlib
import io
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepnet.data import ImageSet, cifar
from stepnet.data.cifar import CIFAR10, CIFAR100, Cifar, encode_records
from stepnet.errors import UserError
from stepnet.extras import import_extra
from stepnet.files import LOCK

RNG = np.random.default_rng(0)
SMALL = [replace(kind, train_images=10, test_images=4) for kind in (CIFAR10, CIFAR100)]
both = pytest.mark.parametrize("kind", SMALL, ids=["cifar10", "cifar100"])


def example(kind: Cifar) -> tuple[np.ndarray, np.ndarray]:
    count = kind.train_images + kind.test_images
    images = RNG.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return images, RNG.integers(0, len(kind.classes), count)


def files(kind: Cifar, images: np.ndarray, labels: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """The images that each official file holds: equal shares of the training images, then the test images."""
    cuts = np.linspace(0, kind.train_images, len(kind.train_files) + 1).astype(int).tolist()[1:]
    names = (*kind.train_files, kind.test_file)
    return list(zip(names, np.split(images, cuts), np.split(labels, cuts), strict=True))


def write_binary(kind: Cifar, root: Path, images: np.ndarray, labels: np.ndarray) -> None:
    (root / kind.binary_folder).mkdir()
    for name, some_images, some_labels in files(kind, images, labels):
        records = np.frombuffer(encode_records(some_images, some_labels), np.uint8).reshape(-1, 3073)
        superclass = np.full((len(records), kind.label_bytes - 1), 99, np.uint8)
        (root / kind.binary_folder / f"{name}.bin").write_bytes(np.hstack([superclass, records]).tobytes())


def write_pickles(kind: Cifar, root: Path, images: np.ndarray, labels: np.ndarray) -> None:
    (root / kind.pickle_folder).mkdir()
    for name, some_images, some_labels in files(kind, images, labels):
        rows = some_images.transpose(0, 3, 1, 2).reshape(-1, 3072)
        content = {b"data": rows, kind.label_key: some_labels.tolist(), b"batch_label": b"one of many"}
        pickled = pickle.dumps(content, protocol=3)
        (root / kind.pickle_folder / name).write_bytes(pickled)
        cifar.PUBLISHED_PICKLES.add(hashlib.md5(pickled).hexdigest())


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `write_pickles` writes counts as published, for one test."""
    monkeypatch.setattr(cifar, "PUBLISHED_PICKLES", set(cifar.PUBLISHED_PICKLES))


def write_npz(kind: Cifar, root: Path, images: np.ndarray, labels: np.ndarray) -> None:
    n = kind.train_images
    arrays = {"x_train": images[:n], "y_train": labels[:n, np.newaxis], "x_test": images[n:], "y_test": labels[n:]}
    np.savez_compressed(root / kind.npz, **arrays)


def write_npz_of_planes(kind: Cifar, root: Path, images: np.ndarray, labels: np.ndarray) -> None:
    write_npz(kind, root, images.transpose(0, 3, 1, 2), labels)


WRITERS = [write_binary, write_pickles, write_npz, write_npz_of_planes]


@both
@pytest.mark.parametrize("write", WRITERS)
def test_every_layout_gives_the_same_images(kind: Cifar, write: Callable[..., None], tmp_path: Path) -> None:
    images, labels = example(kind)
    write(kind, tmp_path, images, labels)
    data = cifar.load(kind, tmp_path)
    assert isinstance(data.train, ImageSet) and isinstance(data.test, ImageSet)
    assert np.array_equal(np.concatenate([data.train.images, data.test.images]), images)
    assert np.array_equal(np.concatenate([data.train.labels, data.test.labels]), labels)
    assert len(data.train) == kind.train_images
    assert data.train.augmentation.pad == 4 and data.train.augmentation.flip


def test_the_first_pixel_is_red_then_green_then_blue(tmp_path: Path) -> None:
    kind = SMALL[0]
    images, labels = example(kind)
    write_binary(kind, tmp_path, images, labels)
    record = (tmp_path / kind.binary_folder / "data_batch_1.bin").read_bytes()[:3073]
    assert record[0] == labels[0]
    assert [record[1], record[1 + 1024], record[1 + 2048]] == images[0, 0, 0].tolist()
    assert record[2] == images[0, 0, 1, 0]


def test_images_are_one_array_on_disk_memory_mapped(tmp_path: Path) -> None:
    kind = SMALL[0]
    write_binary(kind, tmp_path, *example(kind))
    data = cifar.load(kind, tmp_path)
    assert isinstance(data.train, ImageSet)
    base: object = data.train.images
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap) and base.mode == "r"
    assert sorted(path.name for path in (tmp_path / "cifar10").iterdir()) == ["images.npy", "labels.npy"]


def test_a_root_that_cannot_be_written_is_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SMALL[0]
    write_binary(kind, tmp_path, *example(kind))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cifar, "atomic_folder", refuse)
    assert len(cifar.load(kind, tmp_path).train) == 10
    assert not (tmp_path / "cifar10").exists()


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SMALL[0]
    write_binary(kind, tmp_path, *example(kind))
    before = set(tmp_path.iterdir())

    def full(path: Path, array: np.ndarray) -> None:
        path.write_bytes(b"\x93NUMPY")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(UserError, match="No space left on device"):
        cifar.load(kind, tmp_path)
    assert {path for path in tmp_path.iterdir() if path.suffix != LOCK} == before


def test_missing_data_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run `stepnet data fetch cifar10`, or put one of cifar-10-batches-bin"):
        cifar.load(CIFAR10, tmp_path)


@pytest.mark.parametrize("cut", [1, 3073])
def test_a_truncated_binary_batch_is_refused(cut: int, tmp_path: Path) -> None:
    kind = SMALL[0]
    write_binary(kind, tmp_path, *example(kind))
    path = tmp_path / kind.binary_folder / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(UserError, match="truncated" if cut == 1 else "holds 9 images"):
        cifar.load(kind, tmp_path)
    assert not (tmp_path / kind.name).exists()


@pytest.mark.parametrize("write", [write_binary, write_pickles])
def test_a_missing_batch_is_named(write: Callable[..., None], tmp_path: Path) -> None:
    kind = SMALL[0]
    write(kind, tmp_path, *example(kind))
    next(tmp_path.glob("*/data_batch_2*")).unlink()
    with pytest.raises(UserError, match="data_batch_2"):
        cifar.load(kind, tmp_path)


@both
@pytest.mark.parametrize("write", WRITERS)
def test_a_label_that_is_no_class_is_refused(kind: Cifar, write: Callable[..., None], tmp_path: Path) -> None:
    images, labels = example(kind)
    labels[3] = len(kind.classes)
    write(kind, tmp_path, images, labels)
    with pytest.raises(UserError, match=rf"holds labels from \d+ to {len(kind.classes)}: expected 0 to"):
        cifar.load(kind, tmp_path)


def test_no_pickle_but_the_published_ones_is_opened(tmp_path: Path) -> None:
    kind, marker = SMALL[0], tmp_path / "it-ran"
    write_pickles(kind, tmp_path, *example(kind))
    path = tmp_path / kind.pickle_folder / "data_batch_1"
    for content in (pickle.dumps(Marks(marker)), path.read_bytes()[:-1], b""):
        path.write_bytes(content)
        with pytest.raises(UserError, match="data_batch_1 is not the published file, and a pickle may hold any code"):
            cifar.load(kind, tmp_path)
    content = pickle.dumps({b"data": Marks(marker), b"labels": [1]})
    path.write_bytes(content)
    cifar.PUBLISHED_PICKLES.add(hashlib.md5(content).hexdigest())
    with pytest.raises(UserError, match=r"a pickle asks for .*: nothing in it was run"):
        cifar.load(kind, tmp_path)
    assert not marker.exists()


def test_the_published_pickles_are_those_of_torchvision() -> None:
    theirs = import_extra("torchvision.datasets")
    listed = [*theirs.CIFAR10.train_list, *theirs.CIFAR10.test_list, *theirs.CIFAR100.train_list]
    assert {md5 for _, md5 in [*listed, *theirs.CIFAR100.test_list]} == cifar.PUBLISHED_PICKLES


def test_broken_npz_files_are_refused(tmp_path: Path) -> None:
    kind = SMALL[0]
    path = tmp_path / kind.npz
    write_npz(kind, tmp_path, *example(kind))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"cifar10\.npz: "):
        cifar.load(kind, tmp_path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match=r"cifar10\.npz: "):
        cifar.load(kind, tmp_path)
    images, labels = np.zeros((10, 32, 32, 3), np.uint8), np.zeros(10, np.int64)
    whole = {"x_train": images, "y_train": labels, "x_test": images[:4], "y_test": labels[:4]}
    for change, message in (
        ({"x_train": images[:1].astype(float)}, "images of type float64"),
        ({"x_train": images[:, :28]}, r"images of shape \(10, 28, 32, 3\)"),
        ({"y_train": np.full(10, 1.7)}, "labels of type float64: expected whole numbers"),
        ({"y_train": np.full(10, b"1")}, r"labels of type \|S1: expected whole numbers"),
    ):
        np.savez(path, **(whole | change))
        with pytest.raises(UserError, match=message):
            cifar.load(kind, tmp_path)
    np.savez(path, images=np.zeros(3))
    with pytest.raises(UserError, match="no array x_train"):
        cifar.load(kind, tmp_path)
    assert not (tmp_path / kind.name).exists()


class Marks:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return Path(self.path).mkdir.__func__, (self.path,)  # type: ignore[attr-defined, return-value]


def test_objects_in_an_npz_are_not_unpickled(tmp_path: Path) -> None:
    kind = SMALL[0]
    marker = tmp_path / "it-ran"
    objects = np.array([Marks(marker)], dtype=object)
    np.savez(tmp_path / kind.npz, x_train=objects, y_train=objects, x_test=objects, y_test=objects)
    with pytest.raises(UserError, match="Object arrays cannot be loaded"):
        cifar.load(kind, tmp_path)
    assert not marker.exists()


def test_an_npz_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    kind = SMALL[0]
    with zipfile.ZipFile(tmp_path / kind.npz, "w", zipfile.ZIP_DEFLATED) as members:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**24,)})
        members.writestr("x_train.npy", header.getvalue() + bytes(2**24))
    with pytest.raises(UserError, match="x_train is larger than 30,720 bytes"):
        cifar.load(kind, tmp_path)


@pytest.mark.parametrize("name", ["images.npy", "labels.npy"])
def test_damaged_arrays_are_refused(name: str, tmp_path: Path) -> None:
    kind = SMALL[0]
    write_binary(kind, tmp_path, *example(kind))
    cifar.load(kind, tmp_path)
    path = tmp_path / kind.name / name
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(UserError, match=r"delete .*, and it is made again"):
        cifar.load(kind, tmp_path)


def test_arrays_of_another_size_are_refused(tmp_path: Path) -> None:
    write_binary(SMALL[0], tmp_path, *example(SMALL[0]))
    cifar.load(SMALL[0], tmp_path)
    with pytest.raises(UserError, match=r"shape \(14, 32, 32, 3\), expected uint8 \(60000, 32, 32, 3\): delete"):
        cifar.load(CIFAR10, tmp_path)


def test_the_classes_are_counted_and_sorted() -> None:
    assert len(CIFAR10.classes) == 10
    assert len(set(CIFAR100.classes)) == 100
    assert list(CIFAR100.classes) == sorted(CIFAR100.classes)
