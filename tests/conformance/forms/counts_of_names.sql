WITH x AS (SELECT upper(s) AS kind, a FROM t)
SELECT DISTINCT count(*) AS n FROM x JOIN u ON u.id = x.a GROUP BY kind
