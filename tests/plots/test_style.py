import pytest

from plots.style import Look, Style


@pytest.mark.parametrize(("style", "width", "font_size"), [("paper", 7, 8), ("screen", 12, 11), ("gray", 7, 8)])
def test_a_style_has_sizes_of_its_own(style: str, width: float, font_size: float) -> None:
    assert Look.of(style=style) == Look(Style(style), width, font_size, grows=style == "screen")
