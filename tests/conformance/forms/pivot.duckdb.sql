SELECT
    a,
    sum(m) FILTER (WHERE s = 'x') AS x_total,
    max(m) FILTER (WHERE s = 'x') AS x_most,
    sum(m) FILTER (WHERE s = 'y') AS y_total,
    max(m) FILTER (WHERE s = 'y') AS y_most
FROM t
GROUP BY a
