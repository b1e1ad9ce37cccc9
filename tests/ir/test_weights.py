"""Weight rules and the options that they have."""

import pytest

from schedir.errors import ArgumentError
from schedir.ir.weights import BackwardWeights, Rule, WeightRule


def test_only_the_rule_latest_is_synchronous() -> None:
    assert [rule.value for rule in Rule if WeightRule(rule).synchronous] == ["latest"]


def test_a_rule_prints_as_files_spell_it() -> None:
    assert [str(WeightRule(rule)) for rule in Rule] == ["latest", "current", "stash", "vertical-sync", "double-buffer", "predict"]


def test_predict_takes_a_horizon_and_a_stash_for_backwards() -> None:
    rule = WeightRule(Rule.PREDICT, 3, BackwardWeights.STASH)

    assert (rule.horizon, rule.backward) == (3, BackwardWeights.STASH)


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (Rule.STASH, {"horizon": "exact"}, "horizon exact needs weights 'predict', but weights are 'stash'"),
        (Rule.LATEST, {"horizon": 0}, "horizon 0 needs weights 'predict', but weights are 'latest'"),
        (
            Rule.STASH,
            {"backward": BackwardWeights.STASH},
            "backward_weights stash needs weights 'predict', but weights are 'stash'",
        ),
        (Rule.PREDICT, {"horizon": "far"}, "horizon 'far' is unknown: use exact"),
    ],
)
def test_options_that_a_rule_does_not_have_are_refused(rule: Rule, options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        WeightRule(rule, **options)  # type: ignore[arg-type] # the options of the parameters above
