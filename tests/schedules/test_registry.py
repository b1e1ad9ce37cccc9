"""Names, aliases, entry points, shapes: what `build_program` finds and what it refuses."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from schedir.errors import ArgumentError, RefusedError
from schedir.ir.program import Program
from schedir.ir.shape import Shape
from schedir.schedules.gpipe import gpipe
from schedir.schedules.registry import ALIASES, SCHEDULES, build_program, find_schedule, schedule_names
from schedir.schedules.shape import Schedule


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("gpipe", "gpipe"),
        ("1F1B", "1f1b"),
        ("dapple", "1f1b"),
        ("pipedream-flush", "1f1b"),
        ("pipedream_flush", "1f1b"),
        ("Schedule1F1B", "1f1b"),
        ("GPipe", "gpipe"),
        ("ScheduleGPipe", "gpipe"),
        ("afab", "gpipe"),
        ("FThenB", "gpipe"),
        ("fthenb", "gpipe"),
        ("Interleaved1F1B", "interleaved-1f1b"),
        ("ScheduleInterleaved1F1B", "interleaved-1f1b"),
        ("vpp", "interleaved-1f1b"),
        ("LoopedBFS", "looped-bfs"),
        ("ZBVZeroBubble", "zb-v"),
        ("zb1p", "zb-h1"),
        ("zb_h2", "zb-h2"),
        ("InterleavedZeroBubble", "interleaved-zb"),
        ("DualPipeV", "dualpipev"),
        ("ScheduleDualPipeV", "dualpipev"),
        ("PipeDream", "pipedream"),
        ("PipeDream-2BW", "pipedream-2bw"),
        ("XPipe", "xpipe"),
    ],
)
def test_schedules_are_found_by_the_names_of_other_tools(name: str, schedule: str) -> None:
    assert find_schedule(name) is SCHEDULES[schedule]


def test_every_alias_leads_to_a_schedule() -> None:
    assert set(ALIASES.values()) <= set(SCHEDULES)
    assert set(ALIASES) & set(SCHEDULES) == set()


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_program_bears_the_name_of_its_schedule(name: str) -> None:
    assert build_program(name, num_devices=2, num_micro_batches=4).name == name


def test_an_unknown_name_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(
        ArgumentError, match=r"^schedule 'gpip' is unknown, did you mean gpipe\?: use one of gpipe, 1f1b, .*, or a file$"
    ):
        find_schedule("gpip")
    with pytest.raises(ArgumentError, match=r"^schedule 'q' is unknown: use one of gpipe, 1f1b"):
        find_schedule("q")


# Known problem D32.
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("num_devices", 0),
        ("num_devices", 2.5),
        ("num_devices", True),
        ("num_devices", "4"),
        ("num_micro_batches", 0),
        ("num_micro_batches", -1),
        ("num_mini_batches", 0),
        ("stages_per_device", 0),
    ],
)
def test_a_count_that_is_none_is_refused_by_name_and_value(argument: str, value: object) -> None:
    shape: dict[str, object] = {"num_devices": 2, "num_micro_batches": 2, argument: value}

    with pytest.raises(ArgumentError, match=rf"^{argument} {value!r} must be an integer of at least 1$"):
        build_program("gpipe", **shape)  # type: ignore[arg-type] # what a user may pass


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("argument", ["num_devices", "num_micro_batches", "num_mini_batches", "stages_per_device"])
def test_a_shape_that_nobody_can_build_is_refused_before_it_is_built(name: str, argument: str) -> None:
    shape = {"num_devices": 2, "num_micro_batches": 2, "num_mini_batches": 1, "stages_per_device": 1, argument: 99_999_999_999}

    with pytest.raises(
        RefusedError, match=rf"^{name}: \d+ actions \(.*\) are more than the 100000000 that can be built: give fewer"
    ):
        build_program(name, **shape)


def test_the_number_of_actions_that_was_asked_for_is_named() -> None:
    with pytest.raises(RefusedError, match=r"^1f1b: 1599999999984 actions \(99999999999 stages x 8 micro-batches,"):
        build_program("1f1b", num_devices=99_999_999_999, num_micro_batches=8)


def test_integers_of_numpy_are_counts() -> None:
    program = build_program("gpipe", num_devices=np.int64(2), num_micro_batches=np.int32(3))  # type: ignore[arg-type] # they are ints to a user

    assert program == build_program("gpipe", num_devices=2, num_micro_batches=3)
    assert type(program.num_micro_batches) is int


def test_an_option_that_a_schedule_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(ArgumentError, match="schedule xpipe has no option 'order': it has horizon, backward_weights"):
        build_program("xpipe", num_devices=2, num_micro_batches=2, order="fifo")
    with pytest.raises(
        ArgumentError, match=r"^schedule 1f1b has no option 'order': it has none; leave it out, or use gpipe, which has it$"
    ):
        build_program("1f1b", num_devices=2, num_micro_batches=2, order="fifo")


def test_all_schedules_that_have_an_option_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"leave it out, or use xpipe, spectrain or pipeoptim, which have it$"):
        build_program("1f1b", num_devices=2, num_micro_batches=2, horizon=1)


def test_options_and_defaults_are_those_of_the_function() -> None:
    assert SCHEDULES["xpipe"].options == {"horizon": "xpipe-paper", "backward_weights": "predict"}
    assert SCHEDULES["1f1b"].options == {}


def test_mini_batches_default_to_one_or_to_a_steady_state() -> None:
    counts = {name: build_program(name, num_devices=2, num_micro_batches=4).num_mini_batches for name in SCHEDULES}
    continuous = {name for name, count in counts.items() if count != 1}

    assert continuous == {"pipedream", "pipedream-2bw", "xpipe", "spectrain", "pipeoptim"}
    assert {counts[name] for name in continuous} == {2 * 2 + 8}


def test_stages_per_device_default_to_those_of_the_schedule_or_to_an_options_multiple() -> None:
    shape = {"num_devices": 2, "num_micro_batches": 4}
    several = {name: build_program(name, **shape).stages_per_device for name in SCHEDULES}

    assert {name for name, stages in several.items() if stages == 2} == {
        *("interleaved-1f1b", "looped-bfs", "interleaved-zb", "zb-v", "v-half", "dualpipev", "dualpipe", "chimera", "hanayo")
    }
    assert set(several.values()) == {1, 2}
    assert build_program("hanayo", **shape, waves=3).stages_per_device == 6


# ---------------------------------------------------------------- schedules of other packages


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package with entry points for a schedule, for something else and for what is not there."""
    (tmp_path / "zigzags.py").write_text(
        "from schedir.schedules.gpipe import gpipe\n"
        "from schedir.schedules.shape import Schedule\n"
        "even = Schedule('zigzag', lambda shape: gpipe(shape, order='fifo'), 'made up',\n"
        "                accepts=lambda shape: None if shape.num_devices % 2 == 0 else 'it needs an even number of devices')\n"
    )
    metadata = tmp_path / "zigzags-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: zigzags\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[schedir.schedules]\nzigzag = zigzags:even\nfunction = zigzags:gpipe\nlost = zigzags:lost\nnowhere = zagzigs:even\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("zigzags", None)


@pytest.mark.usefixtures("package")
def test_a_schedule_of_another_package_is_found_by_its_entry_point() -> None:
    program = build_program("zigzag", num_devices=2, num_micro_batches=2)

    assert program.orders() == build_program("gpipe", num_devices=2, num_micro_batches=2, order="fifo").orders()
    assert schedule_names() == (*SCHEDULES, "function", "lost", "nowhere", "zigzag")


@pytest.mark.usefixtures("package")
def test_its_refusals_are_shown_with_their_reason() -> None:
    with pytest.raises(RefusedError, match=r"^zigzag does not take this shape: it needs an even number of devices$"):
        build_program("zigzag", num_devices=3, num_micro_batches=2)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("function", "schedule 'function': zigzags:gpipe is a function, not a Schedule"),
        ("lost", "schedule 'lost' cannot be loaded from zigzags:lost: module 'zigzags' has no attribute 'lost'"),
        ("nowhere", "schedule 'nowhere' cannot be loaded from zagzigs:even: No module named 'zagzigs'"),
    ],
)
def test_an_entry_point_that_is_no_schedule_is_refused(name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        find_schedule(name)


def test_a_schedule_may_have_several_stages_a_device_by_default() -> None:
    schedule = Schedule("two", gpipe, "made up", stages_per_device=2)

    assert schedule.default_mini_batches(4) == 1
    assert Shape(2, 4, 1, schedule.stages_per_device).num_stages == 4
    assert isinstance(schedule.build(Shape(2, 4, 1, 1)), Program)
