"""The built package, installed outside the repository: `factfold new shop`, then the tests and the demo of the project.

The virtual environment is bare: it has the wheel, and no pip. A `.pth` file lends it the packages of this process's
environment, since to install them again takes minutes. Python reads no `.pth` file of a lent folder, so the link by
which that environment has the repository itself (an editable install) is not followed: the wheel alone is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.unit.test_documentation import ROOT, blocks

pytestmark = pytest.mark.builds

LIGHT = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command without the variables of this process's Factfold, and return what it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FACTFOLD_", "PYTHON", "MAKE", "VIRTUAL_ENV"))}
    done = subprocess.run(words, cwd=cwd, env=kept | variables, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


def build(folder: Path, *, source: Path, target: str) -> Path:
    """The built file of a target; no index is asked."""
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder, cwd=source)
    (built,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return built


def written_on_the_page() -> tuple[list[str], list[str]]:
    """The first commands of the page about new projects, and the output that it shows for the demonstration."""
    written = list(blocks(ROOT / "docs" / "how-to" / "start-a-project.md"))
    commands = [line for block in written if block.kind == "sh" for line in block.lines]
    output = next(block.lines for block in written if block.kind == "text")
    return commands[:4], output


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), source=ROOT, target="wheel")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the source distribution unpacks to."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(folder, source=ROOT, target="sdist")) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `python` and `factfold` in a virtual environment with the wheel."""
    folder = tmp_path_factory.mktemp("outside") / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder)
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (own / "lent.pth").write_text("".join(f"{path}\n" for path in lent))
    return folder / "bin"


def test_the_wheel_has_types_jar_lists_templates_and_images(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{package}/py.typed" for package in ("eventstore", "cdc", "projections", "factfold")} <= names
    assert {"factfold/versions.toml", "factfold/jars.sha256", "factfold/docker/kafka/jars.sha256"} <= names
    files = {str(path.relative_to(ROOT / "docker")) for path in (ROOT / "docker").rglob("*") if path.is_file()}
    assert {f"factfold/docker/{file}" for file in files} <= names
    templates = [path for path in (ROOT / "factfold" / "templates").rglob("*") if path.is_file()]
    assert {str(path.relative_to(ROOT)) for path in templates} <= names


def test_the_wheel_of_the_source_distribution_is_the_wheel_of_the_repository(
    wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    assert {path.name for path in unpacked.iterdir()} >= {"tests", "docs", "sample_app", "Makefile", "LICENSE"}
    again = build(tmp_path, source=unpacked, target="wheel")
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()


def test_the_source_distribution_has_nothing_of_the_working_tree_that_is_not_versioned(unpacked: Path) -> None:
    assert {".cache", "build", "spark-warehouse", ".venv"}.isdisjoint(path.name for path in unpacked.iterdir())


def test_a_new_project_passes_its_tests_and_its_demo_with_the_installed_package_alone(
    programs: Path, tmp_path: Path
) -> None:
    python, factfold = programs / "python", programs / "factfold"
    origins = "import eventstore, factfold; print(eventstore.__file__, factfold.__file__)"
    where = run(python, "-c", origins, cwd=tmp_path)
    assert all(Path(file).is_relative_to(programs.parent) for file in where.split())
    assert run(factfold, "--version", cwd=tmp_path).startswith("factfold ")
    commands, shown = written_on_the_page()
    assert commands == ["factfold new shop", "cd shop", "make test", "make demo"]
    run(factfold, "new", "shop", cwd=tmp_path)
    project = tmp_path / "shop"
    assert "8 passed" in run("make", "test", f"PYTHON={python}", cwd=project)
    assert run("make", "--silent", "demo", f"PYTHON={python}", cwd=project, **LIGHT).splitlines() == shown
