SELECT max(w.start) AS last, 1 AS one
FROM (
    SELECT a, session_window(timestamp_seconds(m), '2 seconds') AS w
    FROM t
    GROUP BY a, session_window(timestamp_seconds(m), '2 seconds')
)
GROUP BY a
