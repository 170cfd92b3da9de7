"""`get_data`: the data set of a registered name, a folder, a text file or a torch Dataset."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from stepnet.arguments import Count, checked
from stepnet.data.datasets import DATA_SETS, Data, data_root
from stepnet.data.folders import folder_data
from stepnet.data.text import Vocabulary, read_text, text_file
from stepnet.data.torch_datasets import Indexable, data_of_datasets
from stepnet.errors import UserError, unknown
from stepnet.files import is_folder, printable

if TYPE_CHECKING:
    AnyData: TypeAlias = str | os.PathLike[str] | Data | Indexable | Sequence[Indexable]
else:
    AnyData = object  # anything else gets a longer message than a type


@checked
def get_data(
    data: AnyData,
    root: str | os.PathLike[str] | None = None,
    *,
    image_size: Count | None = None,
    val_share: float | None = None,
    of_classes: bool = True,
    context: Count | None = None,
    vocabulary: Vocabulary = "characters",
) -> Data:
    """Return the data set that `data` names or holds.

    - a name of `list_data()`, read from the folder `root` (`data_root()` by default), shrunk to `image_size` pixels;
    - a folder with a folder of images for each class, in images of `image_size` pixels (`folders`);
    - a text file, as sequences of `context` tokens of a `vocabulary` (`text`); `val_share` is its share for validation;
    - `(train, test)`, two torch Datasets or whatever has a length and gives (image, label) at an index;
    - one of them, and the share of it that is for validation;
    - a `Data`, as it is.

    Datasets hold images and the numbers of their classes; without `of_classes`, tensors of any shape and targets.
    """
    if not isinstance(data, str | os.PathLike):
        if image_size is not None:
            raise UserError(f"image_size = {image_size} is for folders: resize in the data set's own transform")
        return data if isinstance(data, Data) else data_of_datasets(data, val_share, of_classes)
    name = os.fspath(data)
    if (path := text_file(name, data_root(root))) is not None:
        if image_size is not None:
            raise UserError(f"image_size = {image_size} is for images, and {printable(name)} is text: leave it out")
        return read_text(path, context, vocabulary, val_share, name if name in DATA_SETS else None)
    if context is not None or vocabulary == "bytes":
        option = "vocabulary = 'bytes' (--tokens)" if context is None else f"context = {context}"
        raise UserError(f"{option} is for text, and data {printable(name)!r} holds images: leave it out")
    if name in DATA_SETS:
        if val_share is not None:
            raise UserError(f"val_share = {val_share}: data {name!r} has its own test set; leave val_share out")
        registered = DATA_SETS[name](data_root(root))
        return registered if image_size is None else registered.shrunk(image_size)
    folder = Path(name).expanduser()
    if not is_folder(folder):
        if os.sep in name:
            raise UserError(
                f"{printable(name)}: no such file or folder; give a folder of images, a text file, or a name of "
                "`stepnet data list`"
            )
        raise unknown("data set, file or folder", name, DATA_SETS)
    return folder_data(folder, data_root(root) / "decoded", image_size, val_share)
