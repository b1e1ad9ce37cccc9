import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from plots.gantt import gantt
from plots.saving import picture_format, save
from schedir.errors import ArgumentError, RunError
from tests.plots.timelines import predicted
from tests.repository import ROOT

FORMATS = ("pdf", "png", "svg")
DRAW = """
import sys
from plots.saving import save
from plots.gantt import gantt
from tests.plots.timelines import predicted
for path in sys.argv[1:]:
    save(gantt(predicted("xpipe", 2, 2, mini_batches=3, recompute_mode="always"), style="gray"), path)
"""


@pytest.mark.parametrize(("suffix", "first"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_suffix_names_the_type_and_missing_folders_are_made(tmp_path: Path, suffix: str, first: bytes) -> None:
    target = tmp_path / "out" / "deep" / f"figure.{suffix.upper()}"

    assert save(gantt(predicted("gpipe", 2, 2)), target) == target
    assert target.read_bytes().startswith(first)
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_the_same_picture_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    files = {seed: [tmp_path / f"{seed}.{suffix}" for suffix in FORMATS] for seed in ("1", "2")}
    for seed, paths in files.items():
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-c", DRAW, *map(str, paths)], check=True, cwd=ROOT, env=environment, timeout=600)

    assert [path.read_bytes() for path in files["1"]] == [path.read_bytes() for path in files["2"]]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_settings_of_the_user_do_not_change_a_picture(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"{number}.{suffix}" for number in (1, 2)]
    save(gantt(predicted("gpipe", 2, 2)), paths[0])
    with matplotlib.rc_context(
        {"font.size": 20, "axes.grid": True, "savefig.bbox": "tight", "pdf.fonttype": 3, "svg.fonttype": "none"}
    ):
        save(gantt(predicted("gpipe", 2, 2)), paths[1])

    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("suffix", ["pdf", "svg"])
def test_savefig_of_the_figure_writes_what_save_writes(tmp_path: Path, suffix: str) -> None:
    figure = gantt(predicted("gpipe", 2, 2))
    figure.savefig(tmp_path / f"by_hand.{suffix}")

    assert (tmp_path / f"by_hand.{suffix}").read_bytes() == save(figure, tmp_path / f"saved.{suffix}").read_bytes()


def test_files_hold_no_date_and_fonts_that_publishers_take(tmp_path: Path) -> None:
    figure = gantt(predicted("gpipe", 2, 2))

    assert b"dc:date" not in save(figure, tmp_path / "figure.svg").read_bytes()
    pdf = save(figure, tmp_path / "figure.pdf").read_bytes()
    assert b"CreationDate" not in pdf
    assert b"/Type3" not in pdf.replace(b" ", b"")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("figure.jpeg", r"picture figure\.jpeg: suffix '\.jpeg' is no picture's: use \.pdf, \.png, \.svg"),
        ("figure", r"picture figure: there is no suffix: use \.pdf, \.png, \.svg"),
    ],
)
def test_other_types_are_refused_with_the_known_ones(path: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        picture_format(path)


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(ArgumentError, match=r"picture .*file/figure\.png cannot be written: .*: give a file in a folder"):
        save(gantt(predicted("gpipe", 2, 2)), tmp_path / "file" / "figure.png")


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "figure.svg"
    target.write_text("old")
    figure = gantt(predicted("gpipe", 2, 2))
    figure.draw = fail  # type: ignore[assignment, method-assign]  # a disk that is full half way

    with pytest.raises(RunError, match=r"figure\.svg cannot be written: no space left on device: make room there"):
        save(figure, target)

    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def fail(_renderer: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_hundred_thousand_bars_become_an_image_inside_the_file(tmp_path: Path) -> None:
    timeline = predicted("1f1b", 64, 800)
    figure = gantt(timeline)

    assert sum(len(collection.get_paths()) for collection in figure.axes[0].collections) == 2 * 64 * 800 + 64
    assert save(figure, tmp_path / "figure.pdf").stat().st_size < 1_000_000


def test_a_figure_shows_itself_in_a_notebook() -> None:
    assert gantt(predicted("gpipe", 2, 2))._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined] # a Picture
