#!/usr/bin/env python3
"""Asks the genuine kube-scheduler how often pods land where the operator has planned them.

The operator runs beside a genuine control plane, with machines of its kwok provider and NOMINATE_PODS on. In each round waves of generated pods come; the
operator launches nodes for them, and the kube-scheduler, under the profile that --profile names, binds them. A pod that had to wait has landed when it is on the
node that its condition `spokeshave.dev/NodePlanned` names. Ends with 1 where fewer than --least percent have. With --free
nobody names nodes: what is launched then is the price of the scheduler's own choice. See e2e/README.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import real_scheduler  # noqa: E402
import scenario  # noqa: E402
import worlds  # noqa: E402
from oracle import controlplane  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PODS = real_scheduler.PODS
SERVICES = "/api/v1/namespaces/default/services"
PLANNED = "spokeshave.dev/NodePlanned"
ON_NODE = "planned on node "
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


def condition(pod, kind):
    return next((one for one in (pod.get("status") or {}).get("conditions", []) if one["type"] == kind), {})


def planned_node(pod):
    """The node that our condition names."""
    message = condition(pod, PLANNED).get("message", "")
    return message[len(ON_NODE) :] if condition(pod, PLANNED).get("status") == "True" and message.startswith(ON_NODE) else None


def took_pods_at(cluster):
    """When each node began to take pods, in whole seconds, by its name: not when it joined, which is before it is ready."""
    claims = cluster.items(scenario.CLAIMS)
    return {claim.get("status", {}).get("nodeName"): condition(claim, "Initialized").get("lastTransitionTime", "") for claim in claims}


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


def prepare(cluster, program):
    scenario.install(cluster, program)
    cluster.apply(scenario.CLASSES, "default", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "2s"}})
    one = lambda key, *values: {"key": key, "operator": "In", "values": list(values)}
    requirements = [one("kubernetes.io/os", "linux"), one(worlds.ARCH, "amd64"), one(worlds.CAPACITY, "spot", "on-demand"), one(worlds.CPU, "4", "8", "16")]
    template = {"nodeClassRef": worlds.CLASS, "requirements": requirements, "expireAfter": "Never"}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s", "budgets": [{"nodes": "100%"}]}
    cluster.apply(scenario.POOLS, "default", {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": {"template": {"spec": template}, "disruption": disruption}})
    for app in worlds.APPS:
        # Constraints of a profile select what a Service of the pod selects.
        cluster.apply(SERVICES, app, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": app}, "spec": {"selector": {"app": app}, "ports": [{"port": 80}]}})


def start_operator(options, kubeconfig, directory):
    command = [options.spokeshave, "operator", "--kubeconfig", kubeconfig, "--cloud-provider", "kwok", "--simulate-kubelets", "--metrics-port", "0", "--health-probe-port", "0"]
    if not options.free:
        command += ["--nominate-pods", "true"]
    if options.profile == "spread":
        config = Path(directory) / "spread.json"
        config.write_text(json.dumps({"podTopologySpread": {"defaultConstraints": real_scheduler.SPREAD}}))
        command += ["--scheduler-config", str(config)]
    log = open(options.log, "wb")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def live(seed, cluster, genuine, options, sums):
    """One round: waves, what became of them, and a clean cluster."""
    classes, waited, traits = set(), set(), []
    for wave in range(WAVES):
        pods, kinds = pods_of(seed, wave)
        traits += kinds
        for pod in pods:
            pod["spec"]["terminationGracePeriodSeconds"] = 0
            genuine.create(PODS, real_scheduler.pod_of(pod, genuine, classes))
        pods = settle(cluster, waited, options.patience)
    nodes, price = len(cluster.items(scenario.NODES)), scenario.price(cluster)
    bound = {pod["metadata"]["name"]: pod for pod in pods if pod["spec"].get("nodeName")}
    left = [pod for pod in pods if not pod["spec"].get("nodeName")]
    landed = [name for name in waited if name in bound and planned_node(bound[name]) == bound[name]["spec"]["nodeName"]]
    unnamed = [name for name in waited if name in bound and planned_node(bound[name]) is None]
    began = took_pods_at(cluster)
    elsewhere = [bound[name] for name in waited if name in bound and name not in landed and name not in unnamed]
    # Of one second nobody knows what came first.
    earlier = [pod for pod in elsewhere if condition(pod, "PodScheduled").get("lastTransitionTime", "~") <= began.get(planned_node(pod), "")]
    for key, value in (("pods", len(pods)), ("waited", len(waited)), ("landed", len(landed)), ("unnamed", len(unnamed)), ("earlier", len(earlier)), ("left", len(left)), ("nodes", nodes), ("price", price)):
        sums[key] = sums.get(key, 0) + value
    print(
        f"round {seed}: {len(pods)} pods, {len(waited)} had to wait, {len(landed)} of them are where they were planned, {len(earlier)} went elsewhere before their node took pods, {len(unnamed)} name no node; {len(left)} without a node; "
        f"{nodes} nodes, ${price:.2f} an hour ({', '.join(sorted(set(traits)))})",
        flush=True,
    )
    for name in [name for name in waited if name in bound and name not in landed and name not in unnamed][: options.show]:
        print(f"  {name} is on {bound[name]['spec']['nodeName']}, planned on {planned_node(bound[name])}")
    for pod in left[: options.show]:
        print(f"  {pod['metadata']['name']}: {real_scheduler.why(pod)[:200]}")
    cluster.call("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    scenario.Story.wait("nothing is left", 120, lambda: scenario.shrunk(cluster) or "")
    for thing in genuine.call("GET", real_scheduler.PRIORITIES)["items"]:
        if thing["metadata"]["name"].startswith("priority-"):
            genuine.call("DELETE", f"{real_scheduler.PRIORITIES}/{thing['metadata']['name']}")


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
    parser.add_argument("--patience", type=float, default=40.0, help="seconds without progress before a pod counts as left over")
    parser.add_argument("--least", type=float, default=95.0, help="percent that must land where they were planned")
    parser.add_argument("--show", type=int, default=4, help="pods of a round that are named where they should not be")
    parser.add_argument("--log", default=os.devnull, help="where the operator's log goes")
    options = parser.parse_args()
    options.controlplane = controlplane(options.controlplane)
    sums = {}
    with tempfile.TemporaryDirectory() as directory:
        child, kubeconfig = real_scheduler.start(options.controlplane, directory, options.profile, "--controller-manager")
        cluster, genuine = Cluster(kubeconfig), real_scheduler.Cluster(kubeconfig)
        prepare(cluster, options.spokeshave)
        operator = start_operator(options, kubeconfig, directory)
        try:
            for seed in range(options.first, options.first + options.rounds):
                live(seed, cluster, genuine, options, sums)
        finally:
            operator.terminate()
            operator.wait(30)
            child.stdin.close()
            child.wait(60)
    share = 100 * sums["landed"] / max(sums["waited"], 1)
    print(
        f"{options.profile or 'LeastAllocated'}{', free' if options.free else ''}: of {sums['pods']} pods {sums['waited']} had to wait, {sums['landed']} of them ({share:.1f} %) "
        f"are where they were planned, {sums['earlier']} went elsewhere before their node took pods, {sums['unnamed']} named no node; {sums['left']} without a node; {sums['nodes']} nodes, ${sums['price']:.2f} an hour"
    )
    sys.exit(1 if share < options.least and not options.free else 0)


if __name__ == "__main__":
    main()
