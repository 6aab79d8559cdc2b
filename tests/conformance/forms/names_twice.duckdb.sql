SELECT upper(s) AS b, max(x.b) AS last, x.a % 2 AS a
FROM (SELECT s, a, a + b AS b FROM t) x
GROUP BY upper(s), x.a % 2
HAVING max(x.b) > 2 AND sum(x.a) > 1
