SELECT upper(s) AS b, max(b) AS last, a % 2 AS a
FROM (SELECT s, a, a + b AS b FROM t) x
GROUP BY upper(s), a % 2
HAVING max(b) > 2 AND sum(a) > 1
