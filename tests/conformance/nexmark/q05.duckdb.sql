WITH hops AS (
    SELECT auction, count(*) AS num, starttime
    FROM (
        SELECT auction, time_bucket(INTERVAL '2 seconds', dateTime) - INTERVAL (2 * hop) SECOND AS starttime
        FROM bid, range(5) AS hops(hop)
    )
    GROUP BY auction, starttime
)
SELECT auction, num FROM hops WHERE num >= (SELECT max(num) FROM hops AS other WHERE other.starttime = hops.starttime)
