"""A folder of checkpoints: each in a folder of its own, there whole or not at all.

    out/checkpoints/
        latest                     text: mini-batch-000300
        mini-batch-000200/         the files of one checkpoint (`executor.checkpoint.files`)
        mini-batch-000300/
        .partial.KEY.mini-batch-000400/        being written; renamed when all its bytes are on the disk
        .partial.KEY.mini-batch-000300.old/    made way for one of the same mini-batch; counts while its place is empty

KEY is of one writing (`schedir.partials`), so that threads, processes and machines may save into one folder. What a killed process
has left is put in order by the next that writes here, on another machine once it is a day old.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from executor.checkpoint.files import MANIFEST, fill, to_disk
from schedir.errors import FormatError, RunError
from schedir.files import NO_ROOM, refuse_pipe, replaced_whole
from schedir.partials import begun, is_left_over, written_name

if TYPE_CHECKING:
    from torch import Tensor

LATEST = "latest"
_NAME = re.compile(r"mini-batch-(\d{6,})")
_PARTIAL = re.compile(r"(mini-batch-\d{6,})(\.old)?")
"""What is written under a partial's name."""
_PLACES = threading.Lock()
"""Held while one checkpoint makes way for another of the same mini-batch, which another thread may have saved too."""


def folder_name(mini_batch: int) -> str:
    """Return the name of the checkpoint after so many mini-batches."""
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
        with begun(target) as partial:
            old = partial.with_name(f"{partial.name}.old")
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
        stays = "; the checkpoints before it stay" if has_checkpoints(target.parent) else ""
        raise RunError(f"checkpoint {target} cannot be written: {reason}: {remedy}{stays}") from error


def _remove_left_over(folder: Path) -> None:
    """Remove what a process that was killed has begun."""
    for path in folder.iterdir():
        match = _partial(path)
        if match is None or not is_left_over(path):
            continue
        if match[2]:
            _settle(path, folder / match[1])
        else:
            _remove(path)


def _partial(path: Path) -> re.Match[str] | None:
    """Return what a path's name says of a checkpoint that is not in its place; None if it is none."""
    return _PARTIAL.fullmatch(written_name(path) or "")


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
    with _PLACES:
        if target.exists():
            target.rename(old)
        partial.rename(target)
    # the old one may go (see `_settle`) only when the new name is on the disk
    to_disk(target.parent)


def remove_older(newest: Path, keep: int, *, staying: Collection[int] = ()) -> None:
    """Remove the checkpoints beside a complete one, but for the `keep` - 1 that were written last before it.

    Those behind the numbers `staying` stay too, and count among the last if they are.

    Nothing is removed before `newest` is whole and on the disk, and that one never: whenever this ends, one is there to go on from.
    What cannot be removed stays.
    """
    complete = {name: path for name, path in _complete(newest.parent).items() if path.name == name and path != newest}
    # by when they were written, not by their numbers: who goes on from an earlier one has later ones of before beside it
    written = [path for _, path in sorted(_moments(complete.values()))]
    kept = {folder_name(number) for number in staying}
    for path in written[: max(0, len(written) - keep + 1)]:
        if path.name in kept:
            continue
        # first out of its place, so that no reader finds a half of it; `_remove_left_over` takes what a kill leaves
        with begun(path) as leaving, suppress(OSError):
            path.rename(leaving)
            _remove(leaving)


def _moments(paths: Iterable[Path]) -> Iterator[tuple[int, Path]]:
    """Yield checkpoints with when they were written; another training in this folder may have removed some by now."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield (path / MANIFEST).stat().st_mtime_ns, path


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
        moved = _partial(path)
        if not (path / MANIFEST).is_file():
            continue
        if _NAME.fullmatch(path.name):
            found[path.name] = path
        elif moved and moved[2]:
            found.setdefault(moved[1], path)
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
    moved = {path: _partial(path) for path in folder.iterdir()}
    return any(_NAME.fullmatch(path.name) or (match and match[2]) for path, match in moved.items())
