#!/usr/bin/env python3
"""Compares the verdict on every node, and each method's commands, with upstream Karpenter's on the same states.

A verdict agrees when both keep the node, or both delete or replace it at the same savings; ours may save more. The
methods agree when ours saves at least as much. Upstream looks at NodePools in no order, so that its commands vary from run to run:
where ours save less, upstream runs eight times more and the median counts. A node to which our plan sends pending pods is in none of its
commands (D-027): upstream nominates such nodes too, but in memory, which a dump does not tell it. Differences are printed, and the world is
kept in --keep DIR.
"""

import os
import statistics
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import worlds
from provisioning import arguments, ours, upstream

EPSILON = 1e-6
METHODS = {"emptiness": "emptiness", "drift": "drift", "multinode": "multi-node", "singlenode": "single-node"}


def savings(command):
    return command["price_before"] - command["price_after"]


def upstream_verdicts(theirs):
    """Node → (decision, savings) as the first method that would act on it alone decides; no-op is keep."""
    verdicts = {}
    for node in theirs["each"]["refused"]:
        verdicts[node] = ("keep", 0.0, theirs["each"]["refused"][node])
    for node in theirs["each"].get("nodes", []):
        decision = {"no-op": "keep"}.get(node["decision"], node["decision"])
        saved = savings(node["command"]) if node.get("command") else 0.0
        verdicts[node["node"]] = (decision, saved, node.get("reason", ""))
    return verdicts


def our_verdict(verdict):
    """(decision, savings), the budgets aside, as upstream's what-if leaves them aside."""
    only_budget = verdict["blockers"] and all(b["kind"] == "Budget" for b in verdict["blockers"])
    then = verdict["ifRemoved"]
    if only_budget and then:
        return then["decision"], verdict["priceBefore"] - then["priceAfter"], then["method"]
    return verdict["decision"], verdict["priceBefore"] - verdict["priceAfter"], verdict["method"]


def compare_verdicts(theirs, mine):
    """(agreeing, better, problems)."""
    methods = {m["method"]: m for m in theirs["methods"]}
    empty = set(methods["emptiness"]["candidates"])
    drifted = set(methods["drift"]["candidates"])
    expected = upstream_verdicts(theirs)
    agreeing, better, problems = 0, 0, []
    for verdict in mine["disruption"]["verdicts"]:
        node = verdict["node"]
        decision, saved, method = our_verdict(verdict)
        if node in empty:
            want = ("delete", verdict["priceBefore"], "empty")
        elif node in drifted:
            # Drift has no what-if for every node; its commands are compared below.
            continue
        else:
            want = expected.get(node, ("keep", 0.0, "no candidate"))
        if decision == want[0] and abs(saved - want[1]) < EPSILON:
            agreeing += 1
        elif saved > want[1] + EPSILON:
            better += 1
            problems.append((True, f"ours {decision} {node} saves {saved:.6f} ({method}), upstream {want[0]} {want[1]:.6f} ({want[2]})"))
        else:
            why = "; ".join(f"{b['kind']} {b['object']}: {b['message']}" for b in verdict["blockers"])
            problems.append((False, f"ours {decision} {node} saves {saved:.6f} ({why}), upstream {want[0]} {want[1]:.6f} ({want[2]})"))
    return agreeing, better, problems


def usual_savings(options, path, name, first):
    """What the commands of a method save in the middle one of nine runs of upstream."""
    runs = [upstream(options, path, "disrupt", "--method", name)["methods"][0]["commands"] for _ in range(8)]
    return statistics.median([first] + [sum(savings(command) for command in commands) for commands in runs])


def compare_methods(options, path, theirs):
    """Per method, whether our commands save at least as much."""
    results = {}
    for method in theirs["methods"]:
        name = method["method"]
        plan = ours(options, path, "--methods", METHODS[name])
        mine = plan["disruption"]["commands"]
        nominated = {node["node"] for node in plan["provisioning"]["existingNodes"]}
        want = sum(savings(c) for c in method["commands"])
        have = sum(c["priceBefore"] - c["priceAfter"] for c in mine)
        nodes_theirs = sorted(c["node"] for command in method["commands"] for c in command["candidates"])
        nodes_mine = sorted(n for command in mine for n in command["nodes"])
        if nodes_theirs == nodes_mine and abs(want - have) < EPSILON:
            results[name] = ("equal", "")
        elif name == "drift" and len(nodes_theirs) != len(nodes_mine):
            results[name] = ("differs", f"ours {nodes_mine} {have:.6f}, upstream {nodes_theirs} {want:.6f}")
        elif have >= want - EPSILON or have >= usual_savings(options, path, name, want) - EPSILON:
            results[name] = ("better", f"ours {nodes_mine} {have:.6f}, upstream {nodes_theirs} {want:.6f}")
        elif nominated & set(nodes_theirs):
            results[name] = ("nominated", f"ours {nodes_mine} {have:.6f}, upstream {nodes_theirs} {want:.6f}")
        else:
            results[name] = ("worse", f"ours {nodes_mine} {have:.6f}, upstream {nodes_theirs} {want:.6f} {method.get('log')}")
    return results


def check(options, directory, seed):
    name, world = worlds.disruption_world(options.oracle, seed)
    path = str(Path(directory) / f"{name}.json")
    worlds.write(world, path)
    theirs = upstream(options, path, "disrupt", "--method", "all", "--each")
    mine = ours(options, path, "--verdicts")
    return name, world, path, compare_verdicts(theirs, mine), compare_methods(options, path, theirs)


def main():
    options = arguments(__doc__)
    nodes, agreeing, better = 0, 0, 0
    methods = {name: Counter() for name in METHODS}
    clean, bad = 0, []
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(options.jobs) as pool:
        seeds = range(options.first, options.first + options.worlds)
        for name, world, path, (agree, more, problems), results in pool.map(lambda seed: check(options, directory, seed), seeds):
            nodes += agree + len(problems)
            agreeing += agree
            better += more
            lines = [text for is_better, text in problems if options.verbose or not is_better]
            for method, (result, text) in results.items():
                methods[method][result] += 1
                if result in ("worse", "differs") or (options.verbose and result == "better"):
                    lines.append(f"{method} {result}: {text}")
            worse = any(not is_better for is_better, _ in problems) or any(r[0] in ("worse", "differs") for r in results.values())
            clean += not worse
            if lines:
                print(f"{name} ({', '.join(sorted(set(world.traits)))}):")
                for line in lines[: None if options.verbose else 6]:
                    print(f"  {line[:400]}")
            if worse:
                bad.append(name)
                if options.keep:
                    Path(options.keep).mkdir(parents=True, exist_ok=True)
                    Path(options.keep, f"{name}.json").write_text(Path(path).read_text())
            os.unlink(path)
    print(f"{clean} of {options.worlds} worlds: every verdict agrees or ours saves more, and so does every method")
    print(f"verdicts: {nodes} nodes, {agreeing} agree, ours saves more on {better}, less on {nodes - agreeing - better}")
    for method, results in methods.items():
        print(f"{method}: " + ", ".join(f"{count} {result}" for result, count in sorted(results.items())))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
