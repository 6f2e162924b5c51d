"""Makes the Grafana dashboards of deploy/grafana/dashboards from short descriptions of their panels.

    python -m scripts.dashboards           # writes them (make dashboards)
    python -m scripts.dashboards --check   # fails where a file differs from what would be written

One module a dashboard, which says what is shown; promql.py spells selectors and queries, panels.py the panels,
dashboards.py whole files. No Grafana is needed, and none was at hand: what can be checked without one, tests/deploy
checks.

Queries ask raw metrics only, never recorded ones, so the dashboards work where the rules of deploy/prometheus are not
loaded.
"""
