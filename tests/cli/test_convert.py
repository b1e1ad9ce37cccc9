"""`schedir convert`: one program in every form."""

from pathlib import Path

import pytest

from schedir.interop.program_files import load_program
from schedir.schedules.registry import build_program
from tests.cli.command import Command
from tests.repository import ROOT


@pytest.mark.parametrize("suffix", ["toml", "txt"])
def test_a_schedule_comes_back_from_its_file(command: Command, suffix: str) -> None:
    said = command.succeed("convert", "xpipe", "--devices", 3, "--micro-batches", 2, "-o", f"out/mine.{suffix}")

    assert said == f"wrote out/mine.{suffix}: <Program xpipe: 3 devices, 3 stages, 14 x 2 micro-batches, weights predict>\n"
    assert load_program(Path(f"out/mine.{suffix}")) == build_program("xpipe", num_devices=3, num_micro_batches=2)


def test_csv_is_what_torch_reads(command: Command) -> None:
    command.succeed("convert", "1f1b", "--devices", 2, "--micro-batches", 2, "-o", "mine.csv")

    assert Path("mine.csv").read_text() == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


def test_what_csv_cannot_hold_is_said(command: Command) -> None:
    said = command.succeed("convert", "1f1b", "--devices", 2, "--micro-batches", 2, "--mini-batches", 3, "-o", "mine.csv")

    assert said.splitlines()[1:] == ["note: CSV has no place for mini-batches: give --mini-batches 3 where you read it"]


def test_without_a_file_the_text_is_printed(command: Command) -> None:
    text = command.succeed("convert", ROOT / "examples" / "zigzag.program.toml")

    assert text.splitlines()[-2:] == [
        "device 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3",
        "device 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3",
    ]
