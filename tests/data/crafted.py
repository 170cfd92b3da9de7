"""A corpus of crafted files, each a way in which a stranger's file has harmed some program.

    python tests/data/crafted.py FOLDER        writes all of them

`tests/data/test_crafted.py` opens each through the reader that meets such files.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

Write = Callable[[Path], object]


def bytes_of(content: bytes) -> Write:
    return lambda path: path.write_bytes(content)


def image(format: str, size: tuple[int, int] = (60, 40), **options: object) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").resize(size).save(file, format, **options)
    return file.getvalue()


def png(width: int, height: int, pixels: bytes = b"", depth: int = 8, colour: int = 2) -> bytes:
    """A PNG of the size that its header claims, whatever its content."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels, 9)) + chunk(b"IEND", b"")
    )


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n(%pipe%touch it-ran) (w) file\n%%EOF\n"

NO_IMAGES: dict[str, Write] = {
    "postscript": bytes_of(POSTSCRIPT),
    "empty": bytes_of(b""),
    "text": bytes_of(b"no image"),
    "pipe": os.mkfifo,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "folder": os.mkdir,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "sparse file of 4 GB": lambda path: (path.touch(), os.truncate(path, 2**32)),
    "gif": bytes_of(image("GIF")),
    "tiff": bytes_of(image("TIFF")),
    "pdf": bytes_of(image("PDF")),
    "dds": bytes_of(image("DDS")),
    "avif": bytes_of(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf" + bytes(200)),
    "jpeg cut off": bytes_of(image("JPEG", (200, 200), quality=95)[:-400]),
    "jpeg of a header": bytes_of(image("JPEG")[:100]),
    "png of wrong deflate": bytes_of(image("PNG").replace(b"IDATx\x9c", b"IDAT\xff\xff")),
    "png of 2^31 pixels a side": bytes_of(png(2**31 - 1, 2**31 - 1)),
    "png of no pixels": bytes_of(png(0, 10)),
    "png bomb": bytes_of(png(16000, 16000, bytes(16000 * 2001), depth=1, colour=0)),
    "webp cut off": bytes_of(image("WEBP")[:60]),
    "bmp of a size that lies": bytes_of(image("BMP")[:18] + struct.pack("<ii", 2**30, 2**30) + bytes(100)),
}

ODD_IMAGES: dict[str, Write] = {  # whole ones, which must be read without asking for more than they hold
    "1 x 60000 pixels": bytes_of(png(1, 60000, bytes(4 * 60000))),
    "60000 x 1 pixels": bytes_of(png(60000, 1, bytes(1 + 3 * 60000))),
    "1 x 1 pixel": bytes_of(png(1, 1, bytes(4))),
    "16 bits": lambda path: Image.fromarray(np.full((9, 9), 2**15, np.uint16)).save(path, "PNG"),
    "palette": lambda path: Image.linear_gradient("L").convert("P").save(path, "PNG", transparency=0),
    "cmyk": lambda path: Image.new("CMYK", (50, 40), (10, 20, 30, 40)).save(path, "JPEG"),
    "alpha": lambda path: Image.new("RGBA", (50, 40), (10, 20, 30, 40)).save(path, "WEBP"),
    "one bit": lambda path: Image.new("1", (50, 40)).save(path, "PNG"),
}


def npy(header: bytes, content: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def header_of(shape: object, descr: object = "|u1") -> bytes:
    return repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"


class Touches:
    """Whoever unpickles this writes a file."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.system, ("touch it-ran",)


NO_ARRAYS: dict[str, bytes] = {
    "empty": b"",
    "text": b"no array",
    "a shape of 10^15": npy(header_of((10**15,)), bytes(10)),
    "a negative shape": npy(header_of((-1,)), bytes(10)),
    "a shape that overflows": npy(header_of((2**40, 2**40)), bytes(10)),
    "a shape of words": npy(header_of(("a",))),
    "deep nesting": npy(b"(" * 20_000 + b")" * 20_000),
    "code in the header": npy(b"__import__('os').system('touch it-ran')"),
    "not UTF-8": npy(b"\xff\xfe{'descr'}"),
    "objects": npy(header_of((1,), "|O"), pickle.dumps([Touches()])),
    "a record": npy(header_of((1,), [("a", "|O")])),
    "version 9": b"\x93NUMPY\x09\x00" + bytes(20),
    "cut off": npy(header_of((100,)), bytes(10)),
}


def npz(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def broken_deflate() -> bytes:
    whole = bytearray(npz({"x": npy(header_of((5000,)), os.urandom(10) * 500)}))
    start = whole.index(b"x.npy") + 5
    whole[start + 20 : start + 60] = b"\xff" * 40
    return bytes(whole)


NO_ARCHIVES: dict[str, bytes] = {
    "empty": b"",
    "text": b"no archive",
    "broken deflate": broken_deflate(),
    "cut off": npz({"x": npy(header_of((10,)), bytes(10))})[:-30],
    "a bomb": npz({"x": npy(header_of((2**28,)), bytes(2**24))}),
    **{f"an array: {name}": npz({"x": content}) for name, content in NO_ARRAYS.items()},
}


def write_all(folder: Path) -> None:
    """Every file of the corpus, below a folder of its kind."""
    kinds: dict[str, dict[str, Write]] = {
        "no_images": NO_IMAGES,
        "odd_images": ODD_IMAGES,
        "no_arrays": {name: bytes_of(content) for name, content in NO_ARRAYS.items()},
        "no_archives": {name: bytes_of(content) for name, content in NO_ARCHIVES.items()},
    }
    for kind, files in kinds.items():
        (folder / kind).mkdir(parents=True)
        for name, write in files.items():
            write(folder / kind / name.replace(" ", "_").replace(":", ""))


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
