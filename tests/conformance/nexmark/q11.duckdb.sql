SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, max(dateTime) + INTERVAL '10 seconds' AS endtime
FROM (
    SELECT bidder, dateTime, sum(opens) OVER (PARTITION BY bidder ORDER BY dateTime) AS session
    FROM (
        SELECT
            bidder,
            dateTime,
            CASE
                WHEN dateTime - lag(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) <= INTERVAL '10 seconds'
                THEN 0 ELSE 1
            END AS opens
        FROM bid
    )
)
GROUP BY bidder, session
