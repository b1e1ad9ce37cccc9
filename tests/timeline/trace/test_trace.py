import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schedir.compiler import load_timeline, load_timelines
from schedir.errors import ArgumentError, FormatError
from schedir.schedules.registry import SCHEDULES
from schedir.timeline.metrics.metrics import metrics
from schedir.timeline.timeline import Source, Timeline
from schedir.timeline.trace.trace import read_trace, write_trace
from tests.repository import ROOT
from tests.timeline.build import graph_near, graph_of, noisy, run, two_devices_by_hand
from tests.timeline.metrics.test_peaks import memory_of


def assert_same(found: Timeline, expected: Timeline) -> None:
    """Hold two timelines equal to the last bit."""
    assert found.graph.program == expected.graph.program
    assert found.graph.options == expected.graph.options
    assert (found.source, found.meta) == (expected.source, expected.meta)
    for name in ("start", "end", "release"):
        column, wanted = getattr(found, name), getattr(expected, name)
        assert (column is None) == (wanted is None)
        assert column is None or column.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_a_timeline_comes_back_without_loss(name: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"trace{ending}"
    timeline = noisy(graph_near(name, 3, 4, recompute="except-last", start="on-gradient"), seed=13, engine="in-order", notes=["a"])
    write_trace(path, timeline)

    assert_same(load_timeline(path), timeline)


def test_prediction_and_measurement_come_back_from_one_file(tmp_path: Path) -> None:
    predicted = run(graph_of("1f1b", 2, 1))
    write_trace(tmp_path / "both.json", predicted, two_devices_by_hand())

    first, second = load_timelines(tmp_path / "both.json")
    assert_same(first, predicted)
    assert_same(second, two_devices_by_hand())
    assert first.graph is second.graph
    assert load_timeline(tmp_path / "both.json", source="measured").source is Source.MEASURED


def test_a_file_of_two_timelines_needs_a_choice(tmp_path: Path) -> None:
    predicted = run(graph_of("1f1b", 2, 1))
    write_trace(tmp_path / "both.json", predicted, two_devices_by_hand())
    write_trace(tmp_path / "one.json", predicted)

    with pytest.raises(ArgumentError, match=r"cannot choose its timelines \(simulated, measured\): name the source"):
        load_timeline(tmp_path / "both.json")
    with pytest.raises(ArgumentError, match=r"cannot choose 'measured' of its timelines \(simulated\)"):
        load_timeline(tmp_path / "one.json", source="measured")


def test_memory_comes_back(tmp_path: Path) -> None:
    predicted = run(graph_of("1f1b", 2, 1))
    memory = (memory_of((0.0, 100, 0), (0.1, 2**60 + 1, 30)), memory_of((0.0, 50, 0)))
    write_trace(tmp_path / "m.json", Timeline(predicted.graph, predicted.start, predicted.end, Source.SIMULATED, memory=memory))

    found = load_timeline(tmp_path / "m.json").memory
    assert found is not None
    assert [steps.time.tolist() for steps in found] == [[0.0, 0.1], [0.0]]
    assert found[0].by_class.tobytes() == memory[0].by_class.tobytes()


def test_a_measurement_written_down_by_hand_has_its_figures(tmp_path: Path) -> None:
    """D27: span 8, idle 2 and 6, bubble 0.5; tasks are numbered device by device, null for those without a span."""
    stored = {
        "source": "measured",
        "program": "\n".join(
            [
                'schema = "schedir.program/1"',
                'name = "by hand"',
                "num_stages = 2",
                "num_devices = 2",
                "num_micro_batches = 1",
                "num_mini_batches = 1",
                'weights = "latest"',
                "device 0: 0F0 0B0",
                "device 1: 1F0 1B0",
            ]
        ),
        "compile": {"recompute": ["never", "never"], "recompute_start": "early", "skips": []},
        "start_s": [0, 6, None, 4, 5, None, None, None],
        "end_s": [4, 8, None, 5, 6, None, None, None],
        "release_s": None,
        "memory": None,
        "meta": {},
    }
    path = tmp_path / "hand.json"
    path.write_text(json.dumps({"schedir": {"schema": "schedir.trace/1", "timelines": [stored]}}), encoding="utf-8")

    found = metrics(load_timeline(path))
    assert found.makespan_s == 8.0
    assert [row.idle_s for row in found.devices] == [2.0, 6.0]
    assert found.bubble_fraction == 0.5


def test_the_file_is_a_trace_that_viewers_open(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.json", run(graph_of("1f1b", 2, 1)))
    content = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))

    assert list(content) == ["traceEvents", "displayTimeUnit", "schedir"]
    assert content["displayTimeUnit"] == "ms"
    assert {event["ph"] for event in content["traceEvents"]} == {"M", "X", "s", "f"}


def test_a_name_that_ends_in_gz_is_compressed(tmp_path: Path) -> None:
    timeline = run(graph_of("1f1b", 2, 1))
    write_trace(tmp_path / "t.json.gz", timeline)
    write_trace(tmp_path / "t.json", timeline)

    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == (tmp_path / "t.json").read_bytes()


def test_nothing_half_written_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "t.json").mkdir()

    with pytest.raises(ArgumentError, match=r"t.json cannot be written: is a directory"):
        write_trace(tmp_path / "t.json", run(graph_of("1f1b", 2, 1)))
    with pytest.raises(ArgumentError, match=r"cannot be written: no such file or directory: give a file in a folder that exists"):
        write_trace(tmp_path / "no" / "t.json", run(graph_of("1f1b", 2, 1)))
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_there_must_be_something_to_write(tmp_path: Path) -> None:
    graph = graph_of("1f1b", 1, 1)
    nothing = np.full(graph.num_tasks, np.nan)

    with pytest.raises(ArgumentError, match="got no timeline"):
        write_trace(tmp_path / "t.json")
    with pytest.raises(ArgumentError, match="has no spans"):
        write_trace(tmp_path / "t.json", Timeline(graph, nothing, nothing, Source.MEASURED))


WRITE = """
import sys
from schedir.timeline.trace.trace import write_trace
from tests.timeline.build import graph_of, noisy
write_trace(sys.argv[1], noisy(graph_of("xpipe", 3, 2), seed=1, costs={"kind": "uniform"}))
"""


def test_simulated_traces_are_equal_to_the_byte_on_every_run(tmp_path: Path) -> None:
    written = []
    for seed in ("0", "1"):
        path = tmp_path / f"{seed}.json.gz"
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", WRITE, str(path)], env=environment, cwd=ROOT, check=True, timeout=600)
        written.append(path.read_bytes())

    assert written[0] == written[1]


def broken(tmp_path: Path, change: Any) -> Path:
    """Write a trace, change its block `schedir`, and return its path."""
    path = tmp_path / "t.json"
    write_trace(path, run(graph_of("1f1b", 2, 1)))
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content["schedir"])
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


FAULTS: dict[str, tuple[Any, str]] = {
    "another schema": (
        lambda b: b.update(schema="schedir.trace/9"),
        r"schedir: schema is 'schedir.trace/9', but 'schedir.trace/1' is read",
    ),
    "no schema": (lambda b: b.pop("schema"), "schedir: schema is missing"),
    "no program": (lambda b: b["timelines"][0].pop("program"), r"schedir: timelines.0: program is missing: write the file again"),
    "wrong type": (lambda b: b["timelines"][0].update(program=3), r"timelines.0: program is int"),
    "unknown source": (
        lambda b: b["timelines"][0].update(source="dreamt"),
        "source 'dreamt' is unknown: use simulated or measured",
    ),
    "a word in times": (lambda b: b["timelines"][0]["start_s"].append("x"), "start_s has values that are no numbers"),
    "infinite times": (lambda b: b["timelines"][0]["end_s"].append(1e999), "end_s is no list of finite numbers"),
    "NaN": (lambda b: b["timelines"][0]["end_s"].__setitem__(0, float("nan")), "end_s is no list of finite numbers: it has .* NaN"),
    "true for a time": (lambda b: b["timelines"][0]["start_s"].__setitem__(0, True), "start_s is no list of finite numbers"),
    "a huge integer": (lambda b: b["timelines"][0]["end_s"].__setitem__(0, 10**400), "end_s has values that are no numbers"),
    "an end before its start": (
        lambda b: b["timelines"][0]["end_s"].__setitem__(0, -5),
        r"task 0, 0F0: end_s -5.0 is before start_s 0.0: a task starts first",
    ),
    "half a span": (
        lambda b: b["timelines"][0]["end_s"].__setitem__(0, None),
        "task 0, 0F0: only one of start_s and end_s is null",
    ),
    "two tasks at once": (
        lambda b: b["timelines"][0]["start_s"].__setitem__(1, 0.5),
        "task 1, 0B0: start_s 0.5 is before end_s 1.0 of 0F0: device 0 does one task after the other",
    ),
    "an end before its source's": (
        lambda b: (b["timelines"][0]["start_s"].__setitem__(3, 0.0), b["timelines"][0]["end_s"].__setitem__(3, 0.25)),
        "task 3, 1F0: end_s 0.25 is before end 1.0 of .*, on which it depends",
    ),
    "a machine that is a number": (lambda b: b["timelines"][0]["meta"].update(machine=3), "meta.machine is 3: give an object"),
    "a list of another length": (
        lambda b: b["timelines"][0]["meta"].update(limit_bytes=[1]),
        r"meta.limit_bytes is \[1\]: give a list of integers for the devices",
    ),
    "NaN in the meta": (
        lambda b: b["timelines"][0]["meta"].update(costs={"forward_s": [float("nan")]}),
        "meta.costs holds a number that is not finite",
    ),
    "too few spans": (lambda b: b["timelines"][0]["start_s"].pop(), "start_s has 7 values, but its program makes 8 tasks"),
    "too little memory": (lambda b: b["timelines"][0].update(memory=[]), "memory has 0 of 2 devices"),
    "memory rows": (
        lambda b: b["timelines"][0].update(memory=[{"time_s": [0], "by_class": [[1]]}]),
        "by_class has rows that are not 8 whole numbers",
    ),
    "no lists": (lambda b: b["timelines"][0]["compile"].update(recompute=[1, 2]), "recompute has values that are no text"),
    "no groups": (lambda b: b["timelines"][0]["compile"].update(ties=[1]), "ties has values that are no lists of integers"),
    "no pairs": (lambda b: b["timelines"][0]["compile"].update(skips=[[1]]), "skips has values that are no pairs of integers"),
    "an object in a list": (lambda b: b.update(timelines=[3]), r"timelines.0: is int, but an object is needed"),
    "a broken order": (
        lambda b: b["timelines"][0].update(program=b["timelines"][0]["program"].replace(" 1B0", "")),
        "the stored program does not compile: .*1B0 is missing",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_file_is_explained_in_one_line(fault: str, tmp_path: Path) -> None:
    change, message = FAULTS[fault]
    path = broken(tmp_path, change)

    with pytest.raises(FormatError, match=message) as caught:
        load_timelines(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"t.json:1: is no JSON"),
        (b"", r"t.json:1: is no JSON"),
        (b"[]", r"t.json: is list, but an object is needed"),
        (b"{}", r"t.json: schedir is missing: only traces that schedir wrote can be read back"),
        (b"\xff\xfe", r"t.json: is no JSON text"),
        (b"\x1f\x8b\x08", r"t.json: is cut off or broken gzip data"),
        (b"[" * 100_000, r"t.json: is no JSON text"),
        (b"9" * 5000, r"t.json: is no JSON text"),
    ],
)
def test_a_file_that_is_no_trace_is_explained_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(content)

    with pytest.raises(FormatError, match=message):
        read_trace(tmp_path / "t.json")


def test_a_missing_file_is_explained_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none.json: cannot be read \(No such file or directory\): give a trace file"):
        read_trace(tmp_path / "none.json")


@pytest.mark.parametrize("wrong", [None, 5, "a", []], ids=repr)
def test_what_is_no_timeline_is_named(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(ArgumentError, match=r"timeline .*: give what simulate"):
        write_trace(tmp_path / "a.json", wrong)  # type: ignore[arg-type]  # the point
