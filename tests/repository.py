"""Where the files of the repository are."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("schedir", "simulator", "executor", "plots")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
