SELECT a, count(*) AS n, sum(m) AS s FROM t GROUP BY a, session_window(timestamp_seconds(m), '2 seconds')
