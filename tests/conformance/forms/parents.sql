SELECT /*+ BROADCAST(u) */ u.s, count(t.id) AS n, sum(t.m) AS total
FROM u LEFT JOIN t ON t.a = u.id
GROUP BY u.s -- rows of u without one of t, too
