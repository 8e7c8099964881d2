#!/usr/bin/env python3
"""What Grafana's boards show of a cluster that lives: `just board-queries`.

    boards_live.py --kubeconfig FILE --spokeshave PROGRAM --boards TOOL --log FILE [--picture FILE]

Runs the operator on the embedded API server (`spokeshave up --bare --no-operator`, see boards_live.sh), lets workloads come, shrink and go, scrapes the operator's
/metrics meanwhile, and asks every query of our boards and of Karpenter's published ones (upstream_boards.json) with Prometheus's own engine (e2e/tools/boards). A
query that finds nothing must stand in NOTHING with the reason. --picture draws the board "Spokeshave / Overview" from what was found. Needs nothing but Python 3.9
or later.
"""

import argparse
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
import board_picture  # noqa: E402
from scenario import Cluster, Story, Wrong, install  # noqa: E402

SECONDS = 150
# What Grafana puts in for variables. A rate's interval is four scrapes, as Grafana's is by default.
VARIABLES = {"$__rate_interval": "8s", "$distribution_filter": "nodepool", "$controller": "nodeclaim.lifecycle", "$1": "$1"}
# Queries that may be without an answer here, by a part of them: the reason. Any other one must have one.
NOTHING = {
    "karpenter_interruption_": "kwok's cloud has no queue",
    "node_time_seconds": "asks node-exporter, not the operator",
    'quantile="0"}': 'Prometheus 3 stores quantile="0" as 0.0, and the board finds nothing with Karpenter either; Prometheus 2 keeps it',
    'quantile="1"}': 'Prometheus 3 stores quantile="1" as 1.0, as above',
    "spokeshave_events_dropped_total": "no event was dropped",
    "spokeshave_watch_failures_total": "no watch failed",
    "spokeshave_audit_refused_commands_total": "the audit refused nothing",
    "karpenter_voluntary_disruption_queue_failures_total": "every replacement came up",
    "karpenter_voluntary_disruption_failed_validations_total": "no candidate fell out at the second look",
    "controller_runtime_reconcile_panics_total": "nothing panicked",
    "controller_runtime_reconcile_errors_total": "nothing failed",
    "karpenter_cloudprovider_errors_total": "no call to the cloud failed",
    'reason=~"insufficient_capacity': "no launch was given up",
}
POOLS = "/apis/karpenter.sh/v1/nodepools"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
# (seconds after the first scrape, Deployment, replicas): a morning, a peak, an evening.
DAY = [(5, "web", 12), (10, "batch", 6), (30, "web", 40), (45, "batch", 24), (70, "batch", 2), (80, "web", 9), (120, "batch", 0), (125, "web", 14)]


def asked():
    """Every query with its board and panel, as Grafana would send it."""
    rows = []
    for path in sorted(glob.glob(os.path.join(HERE, "../../charts/spokeshave/dashboards/*.json"))):
        board = json.load(open(path, encoding="utf-8"))
        for panel in board["panels"]:
            for index, target in enumerate(panel.get("targets", [])):
                rows.append({"board": board["title"], "panel": panel["title"], "target": index, "query": target["expr"]})
    rows += json.load(open(os.path.join(HERE, "upstream_boards.json"), encoding="utf-8"))["queries"]
    for row in rows:
        row["query"] = re.sub(r"\$\w+", lambda match: VARIABLES.get(match.group(), ".*"), row["query"])
    return rows


def prepare(cluster):
    cluster.apply("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", "default", {
        "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "2s"}})
    for name, capacity, sizes in (("general", "on-demand", ["4", "8"]), ("batch", "spot", ["4", "16"])):
        one = lambda key, *values: {"key": key, "operator": "In", "values": list(values)}
        cluster.apply(POOLS, name, {
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {
                "limits": {"cpu": "120", "memory": "480Gi"},
                "template": {"spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "requirements": [one("kubernetes.io/os", "linux"), one("karpenter.sh/capacity-type", capacity), one("karpenter.kwok.sh/instance-cpu", *sizes)]}},
                "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "2s", "budgets": [{"nodes": "50%"}]}}})
    for name, pool in (("web", "general"), ("batch", "batch")):
        cluster.apply(DEPLOYMENTS, name, {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"terminationGracePeriodSeconds": 1, "nodeSelector": {"karpenter.sh/nodepool": pool},
                         "containers": [{"name": "c", "image": "registry.example/pause", "resources": {"requests": {"cpu": "900m", "memory": "512Mi"}}}]}}}})
    cluster.apply("/apis/apps/v1/namespaces/default/daemonsets", "agent", {
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "c", "image": "registry.example/agent", "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}}}]}}}})
    cluster.apply(BUDGETS, "web", {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                                   "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}})


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def answers(arguments, queries):
    """What the operator's metrics answer after the day; it is ended afterwards."""
    cluster, port = Cluster(arguments.kubeconfig), free_port()
    install(cluster, arguments.spokeshave)
    prepare(cluster)
    with open(arguments.log, "ab") as log:
        operator = subprocess.Popen(
            [arguments.spokeshave, "operator", "--kubeconfig", arguments.kubeconfig, "--cloud-provider", "kwok", "--simulate-kubelets",
             "--metrics-port", str(port), "--health-probe-port", "0", "--disable-cluster-state-observability", "false"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        def silent():
            if operator.poll() is not None:
                raise Wrong(f"the operator ended with status {operator.returncode}; its log is {arguments.log}")
            with socket.socket() as probe:
                return "nothing listens" if probe.connect_ex(("127.0.0.1", port)) else ""

        Story.wait("the operator serves /metrics", 30, silent)
        scraper = subprocess.Popen([arguments.boards, "-metrics", f"http://127.0.0.1:{port}/metrics", "-for", f"{SECONDS}s"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        scraper.stdin.write(json.dumps(queries))
        scraper.stdin.close()
        begin = time.monotonic()
        for at, name, replicas in DAY:
            time.sleep(max(0, begin + at - time.monotonic()))
            cluster.call("PATCH", f"{DEPLOYMENTS}/{name}/scale", {"spec": {"replicas": replicas}}, "application/merge-patch+json")
        found = scraper.stdout.read()
        if scraper.wait():
            raise Wrong("scraping failed")
        return json.loads(found)
    finally:
        operator.send_signal(signal.SIGTERM)
        operator.wait()


def reason(row):
    return next((why for part, why in NOTHING.items() if part in row["query"]), None)


def faults(rows):
    for row in rows:
        name = f"{row['board']} / {row['panel']}: {row['query']}"
        if "error" in row:
            yield f"{name}: {row['error']}"
        elif not row["series"] and not reason(row):
            yield f"{name}: finds nothing"
    for part in NOTHING:
        if not any(part in row["query"] for row in rows):
            yield f"NOTHING names {part}, which no query asks for"


def report(rows):
    for board in dict.fromkeys(row["board"] for row in rows):
        own = [row for row in rows if row["board"] == board]
        print(f"{board}: {len(own)} queries, {sum(bool(row.get('series')) for row in own)} with an answer")
        for row in own:
            if row.get("series") == [] and reason(row):
                print(f"  nothing: {row['panel']}: {row['query'][:100]} ({reason(row)})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("kubeconfig", "spokeshave", "boards", "log"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--picture")
    arguments = parser.parse_args()
    try:
        rows = answers(arguments, asked())
    except Wrong as wrong:
        sys.exit(f"FAILED: {wrong}")
    report(rows)
    found = list(faults(rows))
    for fault in found:
        print(f"FAULT: {fault}")
    if arguments.picture:
        board = json.load(open(os.path.join(HERE, "../../charts/spokeshave/dashboards/overview.json"), encoding="utf-8"))
        with open(arguments.picture, "w", encoding="utf-8") as file:
            file.write(board_picture.drawn(board, rows))
    print(f"{len(rows)} queries, {len(found)} faults")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
