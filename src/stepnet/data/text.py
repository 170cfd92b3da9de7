"""Text for language models: a file as tokens, its characters or bytes, and sequences of them.

The last tenth of the file is for validation. A training sequence begins anywhere in the rest, at a position drawn from
its random word; the sequences for validation are spread evenly over their part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stepnet.arguments import Count, checked
from stepnet.data.datasets import MOST_CLASSES, Batch, Data, Request, data_root, register_data
from stepnet.data.normalise import Normalisation
from stepnet.errors import UserError
from stepnet.files import printable, read_file

BYTES = tuple(f"0x{n:02x}" for n in range(256))  # the vocabulary of bytes; in one of characters, each names itself
CONTEXT = 64  # default number of tokens in a sequence
VALIDATION_SHARE = 0.1
MOST_TESTED = 1024  # sequences for validation
LARGEST = 2**30  # bytes of a file

Tokens = NDArray[Any]  # whole numbers
Vocabulary: TypeAlias = Literal["characters", "bytes"] | Sequence[str]


@checked
@dataclass(frozen=True, eq=False)
class Text:
    """Sequences of `context` tokens, and as targets the tokens that follow them: both int64 [B, context].

    An epoch has as many sequences as cover the tokens once, at most `most`.
    """

    tokens: Tokens
    classes: tuple[str, ...]  # the vocabulary
    context: Count
    most: Count | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.context,)

    @property
    def windows(self) -> int:
        """The number of sequences in the text without overlap, each with the token that follows it."""
        return (len(self.tokens) - 1) // self.context

    def __len__(self) -> int:
        return self.windows if self.most is None else min(self.windows, self.most)

    def starts(self, request: Request) -> NDArray[np.intp]:
        """Return the starts of the requested sequences: by their random words, or evenly spread for evaluation."""
        indices, words = request
        if words is not None:
            return (words % np.uint64(len(self.tokens) - self.context)).astype(np.intp)
        return indices * self.windows // len(self) * self.context

    def read(self, requests: Iterable[Request], normalise: Normalisation) -> Iterator[Batch]:
        import torch

        for request in requests:
            places = self.starts(request)[:, np.newaxis] + np.arange(self.context + 1)
            tokens = torch.from_numpy(self.tokens[places].astype(np.int64))
            yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def statistics(self) -> Normalisation:
        """Tokens are not normalised."""
        return Normalisation((0.0,), (1.0,))

    def hold_out(self, share: float, what: str = "the training text") -> tuple[Text, Text]:
        """Return the text without its last `share`, and that part for evaluation; no sequence has tokens of both."""
        cut = round(len(self.tokens) * (1 - share))
        shorter = min(cut, len(self.tokens) - cut)
        if shorter <= self.context:
            raise UserError(
                f"{what} holds {len(self.tokens):,} tokens, {shorter:,} in the smaller of training and validation "
                f"part: expected more than {self.context} in each; use a longer text or a shorter context"
            )
        evaluated = replace(self, tokens=self.tokens[cut:], most=MOST_TESTED)
        return replace(self, tokens=self.tokens[:cut]), evaluated


@checked
def read_text(
    path: Path,
    context: Count | None = None,
    vocabulary: Vocabulary = "characters",
    val_share: float | None = None,
    name: str | None = None,
) -> Data:
    """Read a file as a data set of its characters or bytes, or of a given vocabulary such as a model's."""
    content = read_file(path, LARGEST)
    context, share = context or CONTEXT, VALIDATION_SHARE if val_share is None else val_share
    if not 0 < share < 1:
        raise UserError(f"val_share = {share}: expected a share of the text such as 0.1")
    what = printable(path)
    if vocabulary == "bytes" or tuple(vocabulary) == BYTES:
        classes, tokens = BYTES, np.frombuffer(content, np.uint8)
    else:
        classes, tokens = _characters(content, None if isinstance(vocabulary, str) else vocabulary, what)
    train, test = Text(tokens, classes, context).hold_out(share, what)
    return Data(name or path.name, train, test, task="next_token")


def encode(text: str, classes: Sequence[str], what: str) -> NDArray[np.int64]:
    """Return the tokens of a text; raise for a character outside of the vocabulary."""
    if tuple(classes) == BYTES:
        content = text.encode(errors="surrogateescape")  # any bytes of a command line
        return np.frombuffer(content, np.uint8).astype(np.int64)
    text = _with_plain_ends(text)
    number = {character: token for token, character in enumerate(classes)}
    if strange := sorted(set(text) - number.keys()):
        raise unknown_characters(what, strange, classes)
    return np.array([number[character] for character in text], np.int64)


def _with_plain_ends(text: str) -> str:
    """Return a text whose lines end in `\\n`, as all are read by characters."""
    return text.replace("\r\n", "\n")


def unknown_characters(what: str, strange: Sequence[str], classes: Sequence[str]) -> UserError:
    """Return the error for characters outside of the vocabulary."""
    shown = " ".join(f"{character!r}" for character in strange[:5])
    more = f" and {len(strange) - 5} more" if len(strange) > 5 else ""
    known = "".join(classes)
    vocabulary = f"the model's vocabulary of {len(classes)}"
    return UserError(f"{what} has characters outside of {vocabulary}: {shown}{more}; known: {known!r}")


def _characters(content: bytes, vocabulary: Sequence[str] | None, what: str) -> tuple[tuple[str, ...], Tokens]:
    """Return the vocabulary, by default the characters of the text in the order of Unicode, and the text's tokens."""
    try:
        text = _with_plain_ends(content.decode("utf-8-sig"))  # without a byte order mark
    except UnicodeDecodeError as error:
        raise UserError(
            f"{what} is not UTF-8 at byte {error.start:,}: save it as UTF-8, or read it with --tokens bytes"
        ) from None
    points = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)
    occurs = np.zeros(0x110000, np.bool_)
    occurs[points] = True
    occurring = tuple(map(chr, np.flatnonzero(occurs)))
    if vocabulary is None and len(occurring) == 1:
        raise UserError(f"{what} holds one character, {occurring[0]!r}: expected a text of two or more")
    classes = occurring if vocabulary is None else tuple(vocabulary)
    if strange := sorted(set(occurring) - set(classes)):
        raise unknown_characters(what, strange, classes)
    if len(classes) > MOST_CLASSES:
        raise UserError(f"{what} has {len(classes):,} different characters: read it with --tokens bytes")
    numbers = np.zeros(0x110000, np.uint8 if len(classes) <= 256 else np.int32)
    numbers[[ord(character) for character in classes]] = np.arange(len(classes))
    return classes, numbers[points]


TEXTS = {"shakespeare": "shakespeare.txt"}  # texts that `stepnet data fetch` fetches: their files in the data root


def text_file(name: str, root: Path) -> Path | None:
    """Return the file of a text by name or path; None if it is neither."""
    if name in TEXTS:
        path = root / TEXTS[name]
        if not path.exists():
            raise UserError(f"{name} is not in {root}: run `stepnet data fetch {name}`")
        return path
    path = Path(name).expanduser()
    return path if is_text(name) else None


def is_text(name: str) -> bool:
    """Whether data of this name or path is text."""
    try:
        return name in TEXTS or Path(name).expanduser().is_file()
    except (OSError, ValueError):  # a name that is too long, or holds a zero byte
        return False


@register_data("shakespeare")
def shakespeare(root: Path) -> Data:
    """Return the works of Shakespeare in modern spelling, by characters."""
    path = text_file("shakespeare", data_root(root))
    assert path is not None
    return read_text(path, name="shakespeare")
