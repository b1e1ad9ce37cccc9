"""What Python says about arguments, in the words of the command line."""

import pytest

from schedir.cli.flags.flag_names import FlagNames

NAMES = FlagNames(
    {
        "--forward": "1,2,3",
        "--transfer": None,
        "--devices": "4",
        "--recompute": None,
        "--recompute-time": "1,2",
        "--memory-limit": "10GB",
        "--horizon": "far",
        "--weight-grad": None,
        "--costs": "x.toml",
        "--timeout": None,
    }
)


@pytest.mark.parametrize(
    ("message", "translated"),
    [
        ("forward has 3 values, but 1f1b has 4 stages", "--forward 1,2,3 has 3 values, but 1f1b has 4 stages"),
        ("horizon 'far' is unknown", "--horizon far is unknown"),
        ("memory_limit 10000000000.0 is compared", "--memory-limit 10GB is compared"),
        ("forward (1.0, 2.0, 3.0) is wrong", "--forward 1,2,3 is wrong"),
        ("num_devices 4 contradicts x.toml", "--devices 4 contradicts x.toml"),
        ("give weight_grad, num_devices is 4", "give --weight-grad, --devices is 4"),
        ("no task ended for 600 s: raise timeout if", "no task ended for 600 s: raise --timeout if"),
        ("recompute has 2 values", "--recompute-time 1,2 has 2 values"),
        ("schedule 1f1b has no option 'horizon': it has none", "schedule 1f1b has no option --horizon: it has none"),
    ],
)
def test_names_of_arguments_become_flags(message: str, translated: str) -> None:
    assert NAMES.translate(message) == translated


@pytest.mark.parametrize(
    "message",
    [
        "costs per layer need a cut",
        "forward passes of 1f1b differ",
        "transfer has 2 values",  # nothing was given that could be shown, and the name is a word of the language
        "out/num_devices.toml cannot be written",
        "key 'num_devices' stands twice",
        "a memory_limit_of is no argument",
        "a timeout came: did raise timeout=3 help?",
    ],
)
def test_what_is_no_argument_stays(message: str) -> None:
    assert NAMES.translate(message) == message


def test_of_two_flags_for_one_argument_none_is_guessed() -> None:
    names = FlagNames({"--recompute": "always,never", "--recompute-time": "1,2"})

    assert names.translate("recompute has 2 values") == "recompute has 2 values"


def test_an_option_that_stands_behind_option_keeps_its_name() -> None:
    assert NAMES.translate("--option num_devices=3: give --devices 3") == "--option num_devices=3: give --devices 3"


def test_an_option_whose_flag_was_not_given_keeps_its_name() -> None:
    assert NAMES.translate("schedule 1f1b has no option 'transfer'") == "schedule 1f1b has no option 'transfer'"
