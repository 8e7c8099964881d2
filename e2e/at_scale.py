#!/usr/bin/env python3
"""A thousand nodes on a genuine kube-apiserver: how soon NodeClaims follow pods, and what the operator costs while only kubelets heartbeat.

    at_scale.py --kubeconfig FILE --spokeshave PROGRAM --kubelets PROGRAM --log FILE [--nodes N] [--rest SECONDS]

Two pods for each node are created at once; what is told is when the last pod was there, when the scheduler had said of the last one that it fits nowhere, and when
the last NodeClaim was written. Then, when everything runs, nothing changes for a while but the heartbeats of the kubelets, which a process of its own sends: Leases
every 10 s, statuses every 5 minutes. Processor time, requests, Snapshots and passes of the operator in that time are told. Writes other than the operator's Lease and
Snapshots that were made anew fail the run; times never do. Needs nothing but Python 3.9 or later, and Linux for processor time.
"""

import argparse
import calendar
import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from scenario import CLAIMS, CLASSES, PODS, POOL, POOLS, Cluster, Story, Wrong, condition, install, requirements, running  # noqa: E402

CONNECTIONS = 8
TICKS = os.sysconf("SC_CLK_TCK")


class Counter(threading.Thread):
    """Looks five times a second how many NodeClaims there are, and notes when the last one came."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.count, self.last = cluster, 0, 0.0
        self.start()

    def run(self):
        while True:
            page = self.cluster.call("GET", f"{CLAIMS}?limit=1")
            count = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
            if count > self.count:
                self.count, self.last = count, time.time()
            time.sleep(0.2)


class Process:
    """A program that runs beside the cluster."""

    def __init__(self, command, log):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def seconds(self):
        """Processor time so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_mib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def metrics(port):
    """Sums by name, and by name and the value of `method` or `cause`."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    sums = {}
    for name, labels, value in re.findall(r"(?m)^([a-z_]+)(\{[^\n]*\})? ([0-9.e+-]+)$", text):
        found = re.search(r'(?:method|cause)="([^"]*)"', labels or "")
        for key in {name, f"{name}/{found.group(1)}" if found else name}:
            sums[key] = sums.get(key, 0) + float(value)
    return sums


def prepare(cluster):
    cluster.apply(CLASSES, "e2e", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "e2e"},
                                   "spec": {"nodeRegistrationDelay": "2s"}})
    cluster.apply(POOLS, POOL, {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL},
        "spec": {"template": {"spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "e2e"}, "requirements": requirements("2")}},
                 "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}}})


def create_pods(cluster, count):
    kept = threading.local()
    server = cluster.server

    def create(index):
        if not hasattr(kept, "connection"):
            kept.connection = http.client.HTTPSConnection(server.host, server.port, context=server.context, timeout=60)
        pod = {"metadata": {"name": f"web-{index:05}", "labels": {"app": "web"}},
               "spec": {"nodeSelector": {"karpenter.sh/nodepool": POOL},
                        "containers": [{"name": "c", "image": "registry.example/pause", "resources": {"requests": {"cpu": "900m", "memory": "512Mi"}}}]}}
        headers = {"Content-Type": "application/json"}
        if server.token:
            headers["Authorization"] = f"Bearer {server.token}"
        kept.connection.request("POST", PODS, json.dumps(pod), headers)
        answer = kept.connection.getresponse()
        body = answer.read()
        if answer.status != 201:
            raise Wrong(f"POST of pod {index}: {answer.status} {body[:300]!r}")

    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(create, range(count)))


def refused_at(pod):
    """When the scheduler first said of a pod that it fits nowhere, to the second; 0 when it has not."""
    for entry in (pod.get("status") or {}).get("conditions") or []:
        if entry["type"] == "PodScheduled" and entry.get("reason") == "Unschedulable":
            return calendar.timegm(time.strptime(entry["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ"))
    return 0


def scale_out(cluster, story, nodes, port):
    claims, refused = Counter(cluster), 0
    before = metrics(port)
    started = time.time()
    create_pods(cluster, 2 * nodes)
    created = time.time()
    while claims.count < nodes:
        if time.time() - created > 300:
            raise Wrong(f"{claims.count} of {nodes} NodeClaims after 300 s")
        refused = max(refused, max((refused_at(pod) for pod in cluster.items(PODS)), default=0))
        time.sleep(0.5)
    after = metrics(port)
    written = sum(after.get(f"client_go_request_total/{method}", 0) - before.get(f"client_go_request_total/{method}", 0) for method in ("POST", "PUT", "PATCH", "DELETE"))
    story.say(f"{2 * nodes} pods were created in {created - started:.1f} s; the scheduler said of the last one that it fits nowhere {refused - created:.0f} s after the last was created "
              f"(to the second); the last of {claims.count} NodeClaims was there {claims.last - created:.1f} s after the last pod; {written:.0f} writes of the operator by then, "
              f"{written / (claims.last - started):.0f} a second")


def settled(cluster, nodes):
    pods = cluster.items(PODS)
    waiting = sum(not running(pod) for pod in pods)
    if waiting or len(pods) != 2 * nodes:
        return f"{waiting} of {len(pods)} pods do not run"
    claims = cluster.items(CLAIMS)
    unfinished = sum(condition(claim, "Consolidatable") != "True" for claim in claims)
    return unfinished and f"{unfinished} of {len(claims)} NodeClaims are not yet Consolidatable"


def come_to_rest(port):
    """Waits until nothing was written, and no Snapshot made, for longer than the five minutes after which a refresh takes in what was written last."""
    def done():
        now = metrics(port)
        return [now.get("spokeshave_snapshots_made_total", 0)] + [now.get(f"client_go_request_total/{method}", 0) for method in ("POST", "PATCH", "DELETE")]

    known, since = done(), time.monotonic()
    while time.monotonic() - since < 330:
        time.sleep(10)
        now = done()
        if now != known:
            known, since = now, time.monotonic()


def rest(operator, story, seconds, port):
    before, used, started = metrics(port), operator.seconds(), time.monotonic()
    time.sleep(seconds)
    after, wall = metrics(port), time.monotonic() - started
    used = operator.seconds() - used
    change = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    requests = {key.split("/")[1]: round(value) for key, value in change.items() if key.startswith("client_go_request_total/")}
    passes = {key.split("/")[1]: round(value) for key, value in change.items() if key.startswith("spokeshave_voluntary_disruption_passes_total/")}
    made = round(change.get("spokeshave_snapshots_made_total", 0))
    story.say(f"{wall:.0f} s of heartbeats: {used:.2f} s of processor time ({100 * used / wall:.2f} % of a core), requests {requests}, {made} Snapshots made anew, passes {passes}, "
              f"{operator.resident_mib():.0f} MiB")
    # The leader renews its Lease every 2 s (PUT).
    leases = wall / 2 + 5
    if sum(count for method, count in requests.items() if method != "GET") > leases:
        raise Wrong(f"the operator wrote more than its Lease: {requests}")
    if made:
        raise Wrong(f"{made} Snapshots were made anew though only heartbeats came")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("kubeconfig", "spokeshave", "kubelets", "log"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rest", type=float, default=600)
    arguments = parser.parse_args()
    cluster, story, port = Cluster(arguments.kubeconfig), Story(), free_port()
    install(cluster, arguments.spokeshave)
    prepare(cluster)
    processes = []
    try:
        operator = Process([arguments.spokeshave, "operator", "--kubeconfig", arguments.kubeconfig, "--cloud-provider", "kwok",
                            "--metrics-port", str(port), "--health-probe-port", "0"], arguments.log)
        processes.append(operator)
        processes.append(Process([arguments.kubelets, arguments.kubeconfig], arguments.log + ".kubelets"))
        Story.wait("the NodePool is ready", 60, lambda: condition(cluster.call("GET", f"{POOLS}/{POOL}"), "Ready") != "True" and "it is not")
        story.say("the operator and the kubelets run")
        scale_out(cluster, story, arguments.nodes, port)
        Story.wait("all pods run", 600, lambda: settled(cluster, arguments.nodes))
        story.say("all pods run, and every node may be consolidated")
        come_to_rest(port)
        rest(operator, story, arguments.rest, port)
    except Wrong as wrong:
        sys.exit(f"FAILED {wrong}")
    finally:
        for process in reversed(processes):
            process.stop()


if __name__ == "__main__":
    main()
