SELECT x, count(*) AS n FROM (SELECT id, unnest([a, b]) AS x FROM t) GROUP BY x
