"""What a drawn picture holds, read from its artists."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from schedir.ir.arrays import Floats

BARS = 2
"""The z-order of bars."""


def fill_of(artist: Collection) -> str:
    """Return the fill of a collection's first part: `#RRGGBB`."""
    red, green, blue, _ = np.asarray(artist.get_facecolor(), np.float64)[0].tolist()
    return to_hex((red, green, blue)).upper()


def vertices(path: Path) -> Floats:
    """Return the corners of a path, float64 (num_corners, 2)."""
    return np.asarray(path.vertices, np.float64)


def bars(axes: Axes, *fills: str) -> list[Floats]:
    """Return the corners, each (4, 2), of all bars that have one of the fills."""
    found: list[Floats] = []
    for artist in axes.collections:
        if isinstance(artist, PolyCollection) and fill_of(artist) in fills:
            found.extend(vertices(path)[:4] for path in artist.get_paths())
    return found


def extents(axes: Axes, *fills: str) -> set[tuple[float, float, float]]:
    """Return (left, right, row) of all bars with one of the fills, rounded."""
    corners = bars(axes, *fills)
    return {(round(c[0, 0], 6), round(c[1, 0], 6), int(c[:, 1].mean())) for c in corners}


def fills(axes: Axes) -> set[str]:
    return {fill_of(artist) for artist in axes.collections if np.size(artist.get_facecolor())}


def labels(axes: Axes) -> list[str]:
    """Return the labels in bars."""
    return [text.get_text() for text in axes.texts]


def words(figure: Figure) -> str:
    """Return the lines above the panels."""
    return "\n".join(text.get_text() for text in figure.texts)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Return the pairs of texts whose boxes overlap by more than a pixel, tick labels and legend included."""
    shown = text_boxes(figure)
    boxes = np.array([box.extents for _, box in shown])
    low, high = boxes[:, None, :2], boxes[:, None, 2:]
    depth = np.minimum(high, boxes[None, :, 2:]) - np.maximum(low, boxes[None, :, :2])
    pairs = np.argwhere(np.triu((depth > 1).all(axis=2), k=1))
    return [(shown[one][0].get_text(), shown[other][0].get_text()) for one, other in pairs.tolist()]


def beyond_page(figure: Figure) -> list[str]:
    """Return the texts that the edge of the picture cuts."""
    page = figure.bbox.padded(1)
    return [text.get_text() for text, box in text_boxes(figure) if not (page.contains(*box.min) and page.contains(*box.max))]


def outside_bars(figure: Figure) -> list[str]:
    """Return the labels in Gantt panels that stick out of every bar, by more than two pixels in height."""
    extents = {text: box.extents for text, box in text_boxes(figure)}
    found = []
    for axes in figure.axes:
        paths = [path for artist in axes.collections if artist.get_zorder() == BARS for path in artist.get_paths()]
        if not paths:
            continue
        bars = np.array([axes.transData.transform_path(path).get_extents().extents for path in paths])
        bars += np.array((0, -2, 0, 2))
        for text in axes.texts:
            box = extents[text]
            inside = (bars[:, :2] <= box[:2]).all(axis=1) & (bars[:, 2:] >= box[2:]).all(axis=1)
            found += [] if inside.any() else [text.get_text()]
    return found


def text_boxes(figure: Figure) -> list[tuple[Text, Bbox]]:
    """Return every text that is drawn, with its box in pixels."""
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    hidden = {text for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in _hidden(axis)}
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text() and text not in hidden]
    return [(text, text.get_window_extent()) for text in texts]


def _hidden(axis: Axis) -> list[Text]:
    """Return the labels of an axis that are not drawn: those of ticks outside its limits, and those of the other side."""
    low, high = sorted(axis.get_view_interval())
    ticks = axis.get_major_ticks()
    outside = [tick for tick in ticks if not low - 1e-9 <= tick.get_loc() <= high + 1e-9]
    return [tick.label2 for tick in ticks] + [tick.label1 for tick in outside]
