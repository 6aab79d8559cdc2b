"""What stands around each call of a handler: a span, a stopwatch, a log. As middleware does for commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from eventstore.messages import RecordedEvent

if TYPE_CHECKING:
    from eventstore.delivery.arrivals import Arrival
    from eventstore.delivery.subscriptions import Subscription


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """A call of a handler, as `around` gets it. If the call fails, the handler's error passes through the block.

    A handler of single events is called for one record at a time.

    Attributes:
        subscription: The subscription.
        topic: The topic of the first record.
        arrivals: The records.

    Examples:
        >>> def around(call: HandlerCall) -> AbstractContextManager[object]:
        ...     return tracer.start_as_current_span(call.subscription.name)
    """

    subscription: Subscription[..., Any]
    topic: str
    arrivals: Sequence[Arrival]

    @property
    def events(self) -> list[RecordedEvent]:
        """The events as they were recorded. NotFramedAvro if headers of a record are missing."""
        return [arrival.recorded() for arrival in self.arrivals]


Around: TypeAlias = Callable[[HandlerCall], AbstractContextManager[object]]


@contextmanager
def entered(around: Sequence[Around], call: HandlerCall) -> Iterator[None]:
    """Open all of them, the first outermost."""
    with ExitStack() as stack:
        for one in around:
            stack.enter_context(one(call))
        yield
