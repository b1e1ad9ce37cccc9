"""Text to train on without a download: the manual that Python ships for `help()`, cut into characters.

Every Python 3.11 to 3.13 carries `pydoc_data.topics`, some 450,000 characters of English prose, grammars and examples. Its
topics are joined in alphabetical order, so the same Python gives the same text, and every character has a number by its
place in the alphabet of that text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pydoc_data import topics

import torch
from torch import Tensor

from schedir.errors import ArgumentError


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """A text as numbers."""

    codes: Tensor
    """int64 (length): the place of each character in `alphabet`."""
    alphabet: str
    """The distinct characters, in the order of their code points."""

    @property
    def length(self) -> int:
        """Characters in the text."""
        return len(self.codes)

    def text(self, codes: Tensor) -> str:
        """Return the characters of some codes."""
        return "".join(self.alphabet[code] for code in codes.tolist())

    def describe(self) -> str:
        """Return the sentence that tells a reader what is trained on."""
        return f"{self.length:,} characters of Python's own manual (pydoc_data.topics), {len(self.alphabet)} distinct"


@cache
def python_manual() -> Corpus:
    """Return the text of `pydoc_data.topics`, its topics in alphabetical order with an empty line between them."""
    pages: dict[str, str] = topics.topics
    return encode("\n\n".join(pages[name] for name in sorted(pages)))


def encode(text: str) -> Corpus:
    """Return a text as numbers; raise ArgumentError if it has no characters."""
    if not text:
        raise ArgumentError("the text is empty: give at least one character")
    alphabet = "".join(sorted(set(text)))
    place = {character: code for code, character in enumerate(alphabet)}
    return Corpus(torch.tensor([place[character] for character in text]), alphabet)


def windows(corpus: Corpus, *, length: int, samples: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield mini-batches without end: the input is `samples` random windows of the text, the target the next characters.

    Both are int64 (samples, length). The same seed gives the same windows. Raises ArgumentError if the text is too short.
    """
    if corpus.length <= length:
        raise ArgumentError(f"the text has {corpus.length} characters, windows of {length} need {length + 1}: shorten them")
    return _draw(corpus.codes.unfold(0, length + 1, 1), samples, seed)


def _draw(rows: Tensor, samples: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        chosen = rows[torch.randint(len(rows), (samples,), generator=generator)]
        yield chosen[:, :-1].contiguous(), chosen[:, 1:].contiguous()
