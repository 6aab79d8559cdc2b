"""What an analysed plan of Spark does, read once as a value: operators and expressions, and what each is given.

A plan is in the JVM, where each question costs a round trip. Catalyst writes the whole of it as JSON in one
(``TreeNode.toJSON``): each node before its children, with the arguments of its class. An argument that is one of the
children is there by its place. What the JSON leaves out, such as types and texts, is asked of the JVM by ``Node.jvm``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Find = Callable[[Any], Any]
"""How a node is found from the one above it, in the JVM."""

SAME_ROWS: Final = ("SubqueryAlias", "View", "Sort", "Repartition", "RepartitionByExpression", "ResolvedHint",
                    "RebalancePartitions")  # fmt: skip
"""Operators that name or order the rows below them, or move them."""
CONSTANT: Final = ("LogicalRDD", "LocalRelation", "Range", "OneRowRelation")
"""Operators without rows below them, where no mark says whose rows they are."""
ONE_ROW: Final = ("JsonTuple",)
"""Generators that make one row of one."""

_ATTRIBUTE: Final = "AttributeReference"
_LEFT_ALONE: Final = ("LEFT SEMI", "LEFT ANTI")  # joins whose rows have the columns of their left side only

# Names in the metadata of columns, which is what a plan says about them.
ROLE: Final = "factfold.role"  # the view's parameter that a column is of
PARTITION: Final = "factfold.partition"  # the column of ``by`` whose value it is, of a function of ours
ROW_KEY: Final = "factfold.row_key"  # that a column is of its table's key, of a view over partitions
ENTRY: Final = "factfold.entry"  # that it is an event's: id@version
NUMBERED: Final = "factfold.numbered"  # that it numbers the rows of a partition, of which match_pattern takes them
EVENT_TIME: Final = "factfold.event_time"  # that it is the event time of a stream
OF_TABLE: Final = "factfold.table"  # of which table the versions are whose validity a column is
OF_KEY: Final = "factfold.table_key"  # and by which column they are keyed
LOOKS: Final = "factfold.looks"  # how many microseconds away the rows are at most that one of these looks at
ANY_TIME: Final = -1  # of such a distance: there is none


class Node:
    """An operator or an expression of a plan. ``kind`` is its class in Catalyst, ``above`` the node that has it."""

    def __init__(self, arguments: Mapping[str, Any], above: Node | None, find: Find) -> None:
        self.kind = str(arguments["class"]).rpartition(".")[2]
        self.children: list[Node] = []
        self.arguments = arguments
        self.above, self._find = above, find
        self._read: dict[str, tuple[Node, ...]] = {}

    @cached_property
    def jvm(self) -> Any:
        """The node in the JVM, found on the way down to it."""
        above = None
        for one in reversed([*self._ancestors()]):  # one after the other: expressions may be deeper than Python's stack
            above = one.jvm
        return self._find(above)

    def _ancestors(self) -> Iterator[Node]:
        node = self.above
        while node is not None:
            yield node
            node = node.above

    @cached_property
    def sql(self) -> str:
        """An expression as Spark writes it."""
        return str(self.jvm.sql())

    @cached_property
    def type(self) -> str:
        """The type of an expression in DDL, whole."""
        return str(self.jvm.dataType().catalogString())

    @property
    def id(self) -> int:
        """The number of an attribute, or of the one that a name makes of an expression."""
        return int(self.arguments["exprId"]["id"])

    @property
    def name(self) -> str:
        """The name of an attribute."""
        return str(self.arguments["name"])

    @property
    def is_attribute(self) -> bool:
        """Whether an expression is a column of what is below it."""
        return self.kind == _ATTRIBUTE

    @property
    def bare(self) -> Node:
        """An expression without its alias."""
        return self.children[0] if self.kind == "Alias" else self

    def all(self, argument: str) -> tuple[Node, ...]:
        """The nodes of an argument; none where it is left out."""
        if argument not in self._read:
            given = self.arguments.get(argument)
            self._read[argument] = tuple(self._nodes(given, partial(_argument, argument)))
        return self._read[argument]

    def one(self, argument: str) -> Node:
        """The node of an argument."""
        (node,) = self.all(argument)
        return node

    def _nodes(self, given: Any, find: Find) -> Iterator[Node]:
        if isinstance(given, int):
            yield self.children[given]
        elif _is_tree(given):
            yield _tree(given, self, find)
        else:
            for place, part in enumerate(given or ()):
                yield from self._nodes(part, partial(_item, find, place))

    @property
    def expressions(self) -> Iterator[Node]:
        """The expressions that an operator is given."""
        trees = (name for name, given in self.arguments.items() if _has_trees(given))
        return (node for name in trees for node in self.all(name))

    @property
    def references(self) -> Iterator[int]:
        """The ids of the attributes in an expression; of a subquery, those of the row around it."""
        if self.is_attribute:
            yield self.id
        for child in self.children:
            yield from child.references

    @property
    def subqueries(self) -> Iterator[Node]:
        """The plans in an operator's expressions."""
        return (plan for expression in self.expressions for plan in expression.plans)

    @property
    def plans(self) -> Iterator[Node]:
        """The plans of the subqueries in an expression."""
        yield from self.all("plan")
        for child in self.children:
            yield from child.plans

    @cached_property
    def output(self) -> tuple[Node, ...]:
        """The attributes of an operator's rows."""
        match self.kind:
            case "Project":
                return _attributes(self.all("projectList"))
            case "Aggregate":
                return _attributes(self.all("aggregateExpressions"))
            case "Window":
                return (*self.children[0].output, *_attributes(self.all("windowExpressions")))
            case "Generate":
                return (*self._required, *self.all("generatorOutput"))
            case "Join" if self.how == "EXISTENCE":
                return (*self.children[0].output, attribute_of(self.jvm.joinType().exists()))
            case "Join" if self.how not in _LEFT_ALONE:
                return (*self.children[0].output, *self.children[1].output)
            case "LateralJoin":
                return (*self.children[0].output, *self.one("right").one("plan").output)
            case "WithCTE":
                return self.one("plan").output
            case _ if "output" in self.arguments:
                return self.all("output")
        return self.children[0].output if self.children else ()

    @property
    def _required(self) -> Iterator[Node]:
        """What an operator that makes rows of items retains of the rows below."""
        dropped = {self.jvm.unrequiredChildIndex().apply(n) for n in range(self.jvm.unrequiredChildIndex().size())}
        return (a for place, a in enumerate(self.children[0].output) if place not in dropped)

    @property
    def definitions(self) -> dict[int, Node]:
        """The plans that WITH names, by their numbers."""
        return {one.arguments["id"]: one.children[0] for one in self.all("cteDefs")}

    @property
    def how(self) -> str:
        """The kind of a join, as SQL writes it: LEFT OUTER."""
        given = self.arguments["joinType"]  # of EXISTS as a value, with the attribute that it makes
        kind = given["object"] if "object" in given else "Existence"
        words = re.findall("[A-Z][a-z]+", str(kind).rpartition(".")[2])
        return " ".join(words).upper()

    @cached_property
    def marks(self) -> tuple[Mapping[str, Any], ...]:
        """The metadata of each column of an operator."""
        return tuple(field["metadata"] for field in json.loads(self.jvm.schema().json())["fields"])


def analysed_plan(frame: DataFrame) -> Node:
    """The logical plan after analysis."""
    return plan_of(plan_in_jvm(frame))


def attribute_of(attribute: Any) -> Node:
    """An attribute of Spark's as a value."""
    given = {"name": attribute.name(), "exprId": {"id": attribute.exprId().id()}}
    return Node({"class": _ATTRIBUTE, **given}, None, lambda _: attribute)


def plan_of(plan: Any) -> Node:
    """A logical plan of Spark's as a value."""
    return _tree(json.loads(plan.toJSON()), None, lambda _: plan)


def plan_in_jvm(frame: DataFrame) -> Any:
    """The same as Spark's own object."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - the plan has no Python face


def _tree(nodes: Sequence[Mapping[str, Any]], above: Node | None, find: Find) -> Node:
    """The nodes, each of which comes before its children."""
    root = Node(nodes[0], above, find)
    waiting = [root]
    for arguments in nodes[1:]:
        while len(waiting[-1].children) == waiting[-1].arguments["num-children"]:
            waiting.pop()
        parent = waiting[-1]
        parent.children.append(Node(arguments, parent, partial(_child, len(parent.children))))
        waiting.append(parent.children[-1])
    return root


def _child(place: int, above: Any) -> Any:
    return above.children().apply(place)


def _argument(name: str, above: Any) -> Any:
    given = getattr(above, name)()
    return given.get() if given.getClass().getSimpleName() == "Some" else given


def _item(find: Find, place: int, above: Any) -> Any:
    return find(above).apply(place)


def _attributes(named: Sequence[Node]) -> tuple[Node, ...]:
    """What expressions with names are to the operators over them."""
    return tuple(one if one.is_attribute else _attribute(one) for one in named)


def _attribute(named: Node) -> Node:
    given = {name: named.arguments[name] for name in ("name", "exprId")}
    return Node({"class": _ATTRIBUTE, **given}, named, lambda above: above.toAttribute())


def _is_tree(given: Any) -> bool:
    """Whether an argument is one node, with those below it."""
    first = given[0] if isinstance(given, list) and given else None
    return isinstance(first, dict) and "num-children" in first


def _has_trees(given: Any) -> bool:
    return _is_tree(given) or (isinstance(given, list) and bool(given) and _has_trees(given[0]))


def operators(plan: Node) -> Iterator[Node]:
    """The plan's operators, those of its subqueries included, which come before what contains them."""
    for inner in (*plan.children, *plan.subqueries):
        yield from operators(inner)
    yield plan


def leaves(plan: Node) -> Iterator[Node]:
    """The operators that rows come from, those of its subqueries included."""
    return (node for node in operators(plan) if not node.children)


def nondeterministic(plan: Node) -> str | None:
    """The name of an expression that may give another value each time it is computed, such as ``rand``."""
    return None if plan.jvm.deterministic() else _first(plan, lambda expression: not expression.deterministic())


def environmental(frame: DataFrame, plan: Node) -> str | None:
    """The name of an expression whose value Spark takes from its surroundings: the time, the user, the database."""
    catalyst = java(frame.sparkSession).org.apache.spark.sql.catalyst
    current = catalyst.trees.TreePattern.CURRENT_LIKE()
    whole = plan.jvm
    if whole.containsPattern(current) and (name := _first(plan, lambda one: one.containsPattern(current))):
        return name
    # Texts such as 'now' and 'today' cast to a time are no function of their own.
    return None if catalyst.optimizer.SpecialDatetimeValues.apply(whole).fastEquals(whole) else "cast('now')"


def java(spark: SparkSession) -> Any:
    """Spark's own classes."""
    return spark._jvm  # noqa: SLF001 - nor have they


def _first(plan: Node, holds: Callable[[Any], bool]) -> str | None:
    expressions = (expression for node in operators(plan) for expression in node.expressions)
    return next((_origin(expression, holds) for expression in expressions if holds(expression.jvm)), None)


def _origin(expression: Node, holds: Callable[[Any], bool]) -> str:
    """The innermost expression for which it holds."""
    inner = next((child for child in expression.children if holds(child.jvm)), None)
    return str(expression.jvm.prettyName()) if inner is None else _origin(inner, holds)


def role(leaf: Node) -> str | None:
    """The parameter of a view whose rows a leaf of its plan has; None of other rows."""
    return next((marks.get(ROLE) for marks in leaf.marks), None)
