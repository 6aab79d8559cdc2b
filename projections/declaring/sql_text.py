"""The text of a query: what sqlglot reads in it, and the same text over other names of its tables.

Spark runs the text as it was written. sqlglot's own rendering of what it parsed is another query now and then: it drops
arguments that it does not know and adds defaults of other databases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import Dialect, Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from projections.errors import InvalidDefinition

DIALECT = "databricks"  # Spark's with paths of a variant, v:a.b, which sqlglot's own dialect "spark" does not know
_SUBSTITUTED = re.compile(r"\$\{\S+?\}")  # as org.apache.spark.internal.config.ConfigReader has it
_MOMENT = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)  # a literal of it is no function in a plan
_REMEDY = "write one SELECT of Spark's SQL"


@dataclass(frozen=True)
class SqlText:
    """A query's text with the one SELECT that it is, or several of UNION, INTERSECT and EXCEPT."""

    text: str
    select: exp.Select | exp.SetOperation
    tokens: tuple[Token, ...]
    fingerprint: str

    def require_whole(self, view: str) -> None:
        """Refuse a text that Spark completes with other values. Raises InvalidDefinition."""
        if substituted := _SUBSTITUTED.search(self.text):
            raise _refused(
                view,
                f"contains {substituted[0]}, which Spark replaces by a setting, in literals, too",
                "write the value itself. As a text, write it in two: concat('$', '{…}')",
            )
        for cast in self.select.find_all(exp.Cast):
            if cast.is_type(*exp.DataType.TEMPORAL_TYPES) and cast.this.is_string and _MOMENT.match(cast.this.name):
                raise _refused(
                    view,
                    f"has the moment {cast.this.name!r}, which Spark replaces by another time each day",
                    "let an event or a column carry it",
                )
        for parameter in self.select.find_all(exp.Placeholder, exp.Parameter):
            raise _refused(view, f"has the parameter {parameter.sql(DIALECT)}", "write the value itself")

    def over(self, tables: Iterable[exp.Table], names: Mapping[str, str]) -> str:
        """The text with other names in the places of its tables, by role, which are still called what they were."""
        parts, at = [], 0
        for table in sorted(tables, key=start):
            alias = "" if table.args.get("alias") else f" AS `{table.name}`"
            parts.append(f"{self.text[at : start(table)]}`{names[table.meta['role']]}`{alias}")
            at = _end(table)
        return "".join([*parts, self.text[at:]])

    def written(self, table: exp.Table) -> str:
        """A table's name as the text has it, without the quotes."""
        return self.text[start(table) : _end(table)].strip("`")


def start(table: exp.Table) -> int:
    """Where the name of a table begins in the text, or -1 if sqlglot made it up."""
    return int(table.this.meta.get("start", -1))


def parsed(view: str, text: str) -> SqlText:
    """What sqlglot reads in a text. Raises InvalidDefinition if it is anything but one query."""
    try:
        tokens = _spark().tokenize(text)
        expressions = _statements(tokens, text)
    except SqlglotError as error:
        raise _refused(view, f"cannot be read: {_cause(error)}", _REMEDY) from error
    except RecursionError as error:
        raise _refused(view, "is nested too deeply", "write it as several views, of which one reads another") from error
    statements = [one.unnest() for one in expressions if one is not None and not isinstance(one, exp.Semicolon)]
    if len(statements) != 1 or not isinstance(statements[0], exp.Select | exp.SetOperation):
        what = "is no SELECT" if len(statements) < 2 else f"is {len(statements)} statements"
        raise _refused(view, what, _REMEDY)
    return SqlText(text, statements[0], tuple(tokens), _fingerprint(text, tokens))


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


def _refused(view: str, what: str, remedy: str) -> InvalidDefinition:
    return InvalidDefinition(f"the SQL of view {view!r} {what}", remedy=remedy, place=f"view {view}")
