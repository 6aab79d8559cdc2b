"""The commands of `factfold`, run in this process."""

from __future__ import annotations

import functools
from typing import Any

from typer.testing import CliRunner, Result

from factfold.cli.entry import whole_program


@functools.cache
def program() -> Any:
    """All commands. To put them together takes longer than most of them run."""
    return whole_program()


def factfold(
    *words: str, input: str | None = None, env: dict[str, str] | None = None, catch_exceptions: bool = True
) -> Result:
    """Run a command as `CliRunner.invoke` does, without a new program for each."""
    runner, code, failure = CliRunner(), 0, None
    with runner.isolation(input=input, env=env) as printed:
        try:
            program().main(args=words, prog_name="factfold")
        except SystemExit as ended:
            code = int(ended.code or 0)
            failure = ended if code else None
        except Exception as error:
            if not catch_exceptions:
                raise
            code, failure = 1, error
        return Result(runner, *(stream.getvalue() for stream in printed), None, code, failure)
