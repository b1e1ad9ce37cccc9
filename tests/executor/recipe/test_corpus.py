from __future__ import annotations

from itertools import islice
from pydoc_data import topics

import pytest
import torch

from executor.recipe.corpus import encode, python_manual, windows
from schedir.errors import ArgumentError


def test_characters_are_numbered_in_the_order_of_their_code_points() -> None:
    corpus = encode("banana")
    assert corpus.alphabet == "abn"
    assert corpus.codes.tolist() == [1, 0, 2, 0, 2, 0]
    assert corpus.text(corpus.codes) == "banana"


def test_the_manual_is_all_topics_in_alphabetical_order() -> None:
    corpus = python_manual()
    joined = sum(len(page) for page in topics.topics.values()) + 2 * (len(topics.topics) - 1)
    first, second = sorted(topics.topics)[:2]
    opening = f"{topics.topics[first]}\n\n{topics.topics[second]}"
    assert corpus.length == joined
    assert corpus.length > 400_000
    assert corpus.text(corpus.codes[: len(opening)]) == opening


def test_its_length_is_told_to_the_reader() -> None:
    assert f"{python_manual().length:,} characters" in python_manual().describe()


def test_the_target_is_the_input_moved_by_one_character() -> None:
    inputs, target = next(windows(encode("abcdefghij"), length=4, samples=3, seed=0))
    assert inputs.shape == target.shape == (3, 4)
    assert inputs.dtype == target.dtype == torch.int64
    assert torch.equal(target, inputs + 1)


def test_windows_repeat_for_the_same_seed_and_differ_for_another() -> None:
    corpus = python_manual()

    def drawn(seed: int) -> torch.Tensor:
        return torch.stack([inputs for inputs, _ in islice(windows(corpus, length=8, samples=4, seed=seed), 3)])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert not torch.equal(drawn(1)[0], drawn(1)[1])


def test_the_last_window_reaches_the_end_of_the_text() -> None:
    inputs, target = next(windows(encode("abc"), length=2, samples=1, seed=0))
    assert (inputs.tolist(), target.tolist()) == ([[0, 1]], [[1, 2]])


def test_a_text_shorter_than_its_windows_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the text has 3 characters, windows of 3 need 4: shorten them"):
        windows(encode("abc"), length=3, samples=1, seed=0)
    with pytest.raises(ArgumentError, match="the text is empty"):
        encode("")
