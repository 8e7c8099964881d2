#!/usr/bin/env python3
"""Reads the boards by Grafana's own schema, as its foundation SDK has it: whatever of a board the schema does not know is lost on the way through it, and found here.

Needs the package grafana-foundation-sdk: see boards.sh.
"""

import copy
import glob
import json
import os
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

HERE = os.path.dirname(os.path.abspath(__file__))
# What Grafana itself writes into every board that it exports and the schema leaves out: the text of a variable's query.
ALLOWED = (".definition is not in the schema",)


def lost(ours, theirs, path=""):
    """What is not the same after the way through the schema."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from lost(value, theirs[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} is not in the schema"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs)):
            yield from lost(one, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path}: {json.dumps(ours)[:80]} became {json.dumps(theirs)[:80]}"


def faults(board):
    there_and_back = json.loads(json.dumps(Dashboard.from_json(copy.deepcopy(board)), cls=JSONEncoder))
    return [one for one in lost(board, there_and_back) if not one.endswith(ALLOWED)]


def main():
    register_default_plugins()
    wrong = []
    for path in sorted(glob.glob(os.path.join(HERE, "../../charts/spokeshave/dashboards/*.json"))):
        board = json.load(open(path, encoding="utf-8"))
        wrong += [f"{os.path.basename(path)}{fault}" for fault in faults(board)]
        # The check itself sees what is wrong.
        broken = copy.deepcopy(board)
        panel = next(panel for panel in broken["panels"] if panel["type"] == "timeseries")
        panel["fieldConfig"]["defaults"]["unitt"] = "s"
        panel["options"]["legend"]["showLegends"] = True
        if len(faults(broken)) != 2:
            wrong.append(f"{os.path.basename(path)}: two fields that nobody knows are not found: {faults(broken)}")
        print(f"{os.path.basename(path)}: {len(board['panels'])} panels, by Grafana's schema")
    for one in wrong:
        print(f"FAIL {one}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
