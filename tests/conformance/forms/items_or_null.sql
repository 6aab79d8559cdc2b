SELECT id, pos, x FROM t LATERAL VIEW OUTER posexplode(CASE WHEN a > 1 THEN array(a, b) END) p AS pos, x
