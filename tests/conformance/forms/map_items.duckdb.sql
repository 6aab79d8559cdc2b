SELECT id, 'p' AS k, a AS v FROM t UNION ALL SELECT id, 'q', b FROM t
