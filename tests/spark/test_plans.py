"""A plan is read as Spark has it: its operators, what their rows have, and each node's place in the JVM."""

from __future__ import annotations

import pytest

from projections.planning.plans import analysed_plan, operators
from projections.spark.scala import items
from tests.rows import each_row


@pytest.fixture(scope="module")
def queries(small):
    small.range(0).selectExpr("id AS k", "id AS v", "array(id) AS xs", "named_struct('a', id) AS s").createTempView("t")
    small.range(0).selectExpr("id AS k", "id AS w").createTempView("u")
    yield small.sql
    small.catalog.dropTempView("t")
    small.catalog.dropTempView("u")


def expressions_of(plan):
    waiting = [expression for node in operators(plan) for expression in node.expressions]
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting.extend(expression.children)


TEXTS = {
    "joins": "SELECT t.k, u.* FROM t LEFT JOIN u ON t.k = u.k AND w > 1 FULL JOIN u AS o ON o.k = t.k",
    "joins of one side": "SELECT * FROM t LEFT SEMI JOIN u ON t.k = u.k LEFT ANTI JOIN u AS o ON o.k = t.k",
    "groups": "SELECT k % 2 AS half, sum(v) AS s, count(*) FILTER (WHERE v > 1) AS n FROM t GROUP BY k % 2",
    "groupings": "SELECT k, v, sum(v) FROM t GROUP BY ROLLUP (k, v)",
    "windows": "SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t",
    "unions": "SELECT k, v FROM t UNION ALL SELECT * FROM u UNION SELECT w, k FROM u",
    "sets": "SELECT k FROM t INTERSECT SELECT k FROM u EXCEPT SELECT w FROM u",
    "rows of arrays": "SELECT k, s.a, x FROM t LATERAL VIEW explode(xs) AS x WHERE CASE WHEN v > 1 THEN true END",
    "subqueries": "SELECT (SELECT max(w) FROM u WHERE u.k = t.k) AS m FROM t WHERE v IN (SELECT w FROM u)",
    "a lateral join": "SELECT * FROM t, LATERAL (SELECT w FROM u WHERE u.k = t.k)",
    "many conditions": f"SELECT k FROM t WHERE {' OR '.join(f'v = {n}' for n in range(150))}",
    "a name used twice": "WITH c AS (SELECT k FROM t) SELECT * FROM c JOIN c AS d ON c.k = d.k",
}


@each_row("text", TEXTS.values(), TEXTS)
def test_a_plan_is_the_one_that_spark_has(queries, text):
    plan = analysed_plan(queries(text))
    for node in operators(plan):
        assert node.jvm.nodeName() == node.kind
        assert [(a.name, a.id) for a in node.output] == [(a.name(), a.exprId().id()) for a in items(node.jvm.output())]
        assert {plan.kind for plan in node.subqueries} == {plan.nodeName() for plan in items(node.jvm.subqueries())}
    for expression in expressions_of(plan):
        assert expression.jvm.getClass().getSimpleName() == expression.kind
        assert set(expression.references) == {a.exprId().id() for a in items(expression.jvm.references().toSeq())}
