#!/usr/bin/env python3
"""What boards and alerts get wrong although every query is one: charts/check.sh. Needs nothing but Python 3.9 or later.

- An axis that begins at 0 draws nothing below it.
- `increase` does not see the first increment of a series, with which one of a counter with labels begins: the query has an arm for it, and alerts.test.yaml tries it.
- Karpenter writes series of the same names: the board of the operator asks for those of its jobs, and alerts for those of targets that are ours.
"""

import copy
import glob
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
CHART = os.path.join(ROOT, "charts/spokeshave")
# A metric with its selector.
SERIES = r'(?:karpenter|spokeshave|operator|controller_runtime|client_go|workqueue|process|leader)_\w+(?:\{[^}]*\})?'
# What only ours write, and by what ours are known. Of a leader that is not there nobody knows whose it is.
OURS = ("spokeshave_", "karpenter_build_info")
OF_NOBODY = ("leader_election_",)
GUARD = 'karpenter_build_info{goversion="none"}'


def text(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def with_labels():
    """Counters whose series are not there before their first increment. Those of controllers begin at 0."""
    lines = [line.split(" ", 1) for line in text("docs/contract/metrics.txt").splitlines()]
    counters = {name for name, rest in lines if rest == "counter"}
    return {name for name, rest in lines if name in counters and rest != "counter" and not name.startswith("controller_runtime_")}


def tried(query):
    """The query as alerts.test.yaml tries it."""
    return f"count(({query.replace('$__rate_interval', '5m').replace('$nodepool', '.*').replace('$job', '.*')}) != 0)"


def arms(query, counters):
    """Whether the query counts something from its first increment on; and what it counts without."""
    found, missing = False, []
    for match in re.finditer(rf"increase\(({SERIES})\[\$__rate_interval\]\)", query):
        series = match.group(1)
        if series.split("{")[0] not in counters:
            continue
        found = True
        if not query[:match.start()].endswith(f"({series} unless max_over_time({series}[1h] offset $__rate_interval) or "):
            missing.append(series)
    return found, missing


def board_faults(board, counters, tests):
    for panel in board["panels"]:
        least = panel.get("fieldConfig", {}).get("defaults", {}).get("min")
        for target in panel.get("targets", []):
            query = target["expr"]
            where = f"{board['title']} / {panel['title']}: {query}"
            if least is not None and query.startswith("-"):
                yield f"{where}: is below the least of its axis, {least}"
            found, missing = arms(query, counters)
            yield from (f"{where}: does not show the first increment of {series}" for series in missing)
            if found and tried(query) not in tests:
                yield f"{where}: alerts.test.yaml does not try {tried(query)}"
            if board["uid"] == "spokeshave-operator":
                others = [series for series in re.findall(SERIES, query) if not series.startswith(OURS) and 'job=~"$job"' not in series]
                yield from (f"{where}: {series} is also other programs'" for series in others)


def alert_faults(rules):
    expressions = re.findall(r"- alert: (\w+)\n +expr: (.*)", rules)
    if len(expressions) != rules.count("- alert: "):
        yield "an alert without an expression in the line after its name"
    for alert, expression in expressions:
        others = [series for series in re.findall(SERIES, expression) if not series.startswith((*OURS, *OF_NOBODY))]
        if others and GUARD not in expression:
            yield f"{alert}: {others[0]} is also other programs', and nothing asks for {GUARD}"


def boards():
    for path in sorted(glob.glob(os.path.join(CHART, "dashboards/*.json"))):
        yield json.loads(text(path))


def broken(board):
    """The board with all that is to be found: an axis, an arm, a job."""
    board = copy.deepcopy(board)
    for panel in board["panels"]:
        panel.setdefault("fieldConfig", {}).setdefault("defaults", {})["min"] = 0
        for target in panel.get("targets", []):
            target["expr"] = re.sub(rf'{SERIES} unless max_over_time\([^)]*\) or |,?job=~"\$job"', "", target["expr"])
    return board


def main():
    counters, tests, rules = with_labels(), text("charts/spokeshave/rules/alerts.test.yaml"), text("charts/spokeshave/rules/alerts.yaml")
    faults = [fault for board in boards() for fault in board_faults(board, counters, tests)] + list(alert_faults(rules))
    # The check itself sees what is wrong.
    seen = [fault for board in boards() for fault in board_faults(broken(board), counters, tests)] + list(alert_faults(rules.replace(GUARD, "x")))
    for words in ("is below the least", "does not show the first", "does not try", "is also other programs'", "and nothing asks for"):
        if not any(words in fault for fault in seen):
            faults.append(f"nothing is found that {words}, and it was put there")
    for fault in faults:
        print(f"FAIL {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
