from pathlib import Path

import pytest

from schedir.costs.files.costs_file import load_costs
from schedir.errors import FormatError


def test_a_file_nested_without_end_is_one_line(tmp_path: Path) -> None:
    deep = tmp_path / "deep.toml"
    deep.write_text("a." * 5000 + "b = 1\n")
    with pytest.raises(FormatError, match=r"deep\.toml: is nested too deeply to be read: write it flat"):
        load_costs(deep)
