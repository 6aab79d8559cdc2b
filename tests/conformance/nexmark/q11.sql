SELECT
    B.bidder,
    count(*) AS bid_count,
    session_window.start AS starttime,
    session_window.end AS endtime
FROM bid B
GROUP BY B.bidder, session_window(B.dateTime, '10 seconds')
