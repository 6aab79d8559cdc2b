"""The `factfold` command.

The room imports the lower packages and, when a command runs, the other rooms of factfold. It never repeats a rule of a
package.
"""

from __future__ import annotations

import sys

from eventstore.extras import MissingExtra, explained


def main() -> None:
    """Run the command line. Packages of extras that are not installed end it with exit code 1 and the remedy."""
    try:
        from factfold.cli.entry import main as run  # here, where a missing extra of the command line is explained

        run()
    except ImportError as error:
        missing = explained(error)
        if not isinstance(missing, MissingExtra):
            raise
        sys.stderr.write(f"error: {missing.message}\n  remedy: {missing.remedy}\n")
        sys.exit(1)


__all__ = ["main"]
