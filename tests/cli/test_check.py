"""`schedir check`: valid schedules are proved, invalid ones explained."""

from tests.cli.command import Command


def test_a_valid_schedule_is_proved(command: Command) -> None:
    said = command.succeed("check", "1f1b", "--devices", 2, "--micro-batches", 4)

    assert said.splitlines()[0] == "1f1b: 2 devices, 2 stages, 1 mini-batch of 4 micro-batches; 18 tasks, 8 transfers"
    assert said.splitlines()[-1] == (
        "valid: every action once, no action before what it needs, no deadlock, versions as the rule says"
    )


def test_blocking_sends_are_an_error_only_when_asked_for(command: Command) -> None:
    """Plain 1F1B deadlocks under rendezvous sends: device 0 stands in the send of 0F1, device 1 in that of 1B0."""
    assert "blocking sends: deadlock" in command.succeed("check", "1f1b", "--devices", 2)

    result = command("check", "1f1b", "--devices", 2, "--micro-batches", 2, "--sends", "rendezvous")
    assert result.code == 2
    assert "^^^ <-- its send never ends" in result.out
    assert result.err.startswith("error: deadlock under blocking sends: device 0 sends 0F1 to device 1; device 1 sends 1B0 to")
    assert result.err.count("\n") == 1


def test_a_schedule_without_crossing_sends_runs_with_blocking_ones(command: Command) -> None:
    assert "blocking sends: runs to its end" in command.succeed("check", "gpipe", "--sends", "rendezvous")


def test_an_unknown_word_for_sends_is_refused(command: Command) -> None:
    assert command.fail("check", "gpipe", "--sends", "fast") == "--sends fast is unknown: use buffered, rendezvous"
