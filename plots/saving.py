"""Save a picture whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.figure import Figure

from schedir.errors import ArgumentError
from schedir.files import replaced_whole, unwritten

FORMATS = ("pdf", "png", "svg")
"""File types that pictures are saved as, by suffix."""


def picture_format(path: str | os.PathLike[str]) -> str:
    """Return the file type that a path's suffix names; raise ArgumentError for any that is not in `FORMATS`."""
    suffix = Path(path).suffix
    if suffix[1:].lower() not in FORMATS:
        found = f"suffix {suffix!r} is no picture's" if suffix else "there is no suffix"
        raise ArgumentError(f"picture {os.fspath(path)}: {found}: use {', '.join('.' + name for name in FORMATS)}")
    return suffix[1:].lower()


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Save a figure as its suffix says (pdf, png or svg), make missing folders, and return the path.

    The file is written beside its place and renamed, so that a failure leaves what was there before. Raises ArgumentError
    for an unknown suffix and for a place that cannot be written to.
    """
    kind, target = picture_format(path), Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replaced_whole(target) as partial:
            figure.savefig(partial, format=kind)
    except OSError as error:
        raise unwritten(f"picture {target}", error, "give a file in a folder you may write to") from error
    return target
