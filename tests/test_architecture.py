"""What holds for the repository as a whole; the import contracts themselves stand in pyproject.toml."""

import ast
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from tests.repository import PACKAGES, ROOT, python_files, relative

FOLDERS = (*PACKAGES, "tests", "tools", "examples", "benchmarks")
MOST_LINES = 400


def configuration() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules_loaded_by(code: str) -> set[str]:
    """Run the code in a fresh interpreter and return the top-level modules that it has imported."""
    program = f"import sys\ntry:\n    {code}\nexcept SystemExit as stop:\n    assert not stop.code\n"
    report = "print('\\n' + ' '.join({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program + report], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def exported_names(path: Path) -> list[str] | None:
    """Return a module's `__all__` as it is written, without importing the module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign), f"{relative(path)}: __all__ is assigned once"
            assert node.value is not None
            return list(ast.literal_eval(node.value))
    return None


def module_of(path: Path) -> str:
    return relative(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imported_by(path: Path, modules: set[str]) -> set[str]:
    """Return our own modules that a module imports, wherever in it: also late, and for types only."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            # `from package import name`: a module of that name, else something in the package's own file
            names = {f"{node.module}.{name.name}" for name in node.names}
            found |= names & modules or {node.module}
    return found & modules


def test_importing_schedir_loads_no_dependency_but_numpy() -> None:
    loaded = modules_loaded_by("import schedir")

    assert loaded & {"matplotlib", "networkx", "pydantic", "rich", "simpy", "torch", "typer"} == set()
    assert loaded & {"executor", "plots", "simulator"} == set()


def test_help_of_the_command_line_loads_no_back_end() -> None:
    loaded = modules_loaded_by("sys.argv = ['schedir', '--help']; from schedir.cli import main; main()")

    assert loaded & {"matplotlib", "networkx", "simpy", "torch"} == set()
    assert loaded & {"executor", "plots", "simulator"} == set()


def test_modules_do_not_import_each_other_in_circles() -> None:
    paths = {module_of(path): path for path in python_files(*PACKAGES)}

    # raises CycleError, which names the circle
    TopologicalSorter({name: imported_by(path, set(paths)) for name, path in paths.items()}).prepare()


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in python_files("tests")}

    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_file_is_longer_than_one_idea() -> None:
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*FOLDERS)}

    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


@pytest.mark.parametrize("path", python_files(*PACKAGES), ids=relative)
def test_exported_names_are_sorted(path: Path) -> None:
    names = exported_names(path)

    assert names is None or names == sorted(set(names))


def test_every_package_is_typed_shipped_and_checked() -> None:
    settings = configuration()["tool"]
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks", "tests"}

    assert found == set(PACKAGES)
    assert settings["hatch"]["build"]["targets"]["wheel"]["packages"] == list(PACKAGES)
    assert settings["importlinter"]["root_packages"] == list(PACKAGES)
    assert settings["mypy"]["files"] == [*PACKAGES, "benchmarks", "examples", "tests"]
    assert [package for package in PACKAGES if not (ROOT / package / "py.typed").exists()] == []


def test_a_name_stands_for_one_class() -> None:
    homes: dict[str, list[str]] = {}
    for path in python_files(*PACKAGES):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(path))

    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
