"""The words that a shell offers for an argument that names a definition."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from factfold.discovery import discovered, service_packages

if TYPE_CHECKING:
    from factfold.discovery import Kind


def completes(*kinds: Kind) -> Callable[[str], list[str]]:
    """Return the completion of an argument: the definitions of these kinds in the packages of this folder."""

    def complete(incomplete: str) -> list[str]:
        with redirect_stdout(io.StringIO()):  # the shell would take what a module prints for words
            services = [discovered(package) for package in service_packages(Path())]
        targets = [definition.target for service in services for definition in service.of(*kinds)]
        return [target for target in targets if target.startswith(incomplete)]

    return complete


def complete_package(incomplete: str) -> list[str]:
    """Return the packages of this folder that may be a service."""
    return [package for package in service_packages(Path()) if package.startswith(incomplete)]
