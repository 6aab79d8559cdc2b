SELECT id, k, v FROM t LATERAL VIEW explode(map('p', a, 'q', b)) e AS k, v
