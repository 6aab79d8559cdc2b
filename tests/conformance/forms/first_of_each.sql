SELECT t.id, x.id AS most, (SELECT u.s FROM u WHERE u.a = t.a ORDER BY u.id LIMIT 1) AS first
FROM t
LEFT JOIN LATERAL (SELECT u.id FROM u WHERE u.b = t.b ORDER BY u.m DESC, u.id LIMIT 1) x ON true
