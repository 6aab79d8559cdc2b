"""Map: sources, topics, tables, views, branches and subscribers of a service, with the lag on each edge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from factfold.console.drawing import HEIGHT, WIDTH, Drawing, draw
from factfold.console.graph import (
    Edge,
    Graph,
    Node,
    add_aggregates,
    add_branches,
    add_connectors,
    add_groups,
    add_processes,
    add_subscriptions,
)
from factfold.console.page import Page, Query
from factfold.console.pages.branches import BRANCHES
from factfold.console.pages.connectors import CONNECTORS
from factfold.console.pages.groups import GROUPS, declared_groups
from factfold.console.pages.overview import Watched, overview
from factfold.console.pages.store import STORE, topics_of
from factfold.console.pages.subscriptions import SUBSCRIPTIONS
from factfold.console.parts import Problem
from factfold.console.sources import Look

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
