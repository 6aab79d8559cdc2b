SELECT x, count(*) AS n FROM (SELECT id, explode(array(a, b)) AS x FROM t) GROUP BY x
