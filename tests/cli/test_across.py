"""`--skips` and `--ties`: what a schedule would be like for a model whose stages have more than the chain between them."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Command

SHAPE = ("--devices", "3", "--micro-batches", "2")


def test_show_says_which_way_skips_go_and_what_ties_exchange(command: Command) -> None:
    printed = command.succeed("show", "1f1b", *SHAPE, "--skips", "0-2", "--ties", "0-2")

    assert "skip connections, each over a link of its own: 0 to 2" in printed
    assert "tied weights: stages 0 and 2 hold the same" in printed
    assert "a copy on devices 0, 2, exchanged once per mini-batch" in printed
    assert "skip connections" not in command.succeed("show", "1f1b", *SHAPE)


def test_show_says_that_one_device_needs_no_exchange(command: Command) -> None:
    printed = command.succeed("show", "zb-v", "--devices", "2", "--micro-batches", "4", "--ties", "0-3")

    assert "one copy on device 0, nothing is exchanged" in printed


def test_simulate_predicts_what_skips_and_ties_cost(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "three.cluster.toml"
    path.write_text(
        'schema = "schedir.cluster/1"\n[device]\nmemory = "1 GB"\n[hosts]\ncount = 1\ndevices_per_host = 3\n'
        '[[links]]\nname = "wire"\njoins = "host"\nbandwidth = "1 MB/s"\nlatency = "0 s"\n',
        encoding="utf-8",
    )
    given = ("simulate", "1f1b", *SHAPE, "--json", "--cluster", str(path), "--transfer-bytes", "1 MB")
    alone, skipping = (json.loads(command.succeed(*given, *more)) for more in ((), ("--skips", "0-2", "--skip-bytes", "10 MB")))

    assert alone["makespan_s"] < skipping["makespan_s"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--skips", "0-2-1"), "--skips 0-2-1 has 3 stages: give two for each, as 0-2"),
        (("--skips", "0-1"), "skip (0, 1) does not lead over a stage of 0..2: give source + 1 < target"),
        (("--ties", "0"), "tie (0,) does not name stages of 0..2: give two or more, each once, as (0, 3)"),
        (("--ties", "x"), "--ties x must be stages joined by -, comma-separated, as 0-2,1-3"),
    ],
)
def test_what_is_no_pair_of_stages_is_refused(command: Command, flags: tuple[str, ...], message: str) -> None:
    assert message in command.fail("show", "1f1b", *SHAPE, *flags)


def test_check_trains_no_skips(command: Command) -> None:
    refused = command.fail("check", "1f1b", *SHAPE, "--skips", "0-2", "--gradients")

    assert "--gradients trains equal layers without skip connections" in refused
