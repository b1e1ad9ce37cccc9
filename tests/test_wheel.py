"""What a user installs holds all that the checkout holds: hatchling silently leaves out what .gitignore names."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.repository import PACKAGES, ROOT, python_files, relative


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("schedir-*.whl")
    return built


def test_wheel_holds_every_module_and_type_marker(wheel: Path) -> None:
    expected = {relative(path) for path in python_files(*PACKAGES)} | {f"{package}/py.typed" for package in PACKAGES}

    assert expected - set(zipfile.ZipFile(wheel).namelist()) == set()


def test_wheel_holds_the_four_packages_and_nothing_else(wheel: Path) -> None:
    folders = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {folder for folder in folders if not folder.endswith(".dist-info")} == set(PACKAGES)


def test_wheel_holds_the_examples_that_the_demo_reads(wheel: Path) -> None:
    expected = {f"schedir/examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.is_file()}

    assert expected - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.slow
def test_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import executor, plots, schedir, simulator; print(schedir.__file__)"

    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert Path(done.stdout.strip()) == tmp_path / "schedir" / "__init__.py"
