"""Cells of torch's CSV: what is one, and what is said about all others."""

import pytest

from schedir.interop.torch_cells import FIRST_WORD, fault_of, split_cells


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("0F0", (ord("F"), 0, 0)),
        ("12W7", (ord("W"), 12, 7)),
        ("1SEND_F3", (FIRST_WORD, 1, 3)),
        ("2RECV_B0", (FIRST_WORD + 3, 2, 0)),
        ("2REDUCE_GRAD", (FIRST_WORD + 6, 2, -1)),
        ("0UNSHARD", (FIRST_WORD + 4, 0, -1)),
        ("3RESHARD", (FIRST_WORD + 5, 3, -1)),
        ("7I999999999", (ord("I"), 7, 999_999_999)),
    ],
)
def test_actions_and_communication_are_split(text: str, parts: tuple[int, int, int]) -> None:
    found = split_cells([text, "3W1"])

    assert found is not None
    assert list(zip(*(column.tolist() for column in found), strict=True)) == [parts, (ord("W"), 3, 1)]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0F1_oops", "has '_oops' behind 0F1, which torch drops without a word: write 0F1, if that is meant"),
        ("0SEND_F1;", "has ';' behind 0SEND_F1"),
        ("0FF3", "action 'FF' is unknown: did you mean F?"),
        ("0f3", "action 'f' is unknown: did you mean F?"),
        ("0FORWARD3", "action 'FORWARD' is unknown: did you mean F?"),
        ("0BACKWARD_WEIGHT3", "action 'BACKWARD_WEIGHT' is unknown: did you mean W?"),
        ("2SENDF1", "action 'SENDF' is unknown: did you mean SEND_F?"),
        ("2RECVB_1", "action 'RECVB_' is unknown: did you mean RECV_B?"),
        ("2send_b1", "action 'send_b' is unknown: did you mean SEND_B?"),
        ("1REDUCEGRAD", "action 'REDUCEGRAD' is unknown: did you mean REDUCE_GRAD?"),
        ("1UNSHRD", "action 'UNSHRD' is unknown: did you mean UNSHARD?"),
        ("0X1", "action 'X' is unknown: use F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD, REDUCE_GRAD or a pair"),
        ("01", "the action is missing: use F, B"),
        ("F1", "is no action: write <stage><word><micro-batch>, like 2F0 or 2SEND_F0"),
        ("0F", "has no micro-batch: write <stage>F<micro-batch>, like 0F0"),
        ("0SEND_F", "has no micro-batch: write <stage>SEND_F<micro-batch>, like 0SEND_F0"),
        ("1REDUCE_GRAD0", "has a micro-batch, but REDUCE_GRAD concerns the whole stage: write 1REDUCE_GRAD"),
        ("0B1234567890", "has a number of more than nine digits"),
    ],
)
def test_what_is_no_cell_is_explained_with_the_nearest(text: str, fault: str) -> None:
    assert split_cells(["0F0", text]) is None
    said = fault_of(text)
    assert said.startswith(repr(text))
    assert fault in said
    assert "\n" not in said
