"""`schedir show`: the grid and what the graph proves."""

import pytest

from tests.cli.command import Command

GPIPE = """\
device 0 | F0 F1 .  .  .  .  B1 B0*
device 1 | .  F0 F1 .  .  B1 B0*.
device 2 | .  .  F0 F1 B1 B0*.  .
. idle, every action takes one slot   * an update stands behind it

gpipe: 3 devices, 3 stages, 1 mini-batch of 2 micro-batches; 15 tasks, 8 transfers
weights: latest: synchronous, every read is of the version that sequential training would read
live activations by device: 2 2 2
blocking sends: runs to its end

stage  device  versions  staleness
──────────────────────────────────
0           0         1          0
1           1         1          0
2           2         1          0
"""

# Versions p - k, staleness p - 1 - k: PipeDream (Narayanan et al. 2019), section 3.3.
PIPEDREAM = """\
stage  device  versions  staleness
──────────────────────────────────
0           0         4          3
1           1         3          2
2           2         2          1
3           3         1          0
"""

# Horizons of XPipe (Guan et al. 2019) for p = 4, T = 1: forward floor(p - k/2 - 1 + 1/2), backward floor(k/2).
XPIPE = """\
stage  device  versions  of them true  staleness  drift  F horizon  F counted  B horizon  B counted
───────────────────────────────────────────────────────────────────────────────────────────────────
0           0         6             1          3      3          3          3          0          0
1           1         5             1          2      3          3          2          0          0
2           2         5             1          1      2          2          1          1          0
3           3         3             1          0      1          2          0          1          0
"""


def squeezed(text: str) -> list[list[str]]:
    """Return the words of every line, so that the width of columns does not matter."""
    return [line.split() for line in text.splitlines() if line.strip("─ ")]


def test_a_synchronous_schedule_is_drawn_and_explained(command: Command) -> None:
    shown = command.succeed("show", "gpipe", "--devices", 3, "--micro-batches", 2)

    assert squeezed(shown) == squeezed(GPIPE)


def test_reductions_are_counted_apart_from_transfers(command: Command) -> None:
    """16 mini-batches over 2 borders both ways are 64 transfers; two replicas of stage 0 share 16 mini-batches in 8 rounds."""
    shape = ("--devices", 4, "--micro-batches", 1, "--mini-batches", 16)
    replicated = command.succeed("show", "pipedream", *shape, "--replicas", "2,1,1")

    assert "tasks, 64 transfers, 8 reductions\n" in replicated
    assert "tasks, 96 transfers\n" in command.succeed("show", "pipedream", *shape)  # 3 borders, no replicas


def test_copies_of_the_weights_are_counted_where_devices_share_stages(command: Command) -> None:
    """Chimera (Li and Hoefler 2021, section 3.1): two directions, so every stage stands on devices k and p - 1 - k."""
    lines = command.succeed("show", "chimera").splitlines()

    assert "stages whose weights a device holds: 2 2 2 2, 2 copies of every stage" in lines
    assert [line.split() for line in lines[-4:]] == [
        ["0", "0,3", "2", "1", "0"],
        ["1", "1,2", "2", "1", "0"],
        ["2", "1,2", "2", "1", "0"],
        ["3", "0,3", "2", "1", "0"],
    ]
    assert "copies" not in command.succeed("show", "zb-v")


def test_stashed_versions_and_staleness_are_listed_by_stage(command: Command) -> None:
    shown = command.succeed("show", "pipedream", "--micro-batches", 1)

    assert squeezed(shown)[-5:] == squeezed(PIPEDREAM)
    assert "weights: stash: reads lack up to 3 updates; every backward reads weights as new as its forward's" in shown


def test_horizons_stand_by_formula_and_as_counted(command: Command) -> None:
    shown = command.succeed("show", "xpipe", "--micro-batches", 1)
    table = squeezed(shown)[-5:]

    assert [row[6:] for row in table[1:]] == [row[6:] for row in squeezed(XPIPE)[1:]]
    assert "weights: predict, horizon xpipe-paper, backward on its own prediction" in shown


# p = 4, T = 1, counted by what an update in between changes: p - k - 1 forward, 0 backward. SpecTrain (Chen et al. 2018): forward
# floor(k/2) + p - k - 1, backward floor(k/2). PipeOptim (Guan et al. 2023): forward p - k - 1, none backward.
HORIZONS = {
    "spectrain": (["3", "2", "2", "1"], ["3", "2", "1", "0"], ["0", "0", "1", "1"], ["0", "0", "0", "0"]),
    "pipeoptim": (["3", "2", "1", "0"], ["3", "2", "1", "0"], ["0", "0", "0", "0"], ["0", "0", "0", "0"]),
}


@pytest.mark.parametrize("name", HORIZONS)
def test_horizons_of_every_predicting_schedule_stand_by_formula_and_as_counted(command: Command, name: str) -> None:
    lines = squeezed(command.succeed("show", name, "--micro-batches", 1))
    header, *rows = lines[-5:]
    columns = list(zip(*rows, strict=True))[-4:]

    assert header[-8:] == ["F", "horizon", "F", "counted", "B", "horizon", "B", "counted"]
    assert columns == [tuple(column) for column in HORIZONS[name]]


def test_the_grid_fits_the_terminal(command: Command) -> None:
    shown = command.succeed("show", "1f1b", "--devices", 8, "--micro-batches", 64)

    assert max(map(len, shown.splitlines()[:8])) <= 100


def test_horizons_stand_one_below_the_other_where_the_table_is_too_wide(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = command.succeed("show", "xpipe", "--micro-batches", 1)

    assert ["F", "horizon", "3", "3", "2", "2"] in squeezed(shown)


def test_options_of_a_schedule_are_passed_on(command: Command) -> None:
    shown = command.succeed("show", "gpipe", "--devices", 1, "--micro-batches", 3, "--order", "fifo")

    assert shown.startswith("device 0 | F0 F1 F2 B0 B1 B2*")
