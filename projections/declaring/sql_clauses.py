"""Where the clauses of a query stand in its text: the columns that it selects, its rows, and what it says of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_AFTER_GROUPS = frozenset({TokenType.ORDER_BY, TokenType.SEMICOLON})
_AFTER_ROWS = frozenset({TokenType.GROUP_BY, TokenType.HAVING}) | _AFTER_GROUPS


@dataclass(frozen=True)
class Item:
    """A column that a query selects: its expression, the text of that, and the name it is given."""

    expression: exp.Expr
    start: int
    end: int
    alias: str | None

    @property
    def name(self) -> str | None:
        """The name of the column, where the text says one."""
        inner = self.expression
        return self.alias or (inner.name if isinstance(inner, exp.Column) else None)


@dataclass(frozen=True)
class Clauses:
    """The text in front of SELECT, the columns, FROM with all that chooses rows, and HAVING.

    ORDER BY is left out: the rows of a view have no order.
    """

    before: str
    items: tuple[Item, ...]
    rows: str
    having: tuple[int, int] | None


def clauses(text: str, tokens: Sequence[Token], select: exp.Select) -> Clauses | None:
    """The clauses of a query, or None for a text whose clauses have another order."""
    tokens = _without_parentheses(tokens)
    top = list(_outermost(tokens))
    begun = next((n for n in top if tokens[n].token_type is TokenType.SELECT), None)
    origin = next((n for n in top if _is_from(tokens, n)), None)
    if begun is None or origin is None or origin < begun:
        return None
    first = begun + 1 + (tokens[begun + 1].token_type in (TokenType.DISTINCT, TokenType.ALL))
    items = _items(tokens, first, origin, select)
    ends = [n for n in top if n > origin and tokens[n].token_type in _AFTER_ROWS]
    end = tokens[ends[0]].start if ends else tokens[-1].end + 1
    if items is None:
        return None
    return Clauses(
        text[tokens[0].start : tokens[begun].start], items, text[tokens[origin].start : end], _having(tokens, ends)
    )


def _having(tokens: Sequence[Token], ends: Sequence[int]) -> tuple[int, int] | None:
    begun = next((n for n in ends if tokens[n].token_type is TokenType.HAVING), None)
    if begun is None:
        return None
    last = next((n for n in ends if tokens[n].token_type in _AFTER_GROUPS), len(tokens))
    return tokens[begun].end + 1, tokens[last - 1].end + 1


def _items(tokens: Sequence[Token], first: int, end: int, select: exp.Select) -> tuple[Item, ...] | None:
    commas = [first + n for n in _outermost(tokens[first:end]) if tokens[first + n].token_type is TokenType.COMMA]
    ranges = list(zip([first, *(n + 1 for n in commas)], [*commas, end], strict=True))
    if len(ranges) != len(select.expressions):
        return None
    return tuple(_item(tokens[a:b], node) for (a, b), node in zip(ranges, select.expressions, strict=True))


def _item(tokens: Sequence[Token], node: exp.Expr) -> Item:
    alias = node.alias if isinstance(node, exp.Alias) else None
    if alias is not None:
        named = tokens[-2].token_type is TokenType.ALIAS
        tokens = tokens[: -2 if named else -1]
    return Item(node.unalias(), tokens[0].start, tokens[-1].end + 1, alias)


def _without_parentheses(tokens: Sequence[Token]) -> Sequence[Token]:
    while tokens[0].token_type is TokenType.L_PAREN:
        while tokens[-1].token_type is TokenType.SEMICOLON:
            tokens = tokens[:-1]
        tokens = tokens[1:-1]
    return tokens


def _outermost(tokens: Sequence[Token]) -> Iterator[int]:
    """The places of the tokens that stand in no parentheses."""
    depth = 0
    for place, token in enumerate(tokens):
        depth -= token.token_type in _CLOSING
        if not depth:
            yield place
        depth += token.token_type in _OPENING


def _is_from(tokens: Sequence[Token], place: int) -> bool:
    """Whether a word begins the FROM clause, and is no part of IS DISTINCT FROM."""
    return tokens[place].token_type is TokenType.FROM and tokens[place - 1].token_type is not TokenType.DISTINCT
