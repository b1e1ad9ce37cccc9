"""Building blocks: slots, priorities, and how many activations they hold."""

import pytest

from schedir.schedules.layout.blocks import Block, straight, vee
from schedir.schedules.layout.listing import Priority

HOSTED = [(d, 7 - d) for d in range(4)]


def test_the_slots_of_a_straight_block() -> None:
    """Down 1 slot a stage, up 2: the 1F1B of three kinds of work."""
    block = straight(3, legs=(1, 2), turn=1)

    assert block.forward == (0, 1, 2)
    assert block.input_grad == (7, 5, 3)
    assert block.period == 3


def test_the_slots_of_a_v() -> None:
    block = vee(2, legs=(1, 2, 3, 4), turns=(5, 6, 7))

    assert block.forward == (0, 1, 6, 8)  # stages 0, 1 down; the turn; 2, 3 up
    assert block.input_grad == (28, 24, 17, 14)  # the loss; 3, 2 down; the turn; 1, 0 up
    assert block.period == 6


def test_what_stands_in_an_earlier_slot_runs_first() -> None:
    block = vee(2, legs=(3, 3, 3, 3), turns=(1, 1, 1))

    assert block.priority == Priority(block.forward, block.input_grad, block.period)
    assert (block.forward, block.input_grad, block.period) == ((0, 3, 4, 7), (15, 12, 11, 8), 6)


@pytest.mark.parametrize("devices", range(1, 9))
def test_no_two_pieces_of_the_blocks_in_use_fall_on_one_slot(devices: int) -> None:
    """Slots repeat with the period, and each device needs a third of them for W."""
    block = vee(devices, legs=(3, 3, 3, 3), turns=(1, 1, 1))
    for device in range(devices):
        stages = (device, 2 * devices - 1 - device)
        slots = [column[stage] % block.period for column in (block.forward, block.input_grad) for stage in stages]
        assert len(set(slots)) == 4
    one, other = straight(devices, legs=(1, 2), turn=1), straight(devices, legs=(3, 3), turn=1)
    assert all(block.forward[k] % 3 != block.input_grad[k] % 3 for block in (one, other) for k in range(devices))


@pytest.mark.parametrize(("period", "live"), [(1, 3), (2, 2), (3, 1), (4, 1)])
def test_an_activation_lives_to_the_end_of_the_slot_of_its_input_gradient(period: int, live: int) -> None:
    """F in slot 0, I in slot 2: three slots; W right behind I frees it."""
    assert Block((0,), (2,), period).live([(0,)]) == live


def test_what_lives_is_the_life_of_an_activation_over_the_period() -> None:
    """p = 4: near F in slots 0, 3, 6, 9 and I 25 … 43 later; far F and I between them."""
    block = vee(4, legs=(3, 3, 3, 3), turns=(1, 1, 1))

    assert block.forward == (0, 3, 6, 9, 10, 13, 16, 19)
    assert block.input_grad == (39, 36, 33, 30, 29, 26, 23, 20)
    assert block.live(HOSTED) == 8  # device 0: ceil(40/6) = 7 near ones, and a far one
    assert straight(4, legs=(1, 2), turn=1).live([(k,) for k in range(4)]) == 4
    assert straight(4, legs=(3, 3), turn=1).live([(k,) for k in range(4)]) == 7  # 2p - 1


@pytest.mark.parametrize("limit", [2, 3, 4, 6, 8])
def test_the_period_grows_until_the_block_fits(limit: int) -> None:
    block = vee(4, legs=(3, 3, 3, 3), turns=(1, 1, 1)).within(limit, HOSTED)
    shorter = Block(block.forward, block.input_grad, block.period - 1)

    assert block.live(HOSTED) <= limit
    assert block.period == 6 or shorter.live(HOSTED) > limit
