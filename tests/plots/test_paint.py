"""Fills of bars and the legend's boxes."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Patch

from plots.gantt import gantt
from tests.plots.pictures import BARS, fill_of, legend
from tests.plots.timelines import predicted


def test_gray_pictures_keep_the_greys_of_kinds_in_every_mini_batch() -> None:
    (axes,) = gantt(predicted("pipedream", 2, 1, mini_batches=2), style="gray").axes
    drawn = {(fill_of(artist), artist.get_hatch()) for artist in axes.collections if artist.get_zorder() == BARS}

    assert drawn == {("#D0D0D0", None), ("#8C8C8C", None), ("#D0D0D0", "---"), ("#8C8C8C", "---")}


@pytest.mark.parametrize("color_by", ["kind", "stage", "mini-batch"])
def test_no_two_boxes_of_a_gray_legend_look_alike(color_by: str) -> None:
    timeline = predicted("xpipe", 3, 2, mini_batches=3, update=0.3, predict=0.4, recompute_mode="always")
    figure = gantt(timeline, predicted("zb-h1", 3, 2), color_by=color_by, style="gray")
    boxes = [artist for artist in figure.legends[0].findobj(Patch) if artist is not figure.legends[0].get_frame()]
    looks = [(to_hex(box.get_facecolor()), box.get_hatch()) for box in boxes]
    # by kind, F, B, I, W and R have a box for each of two mini-batches in turn, and F's two stand once more for what they mean
    both = 5 if color_by == "kind" else 0

    assert len(looks) == len(legend(figure)) + both + bool(both)
    assert len(set(looks)) == len(looks) - 2 * bool(both)
