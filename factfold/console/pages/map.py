"""Map: sources, topics, tables, views, branches and subscribers of a service, with the lag on each edge.

The graph of a service: what feeds what, from sources to subscribers, with the lag on each edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from factfold.console.definitions import topics_of
from factfold.console.page import Page, Query
from factfold.console.pages.connectors import CONNECTORS, ConnectorState
from factfold.console.pages.overview import Watched, overview
from factfold.console.pages.standing import (
    BRANCHES,
    GROUPS,
    STORE,
    BranchesState,
    GroupState,
    declared_groups,
)
from factfold.console.pages.subscriptions import SUBSCRIPTIONS, SubscriptionState
from factfold.console.parts import Problem
from factfold.console.rendering import HEIGHT, WIDTH, Drawing, draw
from factfold.console.sources import Look
from factfold.discovery import Discovery
from projections.declaring.group import ProjectionGroup
from projections.declaring.views import View, ViewTable

Kind = Literal["aggregate", "connector", "topic", "table", "view", "branches", "subscription", "process"]


@dataclass(frozen=True, slots=True)
class Node:
    """One thing of the map; `id` is unique in it, `page` and `query` name where its details are."""

    id: str
    kind: Kind
    name: str
    page: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edge:
    """What flows from one node to another: records that wait here, for how long, and the delay of all before it."""

    source: str
    target: str
    records: int | None = None
    seconds: float | None = None
    inherited: float | None = None


@dataclass
class Graph:
    """Nodes and edges as they are collected; each once."""

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], Edge] = field(default_factory=dict)

    def node(self, kind: Kind, name: str, *, page: str | None = None, query: Mapping[str, str] | None = None) -> str:
        """Add a node if it is new; return its id."""
        id_ = f"{kind} {name}"
        known = self.nodes.get(id_)
        if known is None or (known.page is None and page is not None):
            self.nodes[id_] = Node(id_, kind, name, page, query or {})
        return id_

    def edge(self, source: str, target: str, *, records: int | None = None, seconds: float | None = None) -> None:
        """Add an edge if it is new."""
        self.edges.setdefault((source, target), Edge(source, target, records, seconds))

    def with_inherited(self) -> Iterator[Edge]:
        """Yield the edges, each with the longest delay of those that lead to its source.

        A circle, such as that of a process and the aggregate it sends commands to, counts as one node. Its delay is
        that of what leads into it, and the longest one within it.
        """
        before: dict[str, list[Edge]] = {}
        for edge in self.edges.values():
            before.setdefault(edge.target, []).append(edge)
        above = {node: _above(node, before) for node in self.nodes}

        @cache
        def delay(node: str) -> float:
            circle = {node} | {other for other in above[node] if node in above[other]}
            into = [edge for one in circle for edge in before.get(one, ())]
            entering = [(e.seconds or 0.0) + delay(e.source) for e in into if e.source not in circle]
            within = [e.seconds or 0.0 for e in into if e.source in circle]
            return max(entering, default=0.0) + max(within, default=0.0)

        for edge in self.edges.values():
            yield Edge(edge.source, edge.target, edge.records, edge.seconds, delay(edge.source) or None)


def _above(node: str, before: Mapping[str, list[Edge]]) -> set[str]:
    """Return every node that leads to this one, itself if it is in a circle."""
    known: set[str] = set()
    open_nodes = [node]
    while open_nodes:
        sources = {edge.source for edge in before.get(open_nodes.pop(), ())} - known
        known |= sources
        open_nodes.extend(sources)
    return known


def add_aggregates(graph: Graph, definitions: Discovery, topics: Mapping[str, str]) -> None:
    """Aggregates fill the topics of their categories, as the store names them."""
    for aggregate in definitions.aggregates.values():
        category = aggregate.category
        node = graph.node("aggregate", category, page="stream", query={"category": category})
        graph.edge(node, graph.node("topic", topics.get(category, category)))


def add_connectors(graph: Graph, connectors: Iterable[ConnectorState], event_topics: Iterable[str]) -> None:
    """Connectors fill a topic for each of their tables; those of an outbox fill the topics of events."""
    for one in connectors:
        node = graph.node("connector", one.name, page="connectors", query={"name": one.name})
        for topic in event_topics if one.outbox else _captured_topics(one):
            graph.edge(node, graph.node("topic", topic))


def _captured_topics(one: ConnectorState) -> Iterator[str]:
    """The topics of tables that are named, and not matched by a regular expression."""
    names = (table for table in one.tables if not set(table) & set("\\[](){}*+?^$|"))
    return (f"{one.topic_prefix}.{name}" for name in names if one.topic_prefix)


def add_groups(graph: Graph, definitions: Discovery, groups: Iterable[GroupState]) -> None:
    """Groups read topics into tables, and tables into views."""
    for state in groups:
        declared_group = definitions.group(state.name)
        row: Mapping[str, Any] = state.serving or {}
        if declared_group is None:
            _add_unknown(graph, state, row)
        else:
            _add_group(graph, declared_group[1], row)


def _add_group(graph: Graph, group: ProjectionGroup, row: Mapping[str, Any]) -> None:
    seconds = row.get("lag_seconds")
    for view in group.all_views:
        of_view = _view(graph, group.name, view.name)
        for table in view.tables.values():
            inner = table.view if isinstance(table, ViewTable) else table
            if isinstance(inner, View):
                graph.edge(_view(graph, group.name, inner.name), of_view)
                continue
            name = group.name_of(inner)
            of_table = graph.node("table", f"{group.name}.{name}", page="view", query={"group": group.name})
            waits = _waits(row, inner.topic)
            graph.edge(graph.node("topic", inner.topic), of_table, records=waits, seconds=seconds if waits else None)
            graph.edge(of_table, of_view)
        for place in view.filled:
            kind: Kind = "table" if "/" in place else "topic"
            graph.edge(of_view, graph.node(kind, place), records=row.get("topics", {}).get(place))


def _add_unknown(graph: Graph, state: GroupState, row: Mapping[str, Any]) -> None:
    """A group that is built and not declared here: its topics lead to its views."""
    for topic in row.get("progress", {}):
        for view in state.views:
            waits = _waits(row, topic)
            seconds = row.get("lag_seconds") if waits else None
            graph.edge(graph.node("topic", topic), _view(graph, state.name, view), records=waits, seconds=seconds)


def _waits(row: Mapping[str, Any], topic: str) -> int | None:
    """The records that wait in a topic for a generation, None where that is unknown."""
    lag: Mapping[str, int] | None = row.get("lag")
    return None if lag is None else lag.get(topic, 0)


def _view(graph: Graph, group: str, view: str) -> str:
    return graph.node("view", view, page="view", query={"group": group, "view": view})


def add_branches(graph: Graph, branches: Iterable[BranchesState]) -> None:
    """A router reads one topic and fills one for each branch."""
    for one in branches:
        router = graph.node("branches", one.topic)
        graph.edge(graph.node("topic", one.topic), router, records=one.lag)
        for topic in (*one.branches.values(), *([one.dead_letter_topic] if one.counts.get("dead-letter") else ())):
            graph.edge(router, graph.node("topic", topic))


def add_subscriptions(graph: Graph, subscriptions: Iterable[SubscriptionState]) -> None:
    """Subscriptions read topics."""
    for one in subscriptions:
        node = graph.node("subscription", one.group, page="subscriptions", query={"group": one.group})
        for topic in one.topics:
            waits = [part for part in one.lag.partitions if part.topic == topic] if one.lag else []
            records = sum(part.records for part in waits) if waits else None
            seconds = max((part.seconds for part in waits), default=None)
            graph.edge(graph.node("topic", topic), node, records=records, seconds=seconds if records else None)


def add_processes(graph: Graph, definitions: Discovery, topics: Mapping[str, str]) -> None:
    """Processes read the topics of their events; the commands that they send are not drawn, they would lead back."""
    for process in definitions.processes.values():
        node = graph.node("process", process.category, page="subscriptions", query={"process": process.category})
        for category in sorted(process.reactions.categories):
            graph.edge(graph.node("topic", topics.get(category, category)), node)


_BOX: Final = (WIDTH, HEIGHT)


@dataclass(frozen=True, slots=True)
class Map:
    """The nodes, the edges with their lag, where each is drawn, and the parts that could not be looked at.

    `standing` has what is watched of a node, by its id: tables and views are as their group is.
    """

    nodes: tuple[Node, ...]
    standing: Mapping[str, Watched]
    edges: tuple[Edge, ...]
    drawing: Drawing
    problems: tuple[Problem, ...]
    box: tuple[int, int] = _BOX

    @property
    def in_order(self) -> list[Node]:
        """The nodes from what feeds to what is fed, as they are drawn: the map of a narrow window."""
        spots = self.drawing.spots
        return sorted(self.nodes, key=lambda node: (spots[node.id].x, spots[node.id].y))


def service_map(look: Look, query: Query) -> Map:
    """Draw what the service declares, with what its sources say of it."""
    readings = (STORE, CONNECTORS, GROUPS, BRANCHES, SUBSCRIPTIONS)
    look.start(*readings)
    parts = {reading: look.part(reading) for reading in readings}
    graph, definitions = Graph(), look.definitions
    topics = topics_of(definitions, parts[STORE].value)
    add_aggregates(graph, definitions, topics)
    store = parts[STORE].value
    add_connectors(graph, parts[CONNECTORS].value or (), [one.topic for one in store.categories] if store else ())
    groups = parts[GROUPS].value
    add_groups(graph, definitions, declared_groups(definitions) if groups is None else groups)
    add_branches(graph, parts[BRANCHES].value or ())
    add_subscriptions(graph, parts[SUBSCRIPTIONS].value or ())
    add_processes(graph, definitions, topics)
    problems = tuple(part.problem for part in parts.values() if part.problem is not None)
    edges = tuple(graph.with_inherited())
    drawing = draw(list(graph.nodes), [(edge.source, edge.target) for edge in edges])
    return Map(tuple(graph.nodes.values()), _standing(look, graph), edges, drawing, problems)


def _standing(look: Look, graph: Graph) -> dict[str, Watched]:
    watched = {(one.kind, one.name): one for one in overview(look, {}).watched}
    nodes = graph.nodes.items()
    of = {id_: ("group", one.query["group"]) if one.page == "view" else (one.kind, one.name) for id_, one in nodes}
    return {id_: watched[key] for id_, key in of.items() if key in watched}


PAGE: Final = Page("map", "Map", service_map)
