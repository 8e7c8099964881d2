#!/usr/bin/env python3
"""Asks the genuine kube-scheduler how often pods land where the operator has planned them.

The operator runs beside a genuine control plane, with machines of its kwok provider and NOMINATE_PODS on. In each round waves of generated pods come; the
operator launches nodes for them, and the kube-scheduler, under the profile that --profile names, binds them. A pod that was planned has landed when it is on the
node that its condition `spokeshave.dev/NodePlanned` named last before it was bound. Ends with 1 where fewer than --least percent have. Pods that had to wait and never
got the condition were bound before a plan for them had a node, or are those for which the scheduler ended others.

Of those that are elsewhere it tells why (landing_causes.py), how many have only changed places with a pod just like them, and how many took room that the pods of their
node had left. Kwok's nodes take pods the moment they join, all of them within a second; with --startup each does so only a while after it has joined, as machines do,
because a startup taint is on it until then. With --free nobody names nodes: what is launched then is the price of the scheduler's own choice. See e2e/README.md.
"""

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import real_scheduler  # noqa: E402
import scenario  # noqa: E402
import worlds  # noqa: E402
from landing_causes import CAUSES, VERBOSE, SchedulerLog, Witness, condition, in_room_to_spare, shape  # noqa: E402
from oracle import controlplane  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PODS = real_scheduler.PODS
SERVICES = "/api/v1/namespaces/default/services"
STARTING = {"key": "e2e.spokeshave.dev/starting", "effect": "NoSchedule"}
# What needs volumes or another NodePool, what all machines of this one would refuse, and more pods apart than there are zones.
LEFT_OUT = {"volume", "custom", "huge", "gt", "or-terms", "apart-zone"}
WAVES = 3
BATCHES = 4


def pods_of(seed, wave):
    """The pods of a wave: batches of generated ones."""
    world = worlds.World([], f"landing/{seed}/{wave}")
    # So that names of waves differ.
    world.made = 1000 * wave
    while len(world.traits) < BATCHES:
        before, traits = list(world.objects), list(world.traits)
        world.batch(world.pick(5, 10, 20))
        if world.traits[-1] in LEFT_OUT:
            world.objects, world.traits = before, traits
    return world.of("Pod"), world.traits


class Starter(threading.Thread):
    """Takes the startup taint from each node a while after it has joined."""

    def __init__(self, cluster, seconds):
        super().__init__(daemon=True)
        self.cluster, self.seconds, self.due = cluster, seconds, {}

    def run(self):
        while True:
            try:
                self.look()
            except (OSError, scenario.Wrong):
                # The node has changed meanwhile, or the control plane has ended.
                pass
            time.sleep(0.05)

    def look(self):
        for node in self.cluster.items(scenario.NODES):
            meta, taints = node["metadata"], node["spec"].get("taints", [])
            late = random.Random(len(self.due)).uniform(*self.seconds)
            due = self.due.setdefault(meta["uid"], time.monotonic() + late)
            left = [taint for taint in taints if taint["key"] != STARTING["key"]]
            if due <= time.monotonic() and len(left) < len(taints):
                change = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"taints": left or None}}
                self.cluster.call("PATCH", f"{scenario.NODES}/{meta['name']}", change, "application/merge-patch+json")


def settle(cluster, waited, seconds):
    """Looks until every pod is bound, or nothing has happened for a while, and notes who had to wait."""
    quiet_since, before = time.monotonic(), -1
    while True:
        pods = cluster.call("GET", PODS)["items"]
        unbound = [pod for pod in pods if not pod["spec"].get("nodeName")]
        waited.update(pod["metadata"]["name"] for pod in unbound if condition(pod, "PodScheduled").get("reason") == "Unschedulable")
        if not unbound:
            return pods
        if len(unbound) != before:
            quiet_since, before = time.monotonic(), len(unbound)
        if time.monotonic() - quiet_since > seconds:
            return pods
        time.sleep(0.1)


def prepare(cluster, program, startup):
    scenario.install(cluster, program)
    cluster.apply(scenario.CLASSES, "default", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "2s"}})
    one = lambda key, *values: {"key": key, "operator": "In", "values": list(values)}
    requirements = [one("kubernetes.io/os", "linux"), one(worlds.ARCH, "amd64"), one(worlds.CAPACITY, "spot", "on-demand"), one(worlds.CPU, "4", "8", "16")]
    template = {"nodeClassRef": worlds.CLASS, "requirements": requirements, "expireAfter": "Never", **({"startupTaints": [STARTING]} if startup else {})}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]}
    cluster.apply(scenario.POOLS, "default", {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {"template": {"spec": template}, "disruption": disruption}})
    for app in worlds.APPS:
        # Constraints of a profile select what a Service of the pod selects.
        cluster.apply(SERVICES, app, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app}, "spec": {"selector": {"app": app}, "ports": [{"port": 80}]}})


def start_operator(options, kubeconfig, directory):
    command = [options.spokeshave, "operator", "--kubeconfig", kubeconfig, "--cloud-provider", "kwok", "--simulate-kubelets", "--metrics-port", str(options.metrics), "--health-probe-port", "0"]
    if not options.free:
        command += ["--nominate-pods", "true"]
    if options.profile == "spread":
        config = Path(directory) / "spread.json"
        config.write_text(json.dumps({"podTopologySpread": {"defaultConstraints": real_scheduler.SPREAD}}))
        command += ["--scheduler-config", str(config)]
    log = open(options.log, "wb")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def judge(pods, waited, nodes, witness, log):
    """Of the pods that had to wait and are bound: how many were planned, have landed, and why the others have not."""
    bound = {pod["metadata"]["name"]: pod for pod in pods if pod["spec"].get("nodeName")}
    planned = {name: node for name in waited & bound.keys() if (node := witness.planned(bound[name]))}
    elsewhere = [name for name, node in planned.items() if bound[name]["spec"]["nodeName"] != node]
    attempts = log.attempts()
    causes = {name: witness.cause(bound[name], attempts[name]) for name in elsewhere if name in attempts}
    kinds = lambda where: Counter((shape(bound[name]), where(name)) for name in planned)
    alike = sum((kinds(planned.get) & kinds(lambda name: bound[name]["spec"]["nodeName"])).values())
    spare, guests = in_room_to_spare(list(bound.values()), planned, nodes)
    counts = {"planned": len(planned), "landed": len(planned) - len(elsewhere), "alike": alike, "fine": len(planned) - guests + spare, **Counter(causes.values())}
    return counts, {name: f"{name} is on {bound[name]['spec']['nodeName']}, planned on {planned[name]}: {causes.get(name, 'not in the log')}" for name in elsewhere}


def told(sums):
    """What became of the pods that were planned."""
    share = lambda count: f"{count} ({100 * count / max(sums['planned'], 1):.1f} %)"
    causes = [f"{sums[cause]} {text}" for cause, text in CAUSES.items() if sums[cause]]
    return (
        f"{sums['pods']} pods, {sums['waited']} had to wait, {sums['planned']} of them were planned: {share(sums['landed'])} are where they were planned, "
        f"{share(sums['alike'])} where one just like them was, {share(sums['fine'])} there or in room to spare; {', '.join([*causes, str(sums['left'])])} without a node; "
        f"{sums['nodes']} nodes, ${sums['price']:.2f} an hour"
    )


def live(seed, cluster, genuine, options, sums, witness, log):
    """One round: waves, what became of them, and a clean cluster."""
    classes, waited, traits = set(), set(), []
    for wave in range(WAVES):
        pods, kinds = pods_of(seed, wave)
        traits += kinds
        for pod in pods:
            pod["spec"]["terminationGracePeriodSeconds"] = 0
            genuine.create(PODS, real_scheduler.pod_of(pod, genuine, classes))
        pods = settle(cluster, waited, options.patience)
    nodes = cluster.items(scenario.NODES)
    left = [pod for pod in pods if not pod["spec"].get("nodeName")]
    counts, lines = judge(pods, waited, nodes, witness, log)
    own = Counter({"pods": len(pods), "waited": len(waited), "left": len(left), "nodes": len(nodes), "price": scenario.price(cluster), **counts})
    sums.update(own)
    print(f"round {seed}: {told(own)} ({', '.join(sorted(set(traits)))})", flush=True)
    for line in list(lines.values())[: options.show]:
        print(f"  {line}")
    for pod in left[: options.show]:
        print(f"  {pod['metadata']['name']}: {real_scheduler.why(pod)[:200]}")
    cluster.call("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    scenario.Story.wait("nothing is left", 120, lambda: scenario.shrunk(cluster) or "")
    for thing in genuine.call("GET", real_scheduler.PRIORITIES)["items"]:
        if thing["metadata"]["name"].startswith("priority-"):
            genuine.call("DELETE", f"{real_scheduler.PRIORITIES}/{thing['metadata']['name']}")


def counted(options):
    """What the operator has counted itself: also pods whose node had not joined when they were bound, and those that name no nodes."""
    with urllib.request.urlopen(f"http://127.0.0.1:{options.metrics}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return {place: int(float(count)) for place, count in re.findall(r'^spokeshave_pods_landed_total\{where="(\w+)"\} (\S+)', text, re.M)}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster(scenario.Cluster):
    """All nodes and pods are ours."""

    def nodes(self):
        return self.items(scenario.NODES)

    def pods(self):
        return self.items(PODS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--controlplane", default=os.environ.get("CONTROLPLANE_BINARY"), help="the genuine control plane [env: CONTROLPLANE_BINARY]")
    parser.add_argument("--spokeshave", default=os.environ.get("SPOKESHAVE", str(ROOT / "target/release/spokeshave")))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--free", action="store_true", help="name no nodes: the scheduler chooses among all")
    parser.add_argument("--profile", choices=sorted(real_scheduler.PROFILES), help="how the kube-scheduler scores nodes [default: its own defaults]")
    parser.add_argument("--startup", type=float, nargs=2, metavar=("LEAST", "MOST"), help="seconds from a node's join until it takes pods, such as 8 14 [default: it does at once]")
    parser.add_argument("--patience", type=float, default=40.0, help="seconds without progress before a pod counts as left over")
    parser.add_argument("--least", type=float, default=95.0, help="percent that must land where they were planned")
    parser.add_argument("--show", type=int, default=4, help="pods of a round that are named where they should not be")
    parser.add_argument("--log", default=os.devnull, help="where the operator's log goes")
    options = parser.parse_args()
    options.controlplane = controlplane(options.controlplane)
    options.metrics = free_port()
    sums = Counter()
    with tempfile.TemporaryDirectory() as directory:
        child, kubeconfig = real_scheduler.start(options.controlplane, directory, options.profile, "--controller-manager", VERBOSE)
        cluster, genuine = Cluster(kubeconfig), real_scheduler.Cluster(kubeconfig)
        prepare(cluster, options.spokeshave, options.startup)
        witness, log = Witness(cluster.server), SchedulerLog(Path(directory) / "cluster" / "kube-scheduler.log")
        if options.startup:
            Starter(Cluster(kubeconfig), options.startup).start()
        operator = start_operator(options, kubeconfig, directory)
        try:
            for seed in range(options.first, options.first + options.rounds):
                live(seed, cluster, genuine, options, sums, witness, log)
            count = counted(options)
        finally:
            operator.terminate()
            operator.wait(30)
            child.stdin.close()
            child.wait(60)
    print(f"{options.profile or 'LeastAllocated'}{', free' if options.free else ''}{', startup {:g} to {:g} s'.format(*options.startup) if options.startup else ''}: {told(sums)}")
    if count:
        print(f"the operator has counted {count.get('planned', 0)} pods where it had planned them last, and {count.get('elsewhere', 0)} elsewhere")
    sys.exit(1 if 100 * sums["landed"] < options.least * sums["planned"] and not options.free else 0)


if __name__ == "__main__":
    main()
