SELECT id, c, val FROM t UNPIVOT (val FOR c IN (a, b))
