SELECT id, explode(sequence(0, coalesce(a, 0))) AS x FROM t
