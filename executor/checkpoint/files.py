"""The files of one checkpoint, checked byte for byte when they are read.

    mini-batch-000300/
        checkpoint.json          facts, the SHA-256 of the other files, and of itself without that line
        model.safetensors        tensors by name
        optimizer.safetensors

Nothing is pickled. `executor.checkpoint.folder` gives a checkpoint its place.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedir.errors import FormatError, RunError
from schedir.files import refuse_pipe

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA = "schedir.checkpoint/1"
MANIFEST = "checkpoint.json"
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP}
"""What file systems answer that cannot bring a folder to the disk; any other answer is an error."""


def fill(folder: Path, facts: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Make a folder with the files of a checkpoint, all of their bytes on the disk; raise OSError where that cannot be.

    `facts` are JSON; `tensors` are by file.
    """
    folder.mkdir()
    sums = {}
    for name, content in tensors.items():
        data = _safetensors().torch.save(dict(content))
        _write(folder / name, data)
        sums[name] = hashlib.sha256(data).hexdigest()
    manifest = {"schema": SCHEMA, **facts, "sha256": sums}
    text = json.dumps({**manifest, "own_sha256": _own_sum(manifest)}, indent=1, allow_nan=False)
    _write(folder / MANIFEST, f"{text}\n".encode())
    to_disk(folder)


def _own_sum(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def to_disk(folder: Path) -> None:
    """Bring a folder's names to the disk, on systems that have such a thing."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        # a disk that fails (EIO) must not pass for a checkpoint that is safe
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what checkpoint.json says; raise FormatError if it is not what was written."""
    path = folder / MANIFEST
    try:
        refuse_pipe(path)
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"{path} cannot be read ({_short(error)}): take another checkpoint") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        schema = found.get("schema") if isinstance(found, dict) else type(found).__name__
        raise FormatError(f'{path} is no checkpoint: its schema is {schema!r:.60}, not "{SCHEMA}"')
    if not _is_whole(found):
        raise FormatError(f"{path} is damaged: it is not what was written: take another checkpoint")
    return found


def _is_whole(manifest: dict[str, Any]) -> bool:
    """Tell whether a manifest, which loses its own sum, has the values that were written."""
    try:
        own = manifest.pop("own_sha256", None) == _own_sum(manifest)
    except (ValueError, RecursionError):
        # nan, or a number that is too large for a float: none that `fill` writes
        return False
    return own and isinstance(manifest.get("sha256"), dict)


def read_tensors(folder: Path, name: str, manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of one file; raise FormatError if it is not what was written."""
    path = folder / name
    data = _read(path)
    if hashlib.sha256(data).hexdigest() != manifest["sha256"].get(name):
        raise FormatError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}: take another checkpoint")
    safetensors = _safetensors()
    try:
        found: dict[str, Tensor] = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise FormatError(f"{path} is no safetensors file ({_short(error)}): take another checkpoint") from error
    return found


def _safetensors() -> Any:
    """Return the package; training itself does without it, so it is imported by whoever writes or reads. Raises RunError."""
    try:
        import_module("safetensors.torch")
        return import_module("safetensors")
    except ImportError as error:
        raise RunError("checkpoints need the package safetensors, which is not installed: install it") from error


def _read(path: Path) -> bytes:
    try:
        refuse_pipe(path)
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path} cannot be read ({_short(error)}): take another checkpoint") from error


def _short(error: Exception) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return " ".join(text.split())[:100].lower()
