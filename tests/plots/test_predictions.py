"""The picture of many configurations, predicted and measured."""

from __future__ import annotations

import pytest
from matplotlib.container import ErrorbarContainer

from plots.predictions import Predicted, predictions
from schedir.errors import ArgumentError

ROWS = (
    Predicted("1f1b m=4", group="mlp", predicted_s=0.095, measured_s=0.1, noise=0.05),
    Predicted("gpipe m=4", group="mlp", predicted_s=0.12, measured_s=0.12, noise=0.02),
    Predicted("1f1b m=4", group="transformer", predicted_s=0.22, measured_s=0.2, noise=0.1),
)


def test_every_configuration_has_its_name_its_error_and_its_noise() -> None:
    (axes,) = predictions(ROWS).axes
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["error", "mlp", "1f1b m=4", "-5.0 %", "gpipe m=4", "+0.0 %", "transformer", "1f1b m=4", "+10.0 %"]
    bars = [c.lines[2][0].get_segments()[0] for c in axes.containers if isinstance(c, ErrorbarContainer)]
    assert [bar[:, 0].tolist() for bar in bars] == [
        pytest.approx([95.0, 105.0]),
        pytest.approx([117.6, 122.4]),
        pytest.approx([180.0, 220.0]),
    ]


def test_the_legend_names_both_once() -> None:
    legend = predictions(ROWS).axes[0].get_legend()
    assert legend is not None
    assert sorted(text.get_text() for text in legend.get_texts()) == ["measured, ± noise floor", "predicted"]


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no predictions to draw: give at least one"):
        predictions([])
