"""Names that may not be, packages that must be, what the wheel carries, and the code of a new project."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from factfold.scaffolding import create_project

ROOT = Path(__file__).parents[2]
PACKAGES = ("eventstore", "cdc", "projections", "factfold")
SAYS_NOTHING = {"utils", "util", "helpers", "helper", "common", "core", "misc"}


def modules(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def test_no_module_or_folder_has_a_name_that_says_nothing():
    found = modules(*PACKAGES, "sample_app", "benchmarks", "tests")
    named = {part.removesuffix(".py").strip("_") for path in found for part in path.relative_to(ROOT).parts}
    assert named & SAYS_NOTHING == set()


def test_every_folder_of_code_in_a_package_is_a_package():
    folders = {path.parent for path in modules(*PACKAGES, "sample_app")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("folder", ["docker", "tests"])
def test_a_folder_that_is_no_package_has_no_init_file(folder):
    """A wheel that shipped docker/__init__.py would overwrite the Docker SDK without a word."""
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package):
    assert (ROOT / package / "py.typed").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The names in a wheel built from the working tree; no index is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built).namelist()


@pytest.mark.builds
def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel):
    top = {name.split("/")[0] for name in wheel}
    assert {name for name in top if not name.endswith(".dist-info")} == set(PACKAGES)


@pytest.mark.builds
def test_the_wheel_holds_every_file_of_the_packages(wheel):
    files = {
        str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.*") if path.is_file()
    }
    assert {name for name in files if "__pycache__" not in name} - set(wheel) == set()


@pytest.mark.builds
@pytest.mark.parametrize("name", ["shop", "a", "z" * 40])
def test_the_code_of_a_new_project_is_sorted_formatted_and_without_a_finding(tmp_path, name):
    create_project(name, parent=tmp_path)
    options = ["--isolated", "--no-cache", "--line-length", "120", "."]
    for words in (["check", "--select", "E,F,I,B,UP"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *words, *options]
        ran = subprocess.run(ruff, cwd=tmp_path / name, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout
