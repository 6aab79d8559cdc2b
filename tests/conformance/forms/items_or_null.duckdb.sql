SELECT id, CASE WHEN a > 1 THEN p END AS pos, CASE WHEN a > 1 THEN [a, b][p + 1] END AS x
FROM t, (VALUES (0), (1)) v(p)
WHERE p = 0 OR a > 1
