"""Costs files: the examples of the format, what is refused in which line, and that what is written is read back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedir.costs.files.costs_file import load_costs, save_costs
from schedir.costs.model import Basis
from schedir.costs.table.meaning import Granularity, Scaling
from schedir.costs.table.pieces import SIZED_BYTES, TIMES, PieceBytes, PieceCosts
from schedir.costs.table.stage_arrays import BYTES
from schedir.costs.table.table import TableCosts
from schedir.costs.work import BySize, WorkTime
from schedir.errors import ArgumentError, FormatError
from schedir.ir.action import Kind
from tests.costs.graphs import graph_of, seconds_of
from tests.repository import ROOT

STAGES = ROOT / "tests/data/stages.costs.toml"  # formats/stages.costs.toml
MEASURED = ROOT / "tests/data/measured.costs.json"  # formats/measured.costs.json
HEAD = 'schema = "schedir.costs/1"\ngranularity = "stage"\n'
EVERY = "[default]\nforward = 1\nbackward = 2\n"


def written(folder: Path, text: str, name: str = "my.costs.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_hand_written_costs_are_read_in_their_unit() -> None:
    costs = load_costs(STAGES)

    assert costs.default == PieceCosts(
        forward=0.018522,
        input_grad=0.018086,
        weight_grad=0.009337,
        recompute=0.018522,
        update=0,
        predict=0,
        overlapped=0.0459,
        bytes=PieceBytes(
            weights=2.1e9,
            gradients=4.2e9,
            optimizer=12.6e9,
            activations=1.1e9,
            boundary=33.5e6,
            output=33.5e6,
            workspace=0.4e9,
        ),
    )
    assert (costs.transfer, costs.micro_batch_size, costs.scaling, costs.basis) == (0.000601, 1, Scaling.LINEAR, Basis.ASSUMED)


def test_a_stage_states_only_what_it_has_other_than_the_default() -> None:
    (stage,) = load_costs(STAGES).rows

    assert (stage.forward, stage.input_grad, stage.recompute) == (WorkTime(0.021), WorkTime(0.018086), WorkTime(0.018522))
    assert (stage.bytes.weights, stage.bytes.gradients) == (3.2e9, 4.2e9)
    assert seconds_of(graph_of("1f1b", 2, 1), load_costs(STAGES), Kind.BACKWARD) == [0.018086 + 0.009337]


def test_halves_of_a_stage_replace_the_full_backward_of_the_default(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEAD}{EVERY}[[stages]]\nstage = 0\ninput_grad = 3\nweight_grad = 4\n")

    assert seconds_of(graph_of("1f1b", 2, 1), load_costs(path), Kind.BACKWARD) == [7]


def test_stages_between_those_that_are_named_have_the_default(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEAD}{EVERY}[[stages]]\nstage = 2\nforward = 5\n[[stages]]\nstage = 0\nforward = 3\n")
    graph = graph_of("gpipe", 4, 1)

    assert [seconds_of(graph, load_costs(path), Kind.FORWARD, stage=stage) for stage in range(4)] == [[3], [1], [5], [1]]


def test_measured_costs_keep_samples_firsts_and_what_they_stand_on() -> None:
    costs = load_costs(MEASURED)

    assert (costs.granularity, costs.basis, costs.micro_batch_size) == (Granularity.LAYER, Basis.MEASURED, 8)
    assert costs.dispatch_gap_s == 3.4e-05
    assert [row.name for row in costs.rows] == ["embed", "blocks.0"]
    assert costs.rows[0].forward == WorkTime(0.00052, first=0.00061, samples=(0.00051, 0.00052, 0.00053))
    assert costs.rows[0].input_grad is None
    assert costs.rows[1].bytes.activations == 8388608
    assert costs.source["machine"]["torch"] == "2.13.0"


def test_layers_are_cut_when_they_are_loaded() -> None:
    whole = load_costs(MEASURED, layers_per_stage=(2,))
    graph = graph_of("gpipe", 1, 2)

    assert seconds_of(graph, whole, Kind.FORWARD) == pytest.approx([0.00061 + 0.0058, 0.00052 + 0.0051])
    assert seconds_of(graph, whole, Kind.UPDATE) == pytest.approx([0.00018 + 0.0011])
    with pytest.raises(ArgumentError, match="layers_per_stage sums to 3 layers, but the costs have 2"):
        load_costs(MEASURED, layers_per_stage=(1, 2))


def test_times_may_have_units_of_their_own_and_tables_by_size(tmp_path: Path) -> None:
    text = f'{HEAD}time_unit = "us"\nscaling = "table"\n[default]\nforward = {{ 1 = 10, 4 = "25 us" }}\nbackward = "2 ms"\n'
    costs = load_costs(written(tmp_path, text))

    assert costs.default is not None
    assert costs.default.forward == BySize((1, 4), (WorkTime(1e-5), WorkTime(2.5e-5)))
    assert costs.default.backward == WorkTime(0.002)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('schema = "schedir.costs/1"\nx = = 3\n', r":2: is not TOML: .*: mend this line"),
        ("[default]\n", r':1: schema: is missing: a costs file of version 1 starts with schema = "schedir\.costs/1"'),
        ('schema = "schedir.costs/2"\n', r":1: schema: 'schedir\.costs/2' is not known here"),
        ('schema = "schedir.model/1"\n', r":1: schema: 'schedir\.model/1' is not known here"),
        ('schema = "schedir.costs/1"\n', r":1: granularity: the key is missing: give it"),
        (HEAD, r":1: stages: no stage is there: give one \[\[stages\]\] for each"),
        (f"{HEAD}{EVERY}forwrad = 3\n", r":6: default\.forwrad: the key is unknown, did you mean forward\?"),
        (f"{HEAD}{EVERY}[default.bytes]\nweight = 3\n", r":7: default\.bytes\.weight: the key is unknown, did you mean weights\?"),
        (f"{HEAD}[default]\nforward = 3\n", r":3: default: no backward is stated: give backward, or input_grad and weight_grad"),
        (f"{HEAD}[default]\nbackward = 3\n", r":3: default\.forward: the key is missing: give it"),
        (f"{HEAD}{EVERY}update = -1\n", r":6: default\.update: -1 is negative: give a finite number of at least 0"),
        (f"{HEAD}{EVERY}update = nan\n", r":6: default\.update: nan is not finite"),
        (f"{HEAD}{EVERY}update = true\n", r":6: default\.update: True is no quantity"),
        (f'{HEAD}{EVERY}update = "3 parsec"\n', r":6: default\.update: '3 parsec' has the unknown unit 'parsec'"),
        (
            f"{HEAD}{EVERY}update = {{ medain = 3 }}\n",
            r":6: default\.update: the key 'medain' is unknown: a time has median, first",
        ),
        (f"{HEAD}{EVERY}update = {{ first = 3 }}\n", r":6: default\.update: the median is missing: give it"),
        (f"{HEAD}{EVERY}update = {{ median = 3, samples = 3 }}\n", r":6: default\.update: samples 3 is not a list"),
        (f"{HEAD}{EVERY}update = {{ median = 3, repeats = 3 }}\n", r":6: default\.update: repeats 3 is not a list"),
        (
            f"{HEAD}{EVERY}update = {{ median = 3, samples = [3], repeats = [0, 1] }}\n",
            r":6: default\.update: repeats has 2 values for 1 samples: give one for each",
        ),
        (f"{HEAD}{EVERY}update = {{ 1 = 3 }}\n", r":6: default\.update: a table by micro-batch size goes with scaling"),
        (
            f"{HEAD}{EVERY}[[stages]]\nstage = -1\n",
            r":7: stages\.0\.stage: -1 does not fit: it should be greater than or equal to 0",
        ),
        (f'{HEAD}{EVERY}[[stages]]\nstage = "a"\n', r":7: stages\.0\.stage: 'a' does not fit: it should be a valid integer"),
        (f"{HEAD}{EVERY}[[stages]]\nforward = 3\n", r":6: stages\.0\.stage: the key is missing"),
        (f"{HEAD}{EVERY}[[stages]]\nstage = 0\n[[stages]]\nstage = 0\n", r":9: stages\.1\.stage: stage 0 stands twice"),
        (f"{HEAD}[[stages]]\nstage = 1\nforward = 1\nbackward = 2\n", r":3: stages: stage 0 of 0\.\.1 is missing: give one row"),
        (f"{HEAD}[[layers]]\nlayer = 0\nforward = 1\nbackward = 2\n", r':3: layers: goes with granularity = "layer"'),
        (f"{HEAD}{EVERY}".replace('"stage"', '"layer"'), r':3: default: goes with granularity = "stage"'),
        (f"{HEAD}micro_batch_size = 0\n{EVERY}", r":3: micro_batch_size: 0 does not fit"),
        (f'{HEAD}scaling = "lin"\n{EVERY}', r":3: scaling: 'lin' is unknown: use 'linear', 'fixed' or 'table'"),
        (f'{HEAD}time_unit = "min"\n{EVERY}', r":3: time_unit: 'min' is unknown: use 's', 'ms' or 'us'"),
        (f'{HEAD}{EVERY}[source]\nkind = "guess"\n', r":7: source\.kind: 'guess' is unknown: use assumed, analytic, calibrated"),
        (f'{HEAD}{EVERY}[transfer]\nlatency = "fast"\n', r":7: transfer\.latency: 'fast' is no quantity"),
        (f"{HEAD}{EVERY}dispatch_gap_s = 1\n", r":6: default\.dispatch_gap_s: the key is unknown"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_line_with_its_place(tmp_path: Path, text: str, line: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(FormatError, match=line) as refusal:
        load_costs(path)

    assert str(refusal.value).startswith(f"{path}:")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"schema": "schedir.costs/1",\n "a": 1,}', r":2: is not JSON: .* \(column 9\): mend this line"),
        ('{"schema": "schedir.costs/1", "schema": 1}', r"key 'schema' stands twice in one object: leave one of them out"),
        ("[1]", r":1: holds a list: it must hold one object with keys"),
        (
            '{"schema": "schedir.costs/1",\n"granularity": "stage",\n"default": {"forward": NaN}}',
            r":3: default\.forward: nan is not finite",
        ),
    ],
)
def test_broken_json_is_refused_in_one_line_with_its_place(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(FormatError, match=line) as refusal:
        load_costs(written(tmp_path, text, "my.costs.json"))

    assert "\n" not in str(refusal.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes(b"x = '\xe4'")

    for name, line in (
        ("none.toml", "there is no such file: check the path"),
        ("folder.toml", "is a folder: give a file"),
        ("latin.toml", "is not UTF-8 text"),
        ("costs.yaml", r"files end in \.toml or \.json, not in '\.yaml'"),
    ):
        with pytest.raises(FormatError, match=line):
            load_costs(tmp_path / name)


@pytest.mark.parametrize("example", [STAGES, MEASURED], ids=["stages", "measured"])
@pytest.mark.parametrize("ending", ["toml", "json"])
def test_the_examples_are_written_and_read_back(tmp_path: Path, example: Path, ending: str) -> None:
    costs, path = load_costs(example), tmp_path / f"again.costs.{ending}"
    save_costs(costs, path)

    assert load_costs(path) == replace(costs, file=str(path))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_written_files_are_in_seconds_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "again.costs.json"
    save_costs(load_costs(STAGES), path)
    data = json.loads(path.read_text(encoding="utf-8"))

    assert data["time_unit"] == "s"
    assert data["default"]["forward"] == 0.018522
    assert data["default"]["bytes"]["weights"] == 2100000000


def test_costs_that_cannot_be_written_leave_what_was_there(tmp_path: Path) -> None:
    path = written(tmp_path, "old", "mine.costs.json")
    nowhere = tmp_path / "missing" / "mine.costs.json"

    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        save_costs(replace(load_costs(STAGES), source={"note": float("nan")}), path)
    with pytest.raises(ArgumentError, match=r"cannot be written: no such file or directory: name a place you may write to"):
        save_costs(load_costs(STAGES), nowhere)
    with pytest.raises(FormatError, match=r"costs files end in \.toml or \.json, not in '\.yaml'"):
        save_costs(load_costs(STAGES), tmp_path / "mine.yaml")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ArgumentError, match="cannot be written: is a directory"):
        save_costs(load_costs(STAGES), tmp_path / "folder.json")
    (tmp_path / "folder.json").rmdir()
    assert path.read_text(encoding="utf-8") == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["mine.costs.json"]


SECONDS = st.floats(0, 1e6)
PLAIN = st.builds(WorkTime, SECONDS, st.none() | SECONDS, st.lists(SECONDS, max_size=3).map(tuple))
REPEATED = st.builds(
    lambda median, pairs: WorkTime(median, samples=tuple(pairs.values()), repeats=tuple(sorted(pairs))),
    SECONDS,
    st.dictionaries(st.integers(0, 30), SECONDS, max_size=3),
)
TIME = PLAIN | REPEATED
AMOUNTS = {name: st.none() | st.floats(0, 1e15) for name in BYTES}
OPTIONAL = {name: st.none() | TIME for name in TIMES if name not in {"forward", "backward"}}


@st.composite
def pieces(draw: st.DrawFn) -> PieceCosts:
    times = {"forward": TIME, "backward": TIME, **OPTIONAL}
    stated: dict[str, Any] = {name: draw(time) for name, time in times.items()}
    amounts: dict[str, Any] = {name: draw(amount) for name, amount in AMOUNTS.items()}
    return PieceCosts(**stated, bytes=PieceBytes(**amounts))


COSTS = st.builds(
    TableCosts,
    rows=st.lists(pieces(), min_size=1, max_size=2).map(tuple),
    default=st.none() | pieces(),
    micro_batch_size=st.integers(1, 64),
    scaling=st.sampled_from(Scaling),
    transfer=st.none() | SECONDS,
    dispatch_gap_s=SECONDS,
    basis=st.sampled_from(Basis),
)


@given(costs=COSTS)
def test_whatever_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, costs: TableCosts) -> None:
    folder = tmp_path_factory.getbasetemp()
    save_costs(costs, folder / "law.costs.json")
    save_costs(replace(costs, default=None), folder / "law.costs.toml")

    assert replace(load_costs(folder / "law.costs.json"), file=None, source={}) == costs
    assert replace(load_costs(folder / "law.costs.toml"), file=None, source={}) == replace(costs, default=None)


def test_toml_cannot_leave_out_what_the_default_states(tmp_path: Path) -> None:
    costs = TableCosts(rows=(PieceCosts(forward=1, backward=2),), default=PieceCosts(forward=1, backward=2, update=3))

    save_costs(costs, tmp_path / "mine.costs.json")
    assert load_costs(tmp_path / "mine.costs.json").rows[0].update is None
    with pytest.raises(ArgumentError, match="TOML cannot say that a value is left out where a default states it"):
        save_costs(costs, tmp_path / "mine.costs.toml")


@given(pieces(), st.integers(1, 64), st.integers(1, 64))
def test_linear_costs_grow_with_the_samples(piece: PieceCosts, size: int, other: int) -> None:
    costs = TableCosts(default=piece, micro_batch_size=size).resized(other)
    assert costs.default is not None

    for name in SIZED_BYTES:
        before, after = getattr(piece.bytes, name), getattr(costs.default.bytes, name)
        assert after == (None if before is None else pytest.approx(before * other / size))
    assert isinstance(piece.forward, WorkTime)
    assert isinstance(costs.default.forward, WorkTime)
    assert costs.default.forward.median == pytest.approx(piece.forward.median * other / size)
    assert (costs.default.update, costs.default.bytes.weights) == (piece.update, piece.bytes.weights)
