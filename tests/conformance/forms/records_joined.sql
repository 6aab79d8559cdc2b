SELECT id, x, other
FROM (SELECT id, i.x FROM t LATERAL VIEW inline(array(struct(a AS x, b AS y), struct(b AS x, a AS y))) i AS x, y)
JOIN (SELECT a, id AS other FROM u) ON a = x
