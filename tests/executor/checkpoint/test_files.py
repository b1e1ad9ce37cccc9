"""A checkpoint that is not what was written is found, and named in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from executor.checkpoint.files import read_manifest, read_tensors
from schedir.errors import FormatError
from tests.executor.checkpoint.written import FILE, written


@pytest.mark.parametrize("name", [FILE, "checkpoint.json"])
def test_a_flipped_bit_is_found_wherever_it_is(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    data = (folder / name).read_bytes()
    for place in range(0, len(data), 7):
        (folder / name).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(FormatError, match=r"is damaged|cannot be read|is no checkpoint") as caught:
            read_tensors(folder, FILE, read_manifest(folder))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [FILE, "checkpoint.json"])
@pytest.mark.parametrize("kept", [0, 1, 20])
def test_a_truncated_file_is_found(name: str, kept: int, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / name).write_bytes((folder / name).read_bytes()[:kept])
    with pytest.raises(FormatError, match=r"is damaged|cannot be read"):
        read_tensors(folder, FILE, read_manifest(folder))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "is no checkpoint: its schema is 'list'"),
        ('{"schema": "schedir.costs/1"}', "is no checkpoint: its schema is 'schedir.costs/1', not \"schedir.checkpoint/1\""),
        ('{"schema": "schedir.checkpoint/1"}', "is damaged: it is not what was written"),
        ("\x80PK", "cannot be read"),
        ('{"schema": "schedir.checkpoint/1", "seed": NaN}', "is damaged: it is not what was written"),
        ('{"schema": "schedir.checkpoint/1", "seed": 1e999}', "is damaged: it is not what was written"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_a_foreign_file_is_named(text: str, message: str, tmp_path: Path) -> None:
    folder = written(tmp_path)
    (folder / "checkpoint.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(FormatError, match=message):
        read_manifest(folder)


def test_a_foreign_tensor_file_with_a_right_sum_is_named(tmp_path: Path) -> None:
    import hashlib

    folder = written(tmp_path)
    (folder / FILE).write_bytes(b"no tensors at all")
    sums = {"sha256": {FILE: hashlib.sha256(b"no tensors at all").hexdigest()}}
    with pytest.raises(FormatError, match="is no safetensors file"):
        read_tensors(folder, FILE, sums)
    (folder / FILE).unlink()
    with pytest.raises(FormatError, match=r"cannot be read .no such file or directory.: take another checkpoint"):
        read_tensors(folder, FILE, sums)


def test_a_manifest_without_the_sums_of_the_files_is_damaged_though_its_own_sum_is_right(tmp_path: Path) -> None:
    import hashlib

    folder = written(tmp_path)
    manifest = {"mini_batch": 300, "schema": "schedir.checkpoint/1"}
    own = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "checkpoint.json").write_text(json.dumps({**manifest, "own_sha256": own}))
    with pytest.raises(FormatError, match="is damaged: it is not what was written"):
        read_manifest(folder)


def test_looking_for_checkpoints_needs_no_torch() -> None:
    """A command finds out before seconds of loading whether there is anything to go on from."""
    code = "import sys, executor.checkpoint.folder; raise SystemExit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
