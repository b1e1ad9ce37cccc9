from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Patch

from plots.gantt import gantt
from plots.palette import GROUP_COLOURS, KIND_COLOURS, lighter
from schedir.errors import ArgumentError, SchedirWarning
from schedir.ir.action import Kind
from schedir.schedules.registry import build_program
from tests.plots.pictures import (
    BARS,
    beyond_page,
    extents,
    fill_of,
    fills,
    labels,
    legend,
    outside_bars,
    overlapping,
    vertices,
    words,
)
from tests.plots.timelines import measured, of_program, predicted

FORWARD, BACKWARD, RECOMPUTE = (KIND_COLOURS[kind] for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.RECOMPUTE))
UPDATE, PREDICT, TRANSFER = (KIND_COLOURS[kind] for kind in (Kind.UPDATE, Kind.PREDICT, Kind.TRANSFER))


def test_every_task_has_a_bar_where_it_ran() -> None:
    # 1F1B, p = 2, m = 2, F = 1, B = 2: the grid of the schedule.
    #   0 F0 F1 .  B0 B0 .  B1 B1 .      row 0
    #   .  F0 B0 B0 F1 B1 B1             row 1
    (axes,) = gantt(predicted("1f1b", 2, 2)).axes

    assert extents(axes, FORWARD) == {(0, 1, 0), (1, 2, 0), (1, 2, 1), (4, 5, 1)}
    assert extents(axes, BACKWARD) == {(4, 6, 0), (7, 9, 0), (2, 4, 1), (5, 7, 1)}


def test_work_that_takes_no_time_has_no_bar() -> None:
    (axes,) = gantt(predicted("xpipe", 2, 2, mini_batches=2)).axes

    assert fills(axes) & {UPDATE, PREDICT, TRANSFER} == set()


def test_updates_predictions_and_recomputation_have_bars() -> None:
    figure = gantt(predicted("xpipe", 2, 2, mini_batches=2, update=0.5, predict=0.25, recompute_mode="always"))

    assert {UPDATE, PREDICT, RECOMPUTE} <= fills(figure.axes[0])
    assert legend(figure) == [
        "F forward",
        "B backward",
        "R recompute",
        "P predict",
        "U update",
        "shades: mini-batches alternate",
        "idle",
    ]


def test_the_text_names_schedule_shape_makespan_bubble_and_durations() -> None:
    # 33 s and 0.272727: formats/1f1b-4-8.simulate.json.
    assert words(gantt(predicted("1f1b", 4, 8))).splitlines() == [
        "1f1b, p = 4, m = 8",
        "predicted: makespan 33 s, bubble of the whole run 27.3 %, F 1 s, B 2 s, taken as free: updates, transfers",
    ]


def test_what_took_no_time_to_measure_is_not_called_free() -> None:
    """Nobody has set it so: in shared memory a transfer has arrived at once."""
    assert words(gantt(measured(predicted("1f1b", 2, 2)))).count("free") == 0


def test_durations_that_differ_by_stage_are_printed_as_a_range() -> None:
    text = words(gantt(predicted("gpipe", 2, 2, forward=(0.010, 0.0125), backward=(0.02, 0.02), transfer=0.003)))

    assert "F 10–12.5 ms, B 20 ms, transfer 3 ms,\ntaken as free: updates" in text


def test_durations_share_a_unit_unless_one_is_far_smaller() -> None:
    text = words(gantt(predicted("gpipe", 2, 2, update=0.25, transfer=0.0125)))

    assert "F 1 s, B 2 s, U 0.25 s, transfer 12.5 ms" in text


def test_recomputation_and_mini_batches_are_named() -> None:
    text = words(gantt(predicted("pipedream", 2, 1, mini_batches=3, recompute_mode="always", recompute=0.5)))

    assert "pipedream, p = 2, m = 1, 3 mini-batches, recompute always" in text
    assert "R 0.5 s" in text


@pytest.mark.parametrize(("seconds", "unit"), [(1.0, "s"), (1e-3, "ms"), (2e-6, "µs")])
def test_the_time_axis_chooses_its_unit(seconds: float, unit: str) -> None:
    (axes,) = gantt(predicted("gpipe", 2, 2, forward=seconds, backward=2 * seconds)).axes

    assert axes.get_xlabel() == f"time ({unit})"
    assert 1 <= axes.get_xlim()[1] < 1000


def test_a_prediction_stands_above_its_measurement_on_one_time_axis() -> None:
    prediction = predicted("1f1b", 2, 4)
    figure = gantt(measured(prediction), prediction)
    above, below = figure.axes
    first, second = words(figure).splitlines()[1:3]

    assert first.startswith("predicted: makespan 15 s")  # (4 + 2 - 1) x (1 + 2)
    assert second.startswith("measured: makespan")
    assert above.get_position().y0 > below.get_position().y1
    assert above.get_xlim() == below.get_xlim()
    assert above.get_position().x0 == below.get_position().x0


def test_a_measurement_says_how_far_it_is_from_its_prediction() -> None:
    prediction = predicted("1f1b", 2, 4)
    longer = replace(measured(prediction, jitter=0.0), end=prediction.end * 1.1, start=prediction.start * 1.1)

    assert "makespan 16.5 s (error -9.1 %)" in words(gantt(prediction, longer))


def test_times_count_from_the_first_start() -> None:
    prediction = predicted("gpipe", 2, 2)
    (axes,) = gantt(measured(prediction, jitter=0.0, begin=1e6)).axes

    assert min(left for left, _, _ in extents(axes, FORWARD)) == 0


def test_several_programs_each_have_their_heading() -> None:
    figure = gantt(predicted("gpipe", 2, 2), predicted("1f1b", 2, 2))

    assert [line for line in words(figure).splitlines() if "p = 2" in line] == ["gpipe, p = 2, m = 2", "1f1b, p = 2, m = 2"]


def test_ways_to_recompute_are_told_apart() -> None:
    program = predicted("gpipe", 2, 2).graph.program
    ways = [
        of_program(program, recompute_mode=mode, recompute_start=start) for mode, start in (("never", "early"), ("always", "early"))
    ]
    ways.append(of_program(program, recompute_mode="always", recompute_start="on-gradient"))

    assert [line for line in words(gantt(*ways)).splitlines() if line.startswith("gpipe")] == [
        "gpipe, p = 2, m = 2",
        "gpipe, p = 2, m = 2, recompute always",
        "gpipe, p = 2, m = 2, recompute always on gradient",
    ]


def test_a_title_takes_the_place_of_the_first_line() -> None:
    assert words(gantt(predicted("gpipe", 2, 2), title="Figure 2c")).splitlines()[0] == "Figure 2c"


def test_an_empty_title_leaves_all_text_to_the_caption() -> None:
    prediction = predicted("gpipe", 2, 2)

    assert words(gantt(prediction, title="")) == ""
    assert words(gantt(prediction, measured(prediction), title="")) == "predicted\nmeasured"


def test_mini_batches_of_a_continuous_schedule_differ_in_shade() -> None:
    (axes,) = gantt(predicted("pipedream", 2, 1, mini_batches=2)).axes

    assert extents(axes, FORWARD) == {(0, 1, 0), (1, 2, 1)}  # mini-batch 0
    assert extents(axes, lighter(FORWARD, 0.5)) == {(1, 2, 0), (4, 5, 1)}  # mini-batch 1


def test_idle_time_is_a_background_as_long_as_the_run() -> None:
    prediction = predicted("1f1b", 2, 4)
    longer = replace(measured(prediction, jitter=0.0), end=prediction.end * 1.2, start=prediction.start * 1.2)
    above, below = gantt(prediction, longer).axes

    assert extents(above, "#EFEFEF") == {(0, 15, 0), (0, 15, 1)}
    assert extents(below, "#EFEFEF") == {(0, 18, 0), (0, 18, 1)}


def test_all_labels_have_a_letter_and_a_number_and_what_has_no_room_for_both_stays_empty() -> None:
    wide, narrow = gantt(predicted("1f1b", 2, 2)), gantt(predicted("1f1b", 2, 24), width=4)

    assert sorted(labels(wide.axes[0])) == ["B0", "B0", "B1", "B1", "F0", "F0", "F1", "F1"]
    assert set(labels(narrow.axes[0])) == {f"B{number}" for number in range(10)}


def test_labels_name_the_stage_where_devices_host_several_and_no_colour_does() -> None:
    looped = of_program(build_program("looped-bfs", num_devices=2, num_micro_batches=1, stages_per_device=2))

    assert set(labels(gantt(looped).axes[0])) == {f"{stage}{kind}0" for stage in range(4) for kind in "FB"}
    assert set(labels(gantt(looped, color_by="stage").axes[0])) == {"F0", "B0"}


def test_bars_narrower_than_text_have_none() -> None:
    assert labels(gantt(predicted("1f1b", 4, 200)).axes[0]) == []


def test_numbering_from_one_changes_devices_and_micro_batches() -> None:
    (axes,) = gantt(predicted("1f1b", 2, 2), number_from=1).axes

    assert sorted(labels(axes)) == ["B1", "B1", "B2", "B2", "F1", "F1", "F2", "F2"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "2"]


@pytest.mark.parametrize(("style", "color_by"), [("paper", "kind"), ("screen", "stage"), ("gray", "mini-batch"), ("gray", "kind")])
def test_labels_lie_inside_their_bars_and_no_text_meets_another(style: str, color_by: str) -> None:
    timeline = predicted("xpipe", 3, 2, mini_batches=2, update=0.3, predict=0.4, recompute_mode="always")
    figure = gantt(timeline, measured(timeline), style=style, color_by=color_by, memory=True, links=True)

    assert overlapping(figure) == []
    assert beyond_page(figure) == []
    assert outside_bars(figure) == []


def test_gray_pictures_hold_no_colour_and_tell_kinds_apart_by_hatching() -> None:
    timeline = predicted("xpipe", 2, 2, mini_batches=4, update=0.3, predict=0.4, recompute_mode="always")
    (axes,) = gantt(timeline, style="gray").axes

    assert all(len({fill[1:3], fill[3:5], fill[5:7]}) == 1 for fill in fills(axes))
    plain, turned = {None, "....", "xxxx"}, {"---", "....---"}
    assert {artist.get_hatch() for artist in axes.collections} == plain | turned  # turned: mini-batches 1 and 3


def test_colours_by_stage_differ_from_stage_to_stage() -> None:
    figure = gantt(predicted("1f1b", 4, 2), color_by="stage")
    backward = {fill_of(artist) for artist in figure.axes[0].collections if len(artist.get_paths()) == 2}

    assert len(backward) == 8  # light for forward and full for backward, each stage its own
    assert [label for label in legend(figure) if "stage" in label] == ["stage 0", "stage 1", "stage 2", "stage 3"]


def test_many_stages_share_one_entry_of_the_legend() -> None:
    figure = gantt(predicted("1f1b", 13, 2), color_by="stage", number_from=1)

    assert "stages 1–13" in legend(figure)


def test_twelve_mini_batches_have_twelve_colours_and_predictions_none_of_them() -> None:
    timeline = predicted("xpipe", 2, 1, mini_batches=12, update=0.3, predict=0.4)
    (axes,) = gantt(timeline, color_by="mini-batch").axes
    found = fills(axes)

    assert len(found) == 2 * 12 + 3  # forward and backward of each; updates, predictions, idle
    assert found >= {"#000000", "#FFFFFF", *GROUP_COLOURS}
    assert PREDICT in GROUP_COLOURS  # which is why predictions are white and hatched here


def test_gray_pictures_by_stage_tell_stages_apart_by_hatching_and_kinds_by_their_grey() -> None:
    figure = gantt(predicted("zb-h1", 4, 4), color_by="stage", style="gray")
    (axes,) = figure.axes
    drawn = {(fill_of(a), a.get_hatch()) for a in axes.collections if a.get_zorder() == BARS}

    assert drawn == {(grey, hatch) for grey in ("#E2E2E2", "#787878", "#ABABAB") for hatch in ("////", "....", "\\\\\\\\", "xxxx")}
    assert [label for label in legend(figure) if "stage" in label] == ["stage 0", "stage 1", "stage 2", "stage 3"]


def test_a_title_with_dollars_is_no_formula() -> None:
    assert "cost $5 against $x_" in words(gantt(predicted("1f1b", 2, 2), title="cost $5 against $x_"))


def test_characters_that_the_font_lacks_are_replaced_with_a_warning() -> None:
    with pytest.warns(SchedirWarning, match="^the font of pictures, DejaVu Sans, lacks 数: \\? is drawn for each$"):
        figure = gantt(predicted("1f1b", 2, 2), title="a 数 b 数")

    assert "a ? b ?" in words(figure)


def test_links_have_rows_in_which_transfers_lean_by_their_latency() -> None:
    (axes,) = gantt(predicted("1f1b", 2, 1, transfer=0.5), links=True).axes
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    corners = sorted(
        vertices(path)[:4, 0].round(6).tolist() for c in axes.collections if fill_of(c) == TRANSFER for path in c.get_paths()
    )

    assert sorted(ticks) == ["0", "0→1", "1", "1→0"]
    # upper edge, then lower edge: the activation goes down from 1 to 1.5, the gradient up from 4.5 to 5
    assert corners == [[1.0, 1.0, 1.5, 1.5], [5.0, 5.0, 4.5, 4.5]]


def test_tasks_that_were_not_recorded_are_left_out() -> None:
    timeline = predicted("gpipe", 2, 2)
    start = timeline.start.copy()
    start[0] = np.nan
    (axes,) = gantt(replace(timeline, start=start, end=np.where(np.isnan(start), np.nan, timeline.end))).axes

    assert len(extents(axes, FORWARD)) == 3


@pytest.mark.parametrize(
    ("name", "devices", "micro_batches"),
    [("gpipe", 1, 1), ("pipedream", 1, 5), ("xpipe", 2, 1), ("1f1b", 3, 2), ("xpipe", 6, 3), ("1f1b", 16, 64)],
)
def test_every_shape_is_drawn_without_text_over_text(name: str, devices: int, micro_batches: int) -> None:
    mini_batches = 2 if name in {"pipedream", "xpipe"} else 1
    figure = gantt(predicted(name, devices, micro_batches, mini_batches=mini_batches, update=0.5), memory=True, links=True)

    assert overlapping(figure) == []
    assert beyond_page(figure) == []


@pytest.mark.parametrize("width", [2.0, 3.3, 20.0])
def test_every_width_is_kept_exactly(width: float) -> None:
    figure = gantt(predicted("1f1b", 4, 8), width=width, font_size=7, memory=True)

    assert figure.get_figwidth() == width
    assert overlapping(figure) == []
    assert beyond_page(figure) == []


def test_a_run_in_which_nothing_takes_time_is_drawn() -> None:
    figure = gantt(predicted("gpipe", 2, 2, forward=0, backward=0))

    assert "makespan 0 s" in words(figure)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"style": "poster"}, "style 'poster' is unknown: use one of paper, screen, gray"),
        ({"color_by": "device"}, "color_by 'device' is unknown: use one of kind, stage, mini-batch"),
        ({"number_from": 2}, "number_from 2 is neither 0 nor 1"),
        ({"width": 0.5}, "width 0.5 is out of range: give 1.5 to 100 inches"),
        ({"width": float("nan")}, "width nan is out of range"),
        ({"font_size": 100}, "font_size 100 is out of range: give 3 to 72 points"),
    ],
)
def test_values_that_cannot_be_drawn_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        gantt(predicted("gpipe", 2, 2), **options)  # type: ignore[arg-type] # wrong on purpose


def test_a_picture_of_nothing_is_refused() -> None:
    timeline = predicted("gpipe", 2, 2)
    empty = replace(timeline, start=np.full_like(timeline.start, np.nan), end=np.full_like(timeline.end, np.nan))

    with pytest.raises(ArgumentError, match="no timeline was given"):
        gantt()
    with pytest.raises(ArgumentError, match="timeline of gpipe has no recorded span"):
        gantt(empty)


def test_both_bubbles_stand_under_their_names() -> None:
    # pipedream, p = 2, m = 1, 12 mini-batches: every device idles 3 s of 39 (7.7 %), and never in steady state
    text = words(gantt(predicted("pipedream", 2, 1, mini_batches=12)))

    assert "bubble of the whole run 7.7 %, steady state 3 s per mini-batch, steady bubble 0.0 %" in text.replace("\n", " ")


def test_a_legend_shows_both_shades_of_every_kind() -> None:
    figure = gantt(predicted("pipedream", 2, 1, mini_batches=2))
    handles = dict(zip(legend(figure), figure.legends[0].legend_handles, strict=True))
    drawn = fills(figure.axes[0]) - {"#EFEFEF"}
    shown = {to_hex(patch.get_facecolor()).upper() for patch in figure.legends[0].findobj(Patch)}

    assert set(handles) == {"F forward", "B backward", "shades: mini-batches alternate", "idle"}
    assert len(drawn) == 4
    assert drawn <= shown


def test_only_panels_of_several_stages_per_device_name_stages_in_labels() -> None:
    interleaved = of_program(build_program("interleaved-1f1b", num_devices=2, num_micro_batches=2))
    above, below = gantt(interleaved, predicted("1f1b", 2, 2)).axes

    assert "0F0" in labels(above)
    assert {"F0", "F1", "B0", "B1"} == set(labels(below))


def test_a_picture_for_the_screen_grows_until_labels_have_room_and_others_keep_their_width() -> None:
    timeline = predicted("1f1b", 4, 28)  # 4.5 points need some 9 for F10: 93 s are 8.5 a second at 12 inches

    assert gantt(timeline, style="screen").get_figwidth() == 14
    assert gantt(timeline, style="screen", width=12).get_figwidth() == 12
    assert gantt(timeline).get_figwidth() == 7
    assert gantt(predicted("1f1b", 4, 200), style="screen").get_figwidth() == 12  # no width would do


def test_timelines_of_one_program_may_be_given_names() -> None:
    timeline = predicted("gpipe", 2, 2)
    text = words(gantt(timeline, replace(timeline, meta={"label": "with faster links"})))

    assert [line.split(":")[0] for line in text.splitlines()[1:]] == ["predicted", "with faster links"]


def test_a_heading_says_what_stages_hold_where_costs_were_given_for_others() -> None:
    program = build_program("interleaved-1f1b", num_devices=2, num_micro_batches=2)
    timeline = replace(of_program(program), meta={"stage_work": "each with half of the work of 1f1b's"})

    assert words(gantt(timeline)).splitlines()[0] == (
        "interleaved-1f1b, p = 2, m = 2, 2 stages per device each with half of the work of 1f1b's"
    )


@pytest.mark.parametrize("wrong", [None, 5, "a", []], ids=repr)
def test_what_is_no_timeline_is_named(wrong: object) -> None:
    with pytest.raises(ArgumentError, match=r"timeline .*: give what simulate"):
        gantt(wrong)  # type: ignore[arg-type]  # the point
