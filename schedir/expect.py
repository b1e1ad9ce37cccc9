"""One check for the public borders: that an argument is of the type that everything behind the border relies on."""

from __future__ import annotations

import inspect
from pathlib import Path

from schedir.errors import ArgumentError


def expect(value: object, kind: type | tuple[type, ...], name: str, *, remedy: str) -> None:
    """Raise ArgumentError, in one line with value, rule and remedy, for a value of another type (True is no integer)."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return
    wanted = " or ".join(each.__name__ for each in kinds)
    raise ArgumentError(f"{name} {shown(value)} is of type {type(value).__name__}, not {wanted}: {remedy}")


def expect_path(value: object, name: str, remedy: str) -> None:
    """Raise ArgumentError for what is no path of a file."""
    expect(value, (str, Path), name, remedy=remedy)
    if "\0" in str(value):
        raise ArgumentError(f"{name} {shown(value)} has a NUL, which no path has: {remedy}")


def expect_callable(value: object, name: str, remedy: str) -> None:
    """Raise ArgumentError for what cannot be called."""
    if not callable(value):
        raise ArgumentError(f"{name} {shown(value)} is of type {type(value).__name__}, which cannot be called: {remedy}")


def expect_function(value: object, name: str, arguments: tuple[str, ...]) -> None:
    """Raise ArgumentError for what cannot be called with these arguments, given by position; what does not tell is believed."""
    wanted = f"give a function of ({', '.join(arguments)})"
    expect_callable(value, name, wanted)
    assert callable(value)
    try:
        # a module of torch's takes anything, and hands it to its forward
        taken = inspect.signature(getattr(value, "forward", value))
    except (TypeError, ValueError):  # some that are built in have no signature
        return
    try:
        taken.bind(*arguments)
    except TypeError as error:
        raise ArgumentError(f"{name} does not take ({', '.join(arguments)}), {error}: {wanted}") from None


def kind_of(value: object) -> str:
    """Return the type of a value with its article: a list, an int."""
    return with_article(type(value).__name__)


def with_article(word: str) -> str:
    """Return a word of a program behind its article: a tuple, an Adam, an ndarray, a UserDict."""
    return f"{'an' if word.lower().startswith(('a', 'e', 'i', 'o', 'nd')) else 'a'} {word}"


def shown(value: object) -> str:
    """Return a value as one line of at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:59]}…"
