"""Delays of processes from their messages, worked out by hand in whole nanoseconds."""

from executor.workers.distributed.exchange.flights import Flight, shifts


def test_times_that_are_right_are_not_delayed() -> None:
    assert shifts([Flight(0, 1, 100, 110), Flight(1, 0, 120, 125)], 2) == [0, 0]


def test_a_message_that_arrives_before_it_is_sent_delays_its_receiver_by_as_much() -> None:
    assert shifts([Flight(0, 1, 100, 93), Flight(1, 0, 200, 230)], 2) == [0, 7]


def test_delays_go_on_from_process_to_process() -> None:
    """1 is 7 too early for 0; moved, its message to 2, which took 3, arrives 4 too early."""
    assert shifts([Flight(0, 1, 100, 93), Flight(1, 2, 200, 203)], 3) == [0, 7, 4]


def test_no_delay_mends_clocks_of_which_each_is_too_early_for_the_other() -> None:
    assert shifts([Flight(0, 1, 100, 93), Flight(1, 0, 200, 195)], 2) is None
