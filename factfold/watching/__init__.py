"""What no single runner knows: the fence, dead letters, the freshness of views, results of comparisons.

`files/` holds a Grafana dashboard and alert rules for Prometheus.
"""
