"""The wheel, built once, and an environment that has it and nothing else of this project.

The virtual environment is bare: it has the wheel, and no pip. A `.pth` file lends it the packages of this process's
environment, since to install them again takes minutes. Python reads no `.pth` file of a lent folder, so the link by
which that environment has the repository itself (an editable install) is not followed: the wheel alone is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.unit.test_documentation import ROOT

LIGHT = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "FACTFOLD_CLASS_ARCHIVE": "off"}


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


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"), source=ROOT, target="wheel")


@pytest.fixture(scope="session")
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
