SELECT id, EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.b + 1 = t.b) AS one, NOT EXISTS (SELECT 1 FROM v WHERE v.s = t.s) AS none
FROM t
WHERE s IN (SELECT s FROM u WHERE u.b = t.b) OR id > 5
