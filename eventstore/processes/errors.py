"""The errors of a process, in addition to those of the store.

FactfoldError
└── ProcessError
    ├── ProcessAlreadyStarted   a second start of one id
    ├── ProcessVersionMissing   an instance began with a version of the code that is missing
    ├── ProcessStuck            an instance that no repetition brings on
    └── StepFailed              a handler raised: which process, which instance, and why
"""

from __future__ import annotations

from typing import Final

from eventstore.errors import FactfoldError, is_final

_MEND: Final = "mend the handler and retry: the input was not handled, and nothing of it was stored"


class ProcessError(FactfoldError):
    """A process cannot go on as it was asked to. Nothing of the step was stored."""


class ProcessAlreadyStarted(ProcessError):
    """A second event would start an instance that is there."""

    final = True


class ProcessVersionMissing(ProcessError):
    """An instance began with a version of the code that is missing."""


class ProcessStuck(ProcessError):
    """An instance that no repetition brings on: it is set aside."""

    final = True


class StepFailed(ProcessError):
    """A handler raised an error. `process` and `instance` name the instance, and the cause is the error itself."""

    def __init__(self, process: str, instance: str, input_id: str, cause: Exception) -> None:
        what, remedy = type(cause).__name__, _MEND
        if isinstance(cause, FactfoldError):
            what, remedy = cause.message, cause.remedy
        super().__init__(f"{process} {instance!r} failed: {what}", remedy=remedy, place=f"{process}-{instance}")
        self.final = is_final(cause)
        self.process, self.instance, self.input_id, self.cause = process, instance, input_id, cause
