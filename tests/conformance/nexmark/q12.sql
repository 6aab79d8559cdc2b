SELECT B.bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
FROM bid B
GROUP BY B.bidder, window(B.dateTime, '10 seconds')
