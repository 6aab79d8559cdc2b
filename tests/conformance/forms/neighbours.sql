SELECT id, m - lag(m) OVER (PARTITION BY a ORDER BY b, id) AS more, lead(m, 1, 0) OVER (PARTITION BY a ORDER BY b, id) AS next
FROM t
