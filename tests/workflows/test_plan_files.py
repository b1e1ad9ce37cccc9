"""Plan files, as `schedir plan` will write them."""

import re
from pathlib import Path

import pytest

from schedir.errors import FormatError, RefusedError, SchedirError
from schedir.workflows.plan_files import COUNTS, STAGE_KEYS, TEXTS, TIMEOUT, PlannedTraining, read_plan
from tests.repository import ROOT

WHOLE = """
schema = "schedir.plan/1"
model = "llama3-70b.model.toml"
schedule = "interleaved-1f1b"
num_devices = 2
stages_per_device = 2
tensor_parallel = 1
data_parallel = 1
micro_batch_size = 1
num_micro_batches = 64
recompute = "always"
timeout = 90

[[stages]]
stage = 0
devices = [0]
layers = ["model.embed_tokens", "model.layers.0"]

[[stages]]
stage = 1
devices = [1]
layers = ["model.layers.1"]

[predicted]
seconds_per_mini_batch = 10.1
basis = "analytic"
"""


def read(folder: Path, text: str) -> PlannedTraining:
    file = folder / "my.plan.toml"
    file.write_text(text)
    return read_plan(file)


def test_a_plan_says_schedule_shape_and_where_stages_begin(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE) == PlannedTraining(
        schedule="interleaved-1f1b",
        num_devices=2,
        num_micro_batches=64,
        stages_per_device=2,
        micro_batch_size=1,
        recompute="always",
        recompute_start="early",
        timeout=90.0,
        cuts=("model.layers.1",),
    )


def test_a_plan_without_stages_leaves_the_cuts_open(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE.partition("[[stages]]")[0]).cuts is None


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("schedir.plan/1", "schedir.costs/1", FormatError, "schema is 'schedir.costs/1', but a plan has"),
        ("num_devices", "num_device", FormatError, "key 'num_device' is unknown: did you mean num_devices?"),
        ("num_devices = 2", "", FormatError, "num_devices is missing: every plan has one"),
        ("num_devices = 2", "num_devices = 0", FormatError, "num_devices 0 must be an integer of at least 1"),
        ('"always"', "3", FormatError, "recompute 3 must be a text"),
        ("data_parallel = 1", "data_parallel = 2", RefusedError, "data_parallel is 2, but training has one device for every"),
        ("stage = 1", "stage = 2", FormatError, "stage 2 stands where stage 1 should: list all stages in order"),
        ('["model.layers.1"]', "[]", FormatError, r"stages.1.layers \[\] must be names of layers"),
        ('layers = ["model.layers.1"]', "", FormatError, "stages.1.layers None must be names of layers"),
        ("devices = [1]", "devices = [2]", FormatError, r"stages.1.devices \[2\] must be a list of numbers from 0 to 1, as \[0\]"),
        ("devices = [1]", 'devices = "1"', FormatError, "stages.1.devices '1' must be a list of numbers from 0 to 1"),
        ("devices = [1]", "devices = [true]", FormatError, r"stages.1.devices \[True\] must be a list of numbers from 0 to 1"),
        ("timeout = 90", "timeout = 0", FormatError, "my.plan.toml: timeout 0 is no positive number of seconds: give one, say 600"),
        ("timeout = 90", 'timeout = "90"', FormatError, "timeout '90' is no positive number of seconds"),
        ("timeout = 90", "timeout = 2e9", FormatError, r"timeout 2000000000.0 s is longer than the 1e\+09 s that a wait may take"),
        ("schema =", "schema", FormatError, "is no TOML file: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, *, old: str, new: str, error: type[SchedirError], message: str) -> None:
    assert old in WHOLE
    with pytest.raises(error, match=message) as caught:
        read(tmp_path, WHOLE.replace(old, new))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.toml cannot be read: no such file or directory"):
        read_plan(tmp_path / "none.toml")


def test_the_plan_of_the_page_is_the_example_and_all_keys_are_explained_there() -> None:
    page, example = ROOT / "docs" / "plan_files.md", ROOT / "examples" / "majority.plan.toml"
    text = page.read_text(encoding="utf-8")
    assert text.partition("```toml\n")[2].partition("```")[0] in example.read_text(encoding="utf-8")
    assert read_plan(example) == PlannedTraining(
        schedule="interleaved-1f1b",
        num_devices=2,
        num_micro_batches=4,
        stages_per_device=2,
        micro_batch_size=64,
        recompute="never",
        recompute_start="early",
        timeout=None,
        cuts=("2", "4", "6"),
    )
    first = "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    explained = set(re.findall(r"`\[*([\w.]+)\]*`", first))
    assert explained == {"schema", "predicted", "stages", TIMEOUT, *COUNTS, *TEXTS, *(f"stages.{key}" for key in STAGE_KEYS)}
