"""The names that other people's code may rely on; a name is added or taken away here on purpose, never by accident."""

import importlib

import pytest

PUBLIC_NAMES: dict[str, list[str]] = {
    "executor": [
        "Clip",
        "LossScaling",
        "Pipeline",
        "ProfileOptions",
        "Recipe",
        "Run",
        "Skip",
        "Stages",
        "Step",
        "Trainer",
        "emulate",
        "profile",
        "train",
    ],
    "plots": ["comparison", "gantt", "memory", "picture_format", "save"],
    "schedir": [
        "ArgumentError",
        "Clip",
        "DeadlockError",
        "FormatError",
        "Metrics",
        "Pipeline",
        "Program",
        "ProgramError",
        "Recipe",
        "RefusedError",
        "RunError",
        "SchedirError",
        "TableCosts",
        "TaskGraph",
        "Timeline",
        "Trainer",
        "UniformCosts",
        "build_program",
        "compare",
        "compile_program",
        "gantt",
        "load_cluster",
        "load_costs",
        "load_program",
        "load_timeline",
        "load_timelines",
        "metrics",
        "monte_carlo",
        "save_costs",
        "simulate",
        "split",
        "train",
        "write_trace",
    ],
    "simulator": ["MonteCarlo", "monte_carlo", "simulate"],
}


@pytest.mark.parametrize("package", PUBLIC_NAMES)
def test_a_package_exports_exactly_its_public_names(package: str) -> None:
    assert importlib.import_module(package).__all__ == PUBLIC_NAMES[package]


@pytest.mark.parametrize("package", PUBLIC_NAMES)
def test_every_public_name_can_be_used_and_is_shown_by_dir(package: str) -> None:
    module = importlib.import_module(package)

    assert [name for name in PUBLIC_NAMES[package] if not hasattr(module, name)] == []
    assert [name for name in PUBLIC_NAMES[package] if name not in dir(module)] == []


def test_names_that_schedir_does_not_have_are_refused() -> None:
    import schedir

    with pytest.raises(AttributeError, match="module 'schedir' has no attribute 'simulat'"):
        _ = schedir.simulat


def test_without_torch_help_shows_what_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    import schedir

    monkeypatch.setattr(schedir, "find_spec", lambda name: None if name == "torch" else object())

    assert {"Pipeline", "train"} & set(dir(schedir)) == set()
    assert "simulate" in dir(schedir)


def test_the_text_of_the_package_names_everything_public() -> None:
    import schedir

    named = str(schedir.__doc__)

    assert [name for name in ("simulate", "train", "compare", "gantt", "load_costs", "write_trace") if name not in named] == []
