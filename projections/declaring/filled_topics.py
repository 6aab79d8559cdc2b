"""The topics and the Delta tables that the views of a group fill. None is filled twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from projections.declaring.view_topics import FinalTopic, ViewTopic, named
from projections.declaring.views import View
from projections.errors import InvalidDefinition


def rows_topics(views: Iterable[View]) -> Mapping[str, str]:
    """The views whose rows fill a topic or a Delta table, by its name or path."""
    return {place: view.name for view in views for place in view.filled}


def lakes_of(views: Iterable[View]) -> Sequence[str]:
    """The paths of the Delta tables that views fill."""
    return [view.lake for view in views if view.lake is not None]


def results_topics(views: Iterable[View]) -> Mapping[str, str]:
    """The views whose final results fill a topic, by its name."""
    topics = ((view, view.final.published) for view in views if view.final is not None)
    return {topic.name: view.name for view, topic in topics if topic is not None}


def topics_of(views: Iterable[View]) -> Iterator[ViewTopic | FinalTopic]:
    """The topics that views fill."""
    for view in views:
        filled = view.topic, None if view.final is None else view.final.published
        yield from (topic for topic in filled if topic is not None)


def check_topics(group: str, views: Sequence[View], *, read: Collection[str], personal: bool) -> None:
    """Raise InvalidDefinition where views of a group would fill a topic twice, or one that the group reads.

    ``personal`` is whether the group has personal columns, which no Delta table may get.
    """
    names = [*(topic.name for topic in topics_of(views)), *lakes_of(views)]
    if personal and (lakes := lakes_of(views)):
        raise InvalidDefinition(
            f"group {group!r} has personal columns, and versions of the table {lakes[0]!r} would retain erased values",
            remedy="leave lake=… away, or leave the personal columns out of the group",
        )
    for name in names:
        if names.count(name) > 1:
            raise _refused(name, f"is filled {_by(name, views)} of group {group!r}")
        if name in read:
            raise _refused(name, f"is filled by group {group!r}, which reads it too")


def _by(topic: str, views: Sequence[View]) -> str:
    view = rows_topics(views).get(topic)
    both = view is not None and view == results_topics(views).get(topic)
    return f"with the rows and the final results of view {view!r}" if both else "by two views"


def _refused(topic: str, why: str) -> InvalidDefinition:
    remedy = "fill every topic and table once; within a group, a view reads another one by its name"
    return InvalidDefinition(f"{named(topic)} {why}", remedy=remedy)
