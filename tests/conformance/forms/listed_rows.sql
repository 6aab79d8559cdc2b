SELECT 1 AS one, count(*) AS n, sum(y.m * f) AS total
FROM (SELECT id, a, m FROM t WHERE b < 2 UNION ALL SELECT id, a, m FROM t WHERE b >= 2) y
JOIN VALUES (1, 10), (2, 100), (NULL, 0) AS x(k, f) ON y.a <> x.k
GROUP BY one
