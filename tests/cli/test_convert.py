"""`schedir convert`: one program in every form."""

from itertools import pairwise
from pathlib import Path

import pytest

from schedir.interop.program_files import load_program
from schedir.schedules.registry import build_program
from tests.cli.command import Command
from tests.repository import ROOT


@pytest.mark.parametrize("suffix", ["toml", "txt"])
def test_a_schedule_comes_back_from_its_file(command: Command, suffix: str) -> None:
    said = command.succeed("convert", "xpipe", "--devices", 3, "--micro-batches", 2, "-o", f"out/mine.{suffix}")

    assert said == f"wrote out/mine.{suffix}: xpipe: 3 devices, 3 stages, 14 mini-batches of 2 micro-batches\n"
    assert load_program(Path(f"out/mine.{suffix}")) == build_program("xpipe", num_devices=3, num_micro_batches=2)


def test_csv_is_what_torch_reads(command: Command) -> None:
    command.succeed("convert", "1f1b", "--devices", 2, "--micro-batches", 2, "-o", "mine.csv")

    assert Path("mine.csv").read_text() == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def test_csv_with_communication_is_asked_for_by_its_format(command: Command) -> None:
    command.succeed("convert", "gpipe", "mine.csv", "--devices", 2, "--micro-batches", 1, "--format", "compute-comms")

    assert Path("mine.csv").read_text().splitlines()[0] == "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD"


def test_one_program_goes_through_every_form_and_back(command: Command) -> None:
    """Text -> TOML -> CSV -> CSV with communication -> text: names are those of the files, all else stays."""
    options = {"b.csv": ["--format", "compute-only"], "c.csv": ["--format", "compute-comms"]}
    files = ["a.txt", "b.toml", "b.csv", "c.csv", "d.txt"]
    command.succeed("convert", "dualpipev", files[0], "--devices", 2, "--micro-batches", 4)
    for source, target in pairwise(files):
        command.succeed("convert", source, target, *options.get(target, []))

    assert load_program("d.txt").orders() == build_program("dualpipev", num_devices=2, num_micro_batches=4).orders()


def test_what_torch_lacks_is_left_out_and_said(command: Command) -> None:
    Path("mine.txt").write_text(
        'schema = "schedir.program/1"\nname = "mine"\nnum_stages = 1\nnum_devices = 1\nnum_micro_batches = 2\n'
        'num_mini_batches = 1\nweights = "latest"\ndevice 0: 0F0 0R0 0B0 0F1 0R1 0B1 0U1\n'
    )

    said = command.succeed("convert", "mine.txt", "mine.csv")

    assert Path("mine.csv").read_text() == "0F0,0B0,0F1,0B1\n"
    assert said.splitlines()[1:] == [
        "note: PyTorch's pipelining has no update, so 1 U are left out: call the optimizers after every step",
        "note: PyTorch's pipelining has no recompute, so 2 R are left out: use torch.utils.checkpoint in the stages",
    ]


def test_an_invalid_program_is_shown_instead_of_written_for_torch(command: Command) -> None:
    result = command("convert", ROOT / "examples" / "broken.program.toml", "mine.csv")

    assert result.code == 2
    assert "^^^ <-- waits for ever" in result.out
    assert result.err.count("\n") == 1
    assert not Path("mine.csv").exists()


def test_without_a_file_the_text_is_printed(command: Command) -> None:
    text = command.succeed("convert", ROOT / "tests" / "data" / "zigzag.program.toml")

    assert text.splitlines()[-2:] == [
        "device 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3",
        "device 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3",
    ]


def test_without_a_file_any_format_is_printed(command: Command) -> None:
    shape = ("--devices", 1, "--micro-batches", 1)

    assert command.succeed("convert", "gpipe", *shape, "--format", "compute-only") == "0F0,0B0\n"
    assert 'order = [\n  "0F0 0B0",' in command.succeed("convert", "gpipe", *shape, "--format", "toml")
