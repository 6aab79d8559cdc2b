SELECT s, n FROM (SELECT s, a, count(*) AS n FROM t GROUP BY s, a) ORDER BY n DESC, s, a LIMIT 4 OFFSET 2
