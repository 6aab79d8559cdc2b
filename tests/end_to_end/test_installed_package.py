"""The built package outside the repository: `factfold new shop`, then the tests and the demo of that project."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.end_to_end.conftest import LIGHT, build, run
from tests.unit.test_documentation import ROOT, blocks

pytestmark = pytest.mark.builds


def written_on_the_page() -> tuple[list[str], list[str]]:
    """The first commands of the page about new projects, and the output that it shows for the demonstration."""
    written = list(blocks(ROOT / "docs" / "how-to" / "start-a-project.md"))
    commands = [line for block in written if block.kind == "sh" for line in block.lines]
    output = next(block.lines for block in written if block.kind == "text")
    return commands[:4], output


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the source distribution unpacks to."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build(folder, source=ROOT, target="sdist")) as archive:
        archive.extractall(folder, filter="data")
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


def test_the_wheel_has_types_jar_lists_templates_and_images(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"{package}/py.typed" for package in ("eventstore", "cdc", "projections", "factfold")} <= names
    assert {"factfold/versions.toml", "factfold/jars.sha256", "factfold/docker/kafka/jars.sha256"} <= names
    files = {str(path.relative_to(ROOT / "docker")) for path in (ROOT / "docker").rglob("*") if path.is_file()}
    assert {f"factfold/docker/{file}" for file in files} <= names
    assert {"factfold/watching/files/factfold-alerts.yaml", "factfold/watching/files/factfold-dashboard.json"} <= names
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
    wheel: Path, programs: Path, tmp_path: Path
) -> None:
    python, factfold = programs / "python", programs / "factfold"
    origins = "import eventstore, factfold; print(eventstore.__file__, factfold.__file__)"
    where = run(python, "-c", origins, cwd=tmp_path)
    assert all(Path(file).is_relative_to(programs.parent) for file in where.split())
    assert run(factfold, "--version", cwd=tmp_path).startswith("factfold ")
    commands, shown = written_on_the_page()
    assert commands == ["factfold new shop", "cd shop", "make test", "make demo"]
    readme = next(block.lines for block in blocks(ROOT / "README.md") if block.kind == "sh")
    words = [word.strip() for line in readme for word in line.partition("  #")[0].split("&&")]
    assert words == ['pip install ".[all]"', "cd ..", *commands]
    run(factfold, "new", "shop", cwd=tmp_path)
    project = tmp_path / "shop"
    assert f"pip install 'factfold[all] @ {wheel.as_uri()}'" in run("make", "-n", "setup", cwd=project)
    assert "8 passed" in run("make", "test", f"PYTHON={python}", cwd=project)
    assert run("make", "--silent", "demo", f"PYTHON={python}", cwd=project, **LIGHT).splitlines() == shown
