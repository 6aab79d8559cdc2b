"""The end of the day: every order has ended, what failed is repaired, one cancelled order is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import sqlalchemy as sa

from eventstore import RecordedEvent
from eventstore.backends.sql.process_rows import SqlInboxes
from eventstore.deadletters import by_cause
from eventstore.inspection.store_log import StoreLog
from eventstore.inspection.tracing import Step, trace
from projections import letters
from sample_app.background import wait_until
from sample_app.fulfilment import Books
from sample_app.fulfilment.running import RunningFulfilment
from sample_app.receipts import Receipts
from sample_app.receipts.printing import GROUP, TOPIC
from sample_app.road import Road
from sample_app.shipping import parcels
from sample_app.story import Story


def end_orders(story: Story, road: Road, running: RunningFulfilment, *, placed: int, database: sa.Engine) -> None:
    """Wait until every order has ended and has its parcel; SystemExit where the books are not right."""
    with story.step("every order shipped or cancelled, unpaid ones by their time-out"):
        wait_until(lambda: running.ended() >= placed, deadline=120, what="every order ended")
        # The last commands of a process that has ended are still on their way.
        books = _settled(road)
        wait_until(lambda: _handed_over(database) == len(books.shipped), deadline=60, what="every parcel handed over")
    facts = books.facts() | {"processes": running.statuses(), "commands": running.work.commands}
    story.facts["fulfilment"] = facts | {"timers": running.work.timers}
    cancelled = ", ".join(f"{count:,} {reason}" for reason, count in books.reasons.most_common())
    story.say(f"{len(books.shipped):,} of {placed:,} orders shipped; cancelled: {cancelled}")
    story.say(f"{books.reserved:,} pieces reserved, all for shipped orders; {len(books.refunds):,} payments refunded")
    if books.mistakes():
        raise SystemExit("\n".join(books.mistakes()))


def replay_dead_letters(story: Story, road: Road, receipts: Receipts, *, payments: int) -> None:
    """List the payments whose receipts were not printed, repair the printer, and send them back."""
    with letters(road.settings, TOPIC, group=GROUP) as opened:
        with story.step("dead letters of the receipts listed, and replayed after the repair"):
            causes = by_cause(opened.open())
            receipts.repair()
            replayed = opened.replay(by="demo")
            wait_until(lambda: receipts.printed() == payments, deadline=60, what="every receipt printed")
            left = len(list(opened.open()))
    story.facts["dead_letters"] = {
        "causes": [{"error": one.error, "pattern": one.pattern, "count": one.count} for one in causes],
        "replayed": replayed.count,
        "left": left,
    }
    for one in causes:
        story.say(f"{one.count:,} × {one.error}: {one.pattern}")
    story.say(f"{replayed.count:,} replayed, {left:,} left, {receipts.printed():,} receipts printed")


def tell_trace(story: Story, road: Road, placed: RecordedEvent) -> None:
    """Show what led from the command that placed an order to its cancellation."""
    with story.step("one forgotten order traced from its placing to its cancellation"):
        conversation = trace(
            placed.metadata.correlation_id or "", [StoreLog(road.store)], inboxes=[SqlInboxes(road.store.engine)]
        )
    story.facts["trace"] = [line for step in conversation.steps for line in _lines(step)]
    for line in story.facts["trace"]:
        story.say(line)


def _lines(step: Step) -> Iterator[str]:
    indent = "  " * step.depth
    yield f"{indent}{step.name}" if step.entry is None else f"{indent}{step.name}  {step.entry.place}"


def _settled(road: Road) -> Books:
    """The books once they are right, or after a while as they are."""
    with suppress(TimeoutError):
        wait_until(lambda: not Books.of(road.store).mistakes(), deadline=60, what="the books right")
    return Books.of(road.store)


def _handed_over(database: sa.Engine) -> int:
    with database.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(parcels)).scalar_one()
