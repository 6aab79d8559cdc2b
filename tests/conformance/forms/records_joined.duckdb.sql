SELECT i.id, i.x, u.id AS other
FROM (SELECT id, a AS x FROM t UNION ALL SELECT id, b FROM t) i
JOIN u ON u.a = i.x
