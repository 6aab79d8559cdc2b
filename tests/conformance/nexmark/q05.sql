SELECT AuctionBids.auction, AuctionBids.num
FROM (
    SELECT auction, count(*) AS num, window.start AS starttime, window.end AS endtime
    FROM bid
    GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
) AS AuctionBids
JOIN (
    SELECT max(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
    FROM (
        SELECT count(*) AS num, window.start AS starttime, window.end AS endtime
        FROM bid
        GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')
    ) AS CountBids
    GROUP BY CountBids.starttime, CountBids.endtime
) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime
    AND AuctionBids.endtime = MaxBids.endtime
    AND AuctionBids.num >= MaxBids.maxn
