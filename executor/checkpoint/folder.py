"""A folder of checkpoints: each in a folder of its own, there whole or not at all.

    out/checkpoints/
        latest                     text: mini-batch-000300
        mini-batch-000200/         the files of one checkpoint (`executor.checkpoint.files`)
        mini-batch-000300/
        .partial.1234.mini-batch-000400/       being written; renamed when all its bytes are on the disk
        .partial.1234.mini-batch-000300.old/   made way for one of the same mini-batch; counts while its place is empty

What a killed process has left is put in order by the next that writes here.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from executor.checkpoint.files import MANIFEST, fill, to_disk
from schedir.errors import FormatError, RunError
from schedir.files import NO_ROOM, is_another, refuse_pipe, replaced_whole

LATEST = "latest"
_NAME = re.compile(r"mini-batch-(\d{6,})")
_PARTIAL = re.compile(r"\.partial\.(\d+)\.(mini-batch-\d{6,})(\.old)?")


def folder_name(mini_batch: int) -> str:
    """Return the name of the checkpoint behind so many mini-batches."""
    return f"mini-batch-{mini_batch:06d}"


def write_checkpoint(folder: Path, facts: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]) -> Path:
    """Write a checkpoint into a folder of checkpoints and return its own folder.

    `facts` are JSON and have `mini_batch`, how many mini-batches it stands behind; `tensors` are by file.

    Raises RunError where it cannot be written (a full disk); the checkpoints that are there stay as they are.
    """
    target = folder / folder_name(facts["mini_batch"])
    with _explained(target):
        folder.mkdir(parents=True, exist_ok=True)
        refuse_pipe(folder / LATEST)  # it would wait for a reader
        _remove_left_over(folder)
        partial = folder / f".partial.{os.getpid()}.{target.name}"
        old = partial.with_name(f"{partial.name}.old")
        _settle(old, target)
        try:
            fill(partial, facts, tensors)
            _take_place(partial, target, old)
        finally:
            _settle(old, target)
            _remove(partial)
        # last: whoever reads `latest` finds a folder that is whole
        with replaced_whole(folder / LATEST) as beside:
            beside.write_text(f"{target.name}\n", encoding="utf-8")
    return target


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "make room there" if error.errno in NO_ROOM else "give a folder that can be written"
        raise RunError(f"checkpoint {target} cannot be written: {reason}: {remedy}; the checkpoints before it stay") from error


def _remove_left_over(folder: Path) -> None:
    """Remove what a process that was killed has begun."""
    for path in folder.iterdir():
        match = _PARTIAL.fullmatch(path.name)
        # what has this process's own pid is left over too: in a container the next one often has that of the one before
        if match is None or is_another(int(match[1])):
            continue
        if match[3]:
            _settle(path, folder / match[2])
        else:
            _remove(path)


def _settle(old: Path, target: Path) -> None:
    """Put a checkpoint that made way back into its place, or remove it if the new one is there."""
    if target.exists():
        _remove(old)
    elif old.exists():
        old.rename(target)


def _remove(path: Path) -> None:
    """Remove a folder, or what else stands in its place, such as a link to one on another disk; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _take_place(partial: Path, target: Path, old: Path) -> None:
    """Give a folder its name; one that has the name already makes way first, to where `find_checkpoint` still finds it."""
    if target.exists():
        target.rename(old)
    partial.rename(target)
    # the old one may go (see `_settle`) only when the new name is on the disk
    to_disk(target.parent)


def remove_older(newest: Path, keep: int) -> None:
    """Remove the checkpoints beside a complete one, but for the `keep` - 1 that were written last before it.

    Nothing is removed before `newest` is whole and on the disk, and that one never: whenever this ends, one is there to go on from.
    What cannot be removed stays.
    """
    complete = {name: path for name, path in _complete(newest.parent).items() if path.name == name and path != newest}
    # by when they were written, not by their numbers: who goes on from an earlier one has later ones of before beside it
    written = sorted(complete.values(), key=lambda path: ((path / MANIFEST).stat().st_mtime_ns, path.name))
    for path in written[: max(0, len(written) - keep + 1)]:
        # first out of its place, so that no reader finds a half of it; `_remove_left_over` takes what a kill leaves
        leaving = path.with_name(f".partial.{os.getpid()}.{path.name}")
        with suppress(OSError):
            path.rename(leaving)
            _remove(leaving)


def find_checkpoint(path: Path) -> Path:
    """Return a checkpoint's folder: `path` itself, or the newest complete one in it.

    That is the one `latest` names, or one of a later mini-batch that was written after it: the process may have been killed
    between the two. Raises FormatError if there is none.
    """
    if (path / MANIFEST).is_file():
        return path
    if not path.is_dir():
        raise FormatError(f"{path}: no such folder: give a checkpoint, or a folder of them")
    complete = _complete(path)
    # a `latest` that is missing or broken is no reason to lose the checkpoints beside it
    with suppress(OSError, UnicodeDecodeError):
        refuse_pipe(path / LATEST)
        named = (path / LATEST).read_text(encoding="utf-8").strip()
        if named in complete:
            return complete[max([named, *_written_after(path, named, complete)], key=_number)]
    if not complete:
        raise FormatError(f"{path} holds no checkpoint: give a folder with {folder_name(1)} or the like")
    return complete[max(complete, key=_number)]


def _complete(folder: Path) -> dict[str, Path]:
    """Return the checkpoints by their names: in their places, or moved away by a process killed before the new one was there."""
    found: dict[str, Path] = {}
    for path in folder.iterdir():
        moved = _PARTIAL.fullmatch(path.name)
        if not (path / MANIFEST).is_file():
            continue
        if _NAME.fullmatch(path.name):
            found[path.name] = path
        elif moved and moved[3]:
            found.setdefault(moved[2], path)
    return found


def _written_after(folder: Path, named: str, complete: Mapping[str, Path]) -> Iterator[str]:
    since = (folder / LATEST).stat().st_mtime_ns
    for name, path in complete.items():
        if _number(name) > _number(named) and (path / MANIFEST).stat().st_mtime_ns > since:
            yield name


def _number(name: str) -> int:
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else -1


def has_checkpoints(folder: Path) -> bool:
    """Tell whether a folder holds checkpoints."""
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    return any(_NAME.fullmatch(name) or (_PARTIAL.fullmatch(name) and name.endswith(".old")) for name in names)
