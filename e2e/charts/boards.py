#!/usr/bin/env python3
"""Prints the queries of the boards as recording rules, so that `promtool check rules` reads them: just rules-check. Needs nothing but Python 3.9 or later."""

import glob
import json
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))


def queries(value):
    if isinstance(value, dict):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        for inner in value.values():
            yield from queries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from queries(inner)


rules = []
for path in sorted(glob.glob(os.path.join(HERE, "../../charts/spokeshave/dashboards/*.json"))):
    for query in queries(json.load(open(path, encoding="utf-8"))):
        # What Grafana puts in before it asks.
        plain = re.sub(r"\$\w+", lambda found: {"$__rate_interval": "5m"}.get(found.group(), ".*"), query)
        rules.append({"record": f"board:query:{len(rules)}", "expr": plain})
print(json.dumps({"groups": [{"name": "boards", "rules": rules}]}, indent=1))
