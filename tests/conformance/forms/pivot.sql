SELECT *
FROM (SELECT a, s, m FROM t)
PIVOT (sum(m) AS total, max(m) AS most FOR s IN ('x' AS x, 'y' AS y))
