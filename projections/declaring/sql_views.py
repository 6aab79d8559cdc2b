"""Views written in SQL: the tables, the key and the groups are read from the text, the foreign keys from Spark's plan.

The text is Spark's SQL. sqlglot (https://github.com/tobymao/sqlglot) reads it when the view is declared. Spark runs the
text itself over the slices or the whole tables: only the names of tables in it are replaced. sqlglot's own rendering of
what it parsed is another query now and then: it drops arguments that it does not know and adds defaults of other
databases. So sqlglot reads only where tables are named, and which names stand for a query of WITH, by the scopes that
Spark gives them.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from projections.declaring.binding import bind
from projections.declaring.naming import checked_identifier, parameters
from projections.declaring.timing.promises import Reach
from projections.declaring.view_topics import FinalResults, ViewTopic
from projections.declaring.views import Columns, Input, View, as_columns
from projections.errors import InvalidDefinition
from projections.spark.views.sql_relations import require_only

DIALECT = "databricks"  # Spark's with paths of a variant, v:a.b, which sqlglot's own dialect "spark" does not know
_SUBSTITUTED = re.compile(r"\$\{\S+?\}")  # as org.apache.spark.internal.config.ConfigReader has it
_MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)  # a literal of it is no function in a plan
_REMEDY = "write one SELECT of Spark's SQL"
# Of a table in a query: its name, and what is joined with or made of its whole rows.
_PARTS = frozenset({"this", "db", "catalog", "alias", "pivots", "joins", "laterals"})
_Scope = Mapping[str, exp.CTE]


class Query:
    """A text with the tables that it reads: each is a parameter, by its name. Raises InvalidDefinition.

    Attributes:
        fingerprint: Changes with the text, but not with its spaces and comments.
        places: Where the text names tables, in its order.
        queries: The names, in lower case, that stand for a query of WITH somewhere.
        roles: The tables by their parameters, in the order of the text.
    """

    def __init__(self, name: str, text: str, tables: Mapping[str, Input]) -> None:
        self.name, self._text = name, text
        self._select, tokens = self._parsed()
        self.fingerprint = _fingerprint(text, tokens)
        named = list(_resolved(self._select))
        self.places = sorted((node for node, meant in named if meant is None), key=_start)
        self.queries = frozenset(meant.alias.lower() for _, meant in named if meant is not None)
        given = {table.lower(): table for table in tables}
        self._require_known(given)
        for place in self.places:
            place.meta["role"] = checked_identifier(given[place.name.lower()], what="table")
            self._require_readable(place)
        self.roles = {place.meta["role"]: tables[place.meta["role"]] for place in self.places}
        self._require_whole()

    def over(self, names: Mapping[str, str]) -> str:
        """The text with other names of its tables, by parameter, which are still called what they were."""
        parts, at = [], 0
        for place in self.places:
            alias = "" if place.args.get("alias") else f" AS `{place.name}`"
            parts.append(f"{self._text[at : _start(place)]}`{names[place.meta['role']]}`{alias}")
            at = _end(place)
        return "".join([*parts, self._text[at:]])

    def _parsed(self) -> tuple[exp.Query, list[Token]]:
        try:
            tokens = _spark().tokenize(self._text)
            expressions = _statements(tokens, self._text)
        except SqlglotError as error:
            raise self._unreadable(f"cannot be read: {_cause(error)}", _REMEDY) from error
        except RecursionError as error:
            remedy = "write it as several views, of which one reads another"
            raise self._unreadable("is nested too deeply", remedy) from error
        statements = [one.unnest() for one in expressions if one is not None and not isinstance(one, exp.Semicolon)]
        if len(statements) != 1 or not isinstance(statements[0], exp.Select | exp.SetOperation):
            what = "is no SELECT" if len(statements) < 2 else f"is {len(statements)} statements"
            raise self._unreadable(what, _REMEDY)
        return statements[0], tokens

    def _require_whole(self) -> None:
        """Refuse a text that Spark completes with other values."""
        if substituted := _SUBSTITUTED.search(self._text):
            raise self._unreadable(
                f"contains {substituted[0]}, which Spark replaces by a setting, in literals, too",
                "write the value itself. As a text, write it in two: concat('$', '{…}')",
            )
        for cast in self._select.find_all(exp.Cast):
            if cast.is_type(*exp.DataType.TEMPORAL_TYPES) and cast.this.is_string and _MOMENT.match(cast.this.name):
                raise self._unreadable(
                    f"has the moment {cast.this.name!r}, which Spark replaces by another time each day",
                    "let an event or a column carry it",
                )
        for parameter in self._select.find_all(exp.Placeholder, exp.Parameter):
            raise self._unreadable(f"has the parameter {parameter.sql(DIALECT)}", "write the value itself")

    def _require_known(self, given: Mapping[str, str]) -> None:
        unknown = {_full_name(place) for place in self.places if place.db or place.name.lower() not in given}
        sources = self._select.find_all(exp.Table, exp.Stream)
        unknown |= {source.sql(DIALECT) for source in sources if _is_no_name(source)}
        if unknown or not self.places:
            raise self._refused(
                f"reads {', '.join(sorted(unknown)) or 'no table'}",
                f"name its tables as in tables={{…}}: {', '.join(given.values())}",
            )

    def _require_readable(self, place: exp.Table) -> None:
        """Refuse a place whose name cannot be replaced."""
        if others_than_name := {name for name, value in place.args.items() if value} - _PARTS:
            raise self._refused(
                f"reads {place.name!r} with {', '.join(sorted(others_than_name))}",
                "name the table alone, and choose its rows in WHERE",
            )
        if self._text[_start(place) : _end(place)].strip("`").lower() != place.name.lower():
            raise self._refused(
                f"names {place.name!r} where it cannot be replaced", "name it in FROM or JOIN of a plain SELECT"
            )

    def _refused(self, what: str, remedy: str) -> InvalidDefinition:
        return InvalidDefinition(f"view {self.name!r} {what}", remedy=remedy, place=f"view {self.name}")

    def _unreadable(self, what: str, remedy: str) -> InvalidDefinition:
        return InvalidDefinition(f"the SQL of view {self.name!r} {what}", remedy=remedy, place=f"view {self.name}")


def _resolved(query: exp.Expr) -> Iterator[tuple[exp.Table, exp.CTE | None]]:
    """Each name with the query of WITH that it means, None for a table.

    A query of WITH is seen by those after it and by the query below, and by itself only if it is recursive. Names are
    the same in any case.
    """
    left: list[tuple[exp.Expr, _Scope]] = [(query, {})]
    while left:
        node, scope = left.pop()
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):  # and no table function
            yield node, None if node.db else scope.get(node.name.lower())
        given = node.args.get("with_")
        for cte in given.expressions if isinstance(given, exp.With) else ():
            after = {**scope, cte.alias.lower(): cte}
            left.append((cte.this, after if cte.parent.recursive else scope))
            scope = after
        left += [(child, scope) for child in node.iter_expressions() if not isinstance(child, exp.With | exp.Hint)]


def _is_no_name(source: exp.Expr) -> bool:
    """Whether a table is read by a name that is computed, or as a stream."""
    is_computed = isinstance(source.this, exp.Anonymous) and source.this.name.upper() == "IDENTIFIER"
    return is_computed or isinstance(source, exp.Stream)


def _full_name(table: exp.Table) -> str:
    return ".".join(part.name for part in table.parts)


def _spark() -> Dialect:
    return Dialect.get_or_raise(DIALECT)


def _statements(tokens: list[Token], text: str) -> list[exp.Expr | None]:
    """What sqlglot parses, which knows neither ``X '1F'`` with a space, nor ``>>>``, nor GROUP BY window(…)."""
    known = _with_window_functions(_without_space_in_hex(tokens))
    try:
        return list(_spark().parser().parse(known, text))
    except ParseError:
        shifted = _with_short_shifts(known)
        if len(shifted) == len(known):
            raise
        return list(_spark().parser().parse(shifted, text))


def _without_space_in_hex(tokens: list[Token]) -> list[Token]:
    following = [*tokens[1:], None]
    return [one for one, after in zip(tokens, following, strict=True) if not (after and _is_hex(one, after))]


def _with_window_functions(tokens: list[Token]) -> list[Token]:
    """With a name for the word in front of parentheses: the clause has a name behind it."""
    following = [*tokens[1:], None]
    return [
        Token(TokenType.VAR, one.text, one.line, one.col, one.start, one.end, one.comments)
        if one.token_type is TokenType.WINDOW and after and after.token_type is TokenType.L_PAREN
        else one
        for one, after in zip(tokens, following, strict=True)
    ]


def _is_hex(one: Token, after: Token) -> bool:
    is_prefix = one.token_type is TokenType.VAR and one.text.upper() == "X"
    return is_prefix and after.token_type is TokenType.STRING


def _with_short_shifts(tokens: list[Token]) -> list[Token]:
    """With ``>>`` for ``>>>``. Only after a parse that failed: the end of a nested type looks the same."""
    shortened: list[Token] = []
    for token in tokens:
        run = [*shortened[-2:], token]
        is_third = [one.start - token.start for one in run] == [-2, -1, 0]
        if not (is_third and all(one.token_type is TokenType.GT for one in run)):
            shortened.append(token)
    return shortened


def _fingerprint(text: str, tokens: Iterable[Token]) -> str:
    """What changes with the text, but not with its spaces and comments. ``'a' 'b'`` is another text than ``'a''b'``."""
    fingerprint, end = "", -1
    for token in tokens:
        between = "" if token.start == end and token.token_type is TokenType.STRING else "\n"
        end = token.end + 1
        fingerprint += f"{between}{token.token_type.name} {text[token.start : end]}"
    return fingerprint


def _end(table: exp.Table) -> int:
    return int(table.this.meta.get("end", -1)) + 1


def _cause(error: SqlglotError) -> str:
    described = error.errors[0]["description"] if isinstance(error, ParseError) and error.errors else str(error)
    return str(described)


def _start(table: exp.Table) -> int:
    """Where the name of a table begins in the text, or -1 if sqlglot made it up."""
    return int(table.this.meta.get("start", -1))


def sql_view(
    name: str,
    text: str,
    *,
    tables: Mapping[str, Input],
    by: Columns | None = None,
    key: Columns | None = None,
    topic: str | ViewTopic | None = None,
    lake: str | None = None,
    final: FinalResults | None = None,
    reach: Reach | None = None,
) -> View:
    """Declare a view by a query.

    Spark plans the query before it first runs. One that a single view cannot keep up to date is cut into stages. A
    stage is a view with ``_rows`` and a number behind the name of this one. The key follows from the plan. Columns of
    the key that the query does not select come behind its own. ``topic``, ``lake``, ``final`` and ``reach`` are as in
    `view`. Raises InvalidDefinition.

    Args:
        tables: The tables and views, by their names in the query.
        by: The columns of a partition: the query sees one partition of all tables at a time.
        key: With ``by``, the columns that distinguish rows of a partition. Otherwise it is the whole key.

    Examples:
        >>> sql_view("named", "SELECT o.id, c.name FROM o LEFT JOIN c ON o.buyer = c.id", tables={"o": o, "c": c})
    """
    query = Query(checked_identifier(name, what="view"), text, tables)
    partition, own = as_columns(by or ()), as_columns(key or ())
    function = SqlFunction(query, (*partition, *own))
    return bind(name, function, query.roles, key=own, by=partition, topic=topic, lake=lake, final=final, reach=reach)


def _with_names(result: Any, names: Sequence[str]) -> Any:
    """The result with the names of a key in the case that tables have them in: Spark takes any."""
    by_lower_case = {name.lower(): name for name in names}
    other = {c: by_lower_case[c.lower()] for c in result.columns if by_lower_case.get(c.lower(), c) != c}
    return result.withColumnsRenamed(other) if other else result


class SqlFunction:
    """A query as the function of a view: its arguments are DataFrames, in the order of the query's roles.

    Columns of the result whose names differ from one of ``names`` in case alone get that name.
    """

    def __init__(self, query: Query, names: Sequence[str] = ()) -> None:
        self._query, self._names = query, names
        self._is_known_to_spark = False
        self.signature = query.fingerprint
        self.__signature__ = parameters(*query.roles)

    def __call__(self, *frames: Any) -> Any:
        """The query's result, as a DataFrame."""
        own = {role: f"factfold_{uuid.uuid4().hex}_{role}" for role in self._query.roles}
        text, session = self._query.over(own), frames[0].sparkSession
        if not self._is_known_to_spark:
            places = Counter(own[table.meta["role"]] for table in self._query.places)
            require_only(session, text, tables=places, queries=self._query.queries, view=self._query.name)
        for name, frame in zip(own.values(), frames, strict=True):
            frame.createOrReplaceTempView(name)
        try:
            result = session.sql(text)
            self._is_known_to_spark = True
            return _with_names(result, self._names)
        finally:
            for name in own.values():
                session.catalog.dropTempView(name)
