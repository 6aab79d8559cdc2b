SELECT u.s, v.s AS other, count(*) AS n
FROM u, t, v
WHERE t.a = u.id AND t.b = v.id
  AND u.id IN (SELECT x.a FROM (SELECT a FROM t) x)
  AND v.b IN (SELECT x.b FROM (SELECT b FROM u) x)
GROUP BY u.s, v.s
