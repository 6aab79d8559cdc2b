SELECT id, unnest(generate_series(0, coalesce(a, 0))) AS x FROM t
