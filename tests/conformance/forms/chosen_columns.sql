SELECT id, c FROM t LATERAL VIEW stack(2, 'a', a, 'b', b) s AS c, val WHERE val = 1
