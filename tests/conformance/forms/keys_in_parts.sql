SELECT t.id, w.s AS fixed, x.id AS both
FROM t
LEFT JOIN v w ON w.id = 3 AND w.b >= t.b
LEFT JOIN u ON t.a = u.id
LEFT JOIN v x ON x.a = t.b AND x.b = u.b
WHERE t.a IN (SELECT a FROM u WHERE u.s = t.s)
