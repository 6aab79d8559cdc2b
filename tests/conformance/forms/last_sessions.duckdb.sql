SELECT a, make_timestamp(CAST(max(start) * 1000000 AS BIGINT)) AS last
FROM (
    SELECT a, min(m) AS start
    FROM (
        SELECT *, sum(opens) OVER (PARTITION BY a ORDER BY m) AS session
        FROM (
            SELECT *, CASE WHEN m - lag(m) OVER (PARTITION BY a ORDER BY m) <= 2 THEN 0 ELSE 1 END AS opens
            FROM t
            WHERE m IS NOT NULL
        )
    )
    GROUP BY a, session
)
GROUP BY a
