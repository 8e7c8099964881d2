#!/usr/bin/env python3
"""A cluster grows, consolidates and shrinks, and the operator is killed in between.

    scenario.py --kubeconfig FILE --spokeshave PROGRAM [--inside] [--kubelets] [--kills SEED] [--log FILE]

Runs `spokeshave crds` into the cluster and `spokeshave operator` beside it, with --kubelets also for the kubelets; with --inside the
cluster brings its own controllers (`spokeshave up --bare`) and nothing is started or killed. With --kills the operator is killed at random
moments all the way through, a few seconds apart, beside the three moments that the story always has. Prints what it checked; the first
thing that is not so ends it. Needs nothing but Python 3.9 or later.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apiserver import PATIENCE, Server  # noqa: E402

REPLICAS = 30
FEW = 2
AVAILABLE = 27
POOL = "e2e"
POOLS, CLAIMS = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.sh/v1/nodeclaims"
DISRUPTIONS = "/apis/spokeshave.dev/v1alpha1/disruptions"
CLASSES, INSTANCES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", "/apis/kwok.spokeshave.dev/v1alpha1/kwokinstances"
DEPLOYMENTS, BUDGETS = "/apis/apps/v1/namespaces/default/deployments", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
OUR_TAINTS = ("karpenter.sh/unregistered", "karpenter.sh/disrupted")
SICK_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Wrong(Exception):
    """What should be so and is not."""


class Cluster:
    """Requests that must succeed."""

    def __init__(self, kubeconfig):
        self.server = Server(kubeconfig, "e2e")

    def call(self, method, path, body=None, content_type="application/json", accepted=(200, 201, 202)):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        status, _, raw = self.server.send(method, path, data, content_type if data else None)
        if status not in accepted:
            raise Wrong(f"{method} {path}: {status} {raw.decode('utf-8', 'replace')[:500]}")
        return json.loads(raw) if raw else {}

    def items(self, path):
        return self.call("GET", path)["items"]

    def apply(self, path, name, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("PATCH", f"{path}/{name}?fieldManager=e2e&force=true", data, "application/apply-patch+yaml")

    def scale(self, replicas):
        self.call("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": replicas}}, "application/merge-patch+json")

    def nodes(self):
        return [node for node in self.items(NODES) if (node["metadata"].get("labels") or {}).get("karpenter.sh/nodepool") == POOL]

    def pods(self):
        return [pod for pod in self.items(PODS) if (pod["metadata"].get("labels") or {}).get("app") == "web"]


def condition(thing, kind):
    for entry in (thing.get("status") or {}).get("conditions") or []:
        if entry["type"] == kind:
            return entry["status"]
    return None


def running(pod):
    return (pod.get("status") or {}).get("phase") == "Running" and condition(pod, "Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def taints(node):
    return [taint["key"] for taint in (node.get("spec") or {}).get("taints") or []]


class Story:
    """Prints each step with the time that it took."""

    def __init__(self):
        self.start = self.last = time.monotonic()

    def say(self, text):
        now = time.monotonic()
        print(f"ok  {now - self.start:6.1f} s  (+{now - self.last:5.1f})  {text}", flush=True)
        self.last = now

    @staticmethod
    def wait(what, seconds, look):
        """Looks until `look` gives nothing to complain about. PATIENCE multiplies how long, for machines that are busy with something else."""
        seconds *= PATIENCE
        deadline = time.monotonic() + seconds
        while True:
            complaint = look()
            if not complaint:
                return
            if time.monotonic() > deadline:
                raise Wrong(f"not within {seconds:.0f} s: {what}; {complaint}")
            time.sleep(0.2)


class Operator:
    """The operator's process."""

    def __init__(self, arguments):
        self.program, self.kubeconfig, self.log, self.process = arguments.spokeshave, arguments.kubeconfig, arguments.log, None
        self.flags = ["--simulate-kubelets"] if arguments.kubelets else []
        if arguments.kills is not None:
            # A new operator would wait for the lease of the dead one, and be killed itself before it has begun.
            self.flags += ["--disable-leader-election", "true"]
        self.lock = threading.RLock()

    def start(self):
        with self.lock, open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.program, "operator", "--kubeconfig", self.kubeconfig, "--cloud-provider", "kwok", *self.flags,
                 "--metrics-port", "0", "--health-probe-port", "0"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        with self.lock:
            self.alive()
            self.process.kill()
            self.process.wait()

    def alive(self):
        with self.lock:
            if self.process.poll() is not None:
                raise Wrong(f"the operator ended by itself with status {self.process.returncode}; its log is {self.log}")

    def stop(self):
        with self.lock:
            self.alive()
            self.process.send_signal(signal.SIGTERM)
            try:
                status = self.process.wait(30)
            except subprocess.TimeoutExpired:
                raise Wrong("the operator does not end 30 s after SIGTERM") from None
        if status != 0:
            raise Wrong(f"the operator ended with status {status} after SIGTERM")


class Killer(threading.Thread):
    """Kills the operator at random moments, and starts it again a moment later."""

    def __init__(self, operator, seed):
        super().__init__(daemon=True)
        self.operator, self.random, self.ended, self.kills, self.problem = operator, random.Random(seed), threading.Event(), 0, None

    def pause(self):
        """Three times seconds at most, then long enough for a command to be looked at twice, which takes 15 s."""
        return self.random.uniform(20, 30) if self.kills % 4 == 3 else self.random.uniform(0.3, 4)

    def run(self):
        while not self.ended.wait(self.pause()):
            with self.operator.lock:
                if self.ended.is_set():
                    return
                try:
                    self.operator.kill()
                except Wrong as wrong:
                    self.problem = wrong
                    return
                self.kills += 1
                time.sleep(self.random.uniform(0, 0.5))
                self.operator.start()

    def end(self):
        self.ended.set()
        self.join()
        if self.problem:
            raise self.problem


def install(cluster, program):
    text = subprocess.run([program, "crds"], check=True, capture_output=True, text=True).stdout
    path, names = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", []
    for document in re.split(r"(?m)^---\s*$", text):
        found = re.search(r"(?m)^metadata:\n(?:  .*\n)*?  name: ['\"]?([^\s'\"]+)", document)
        if found:
            names.append(found.group(1))
            cluster.apply(path, names[-1], document.encode())
    for name in names:
        Story.wait(f"definition {name} is established", 20,
                   lambda: condition(cluster.call("GET", f"{path}/{name}"), "Established") != "True" and "it is not")
    return names


def requirements(*sizes):
    """Of the NodePool: on-demand Linux machines with so many cores."""
    one = lambda key, *values: {"key": key, "operator": "In", "values": list(values)}
    return [one("kubernetes.io/os", "linux"), one("karpenter.sh/capacity-type", "on-demand"), one("karpenter.kwok.sh/instance-cpu", *sizes)]


def prepare(cluster):
    cluster.apply(CLASSES, "e2e", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "e2e"},
                                   "spec": {"nodeRegistrationDelay": "2s"}})
    cluster.apply(POOLS, POOL, {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "e2e"},
                "requirements": requirements("4", "8"),
            }},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
        }})
    cluster.apply(DEPLOYMENTS, "web", {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 1, "nodeSelector": {"karpenter.sh/nodepool": POOL},
                     "containers": [{"name": "c", "image": "registry.example/pause", "resources": {"requests": {"cpu": "900m", "memory": "512Mi"}}}]}}}})
    cluster.apply(BUDGETS, "web", {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                                   "spec": {"minAvailable": AVAILABLE, "selector": {"matchLabels": {"app": "web"}}}})


def grown(cluster):
    """What is missing until 30 pods run on nodes that are whole; empty when nothing is."""
    pods, nodes, claims = cluster.pods(), cluster.nodes(), cluster.items(CLAIMS)
    ready = [pod for pod in pods if running(pod)]
    if len(ready) != REPLICAS or len(pods) != REPLICAS:
        phases = sorted((pod.get("status") or {}).get("phase", "?") for pod in pods)
        return f"{len(ready)} of {len(pods)} pods run: {', '.join(sorted(set(phases)))}; {len(nodes)} nodes, {len(claims)} claims"
    unfinished = [claim["metadata"]["name"] for claim in claims if condition(claim, "Initialized") != "True"]
    if unfinished:
        return f"NodeClaims that are not initialised: {unfinished}"
    sick = [node["metadata"]["name"] for node in nodes if condition(node, "Ready") != "True"]
    if sick:
        return f"Nodes that are not ready: {sick}"
    tainted = {node["metadata"]["name"]: taints(node) for node in nodes if set(taints(node)) & set(OUR_TAINTS + SICK_TAINTS)}
    if tainted:
        return f"stray taints: {tainted}"
    instances = cluster.items(INSTANCES)
    if not len(nodes) == len(claims) == len(instances):
        return f"{len(nodes)} nodes, {len(claims)} NodeClaims and {len(instances)} instances"
    on = {node["spec"]["providerID"] for node in nodes}
    if on != {claim["status"]["providerID"] for claim in claims}:
        return "Nodes and NodeClaims name different provider IDs"
    return ""


def shrunk(cluster):
    left = {"pods": len(cluster.pods()), "nodes": len(cluster.nodes()), "NodeClaims": len(cluster.items(CLAIMS)), "instances": len(cluster.items(INSTANCES))}
    left = {kind: count for kind, count in left.items() if count}
    return f"left: {left}" if left else ""


def drain_one(cluster, story):
    """Deletes the NodeClaim of the fullest node and watches the budget while it drains."""
    by_node = {}
    for pod in cluster.pods():
        by_node[pod["spec"]["nodeName"]] = by_node.get(pod["spec"]["nodeName"], 0) + 1
    node = max(sorted(by_node), key=lambda name: by_node[name])
    victim = next(claim["metadata"]["name"] for claim in cluster.items(CLAIMS) if claim["status"].get("nodeName") == node)
    cluster.call("DELETE", f"{CLAIMS}/{victim}")
    lowest = REPLICAS

    def drained():
        nonlocal lowest
        lowest = min(lowest, sum(running(pod) for pod in cluster.pods()))
        if lowest < AVAILABLE:
            raise Wrong(f"only {lowest} pods were available, and the PodDisruptionBudget asks for {AVAILABLE}")
        if victim in [claim["metadata"]["name"] for claim in cluster.items(CLAIMS)]:
            return f"NodeClaim {victim} still exists"
        return grown(cluster)

    story.wait("a node is drained and replaced", 120, drained)
    if node in [node["metadata"]["name"] for node in cluster.nodes()]:
        raise Wrong(f"NodeClaim {victim} is gone and its Node {node} is not")
    story.say(f"{node} with {by_node[node]} pods drained through the Eviction API and replaced; never fewer than {lowest} of {REPLICAS} available (budget {AVAILABLE})")


def is_finished(disruption):
    return (disruption.get("status") or {}).get("phase") in ("Succeeded", "RolledBack")


def ledger_line(disruption):
    spec, status = disruption["spec"], disruption.get("status") or {}
    return (f"{disruption['metadata']['name']}: {spec['reason']} {spec['decision']} {spec['nodeSummary']} -> {spec['replacementSummary']},"
            f" saves ${spec['savings']}/h, {status.get('phase', 'Starting')}")


def price(cluster):
    return sum(float(instance["spec"]["price"]) for instance in cluster.items(INSTANCES))


def consolidate(cluster, story, operator, killer):
    """Scales down and lets under-used nodes go; kills the operator in mid-command."""
    before, cost = len(cluster.nodes()), price(cluster)
    earlier = {disruption["metadata"]["name"] for disruption in cluster.items(DISRUPTIONS)}
    # From now on smaller machines may be bought: wherever the few pods stay, half of a node is more than they need.
    spec = {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized"}, "template": {"spec": {"requirements": requirements("2", "4", "8")}}}
    cluster.call("PATCH", f"{POOLS}/{POOL}", {"spec": spec}, "application/merge-patch+json")
    cluster.scale(FEW)
    fresh = lambda: [disruption for disruption in cluster.items(DISRUPTIONS) if disruption["metadata"]["name"] not in earlier]

    def under_way():
        open_ones = [one for one in fresh() if one["spec"]["reason"] == "Underutilized" and not is_finished(one)]
        return "" if open_ones else f"no command is under way; the ledger has {len(fresh())}"

    if operator and not killer:
        story.wait("an under-used node is in a command", 120, under_way)
        operator.kill()
        lines = [ledger_line(one) for one in fresh() if not is_finished(one)]
        story.say(f"kill -9 of the operator in mid-command: {'; '.join(lines) or 'it had just ended'}")
        operator.start()

    def settled():
        pods, nodes, claims = cluster.pods(), cluster.nodes(), cluster.items(CLAIMS)
        ready = sum(running(pod) for pod in pods)
        if ready != FEW or len(pods) != FEW:
            return f"{ready} of {len(pods)} pods run"
        unfinished = [ledger_line(one) for one in fresh() if not is_finished(one)]
        if unfinished:
            return f"under way: {unfinished}"
        tainted = {node["metadata"]["name"]: taints(node) for node in nodes if set(taints(node)) & set(OUR_TAINTS)}
        if tainted:
            return f"stray taints: {tainted}"
        if any(condition(claim, "DisruptionReason") for claim in claims):
            return "stray condition DisruptionReason"
        if not len(nodes) == len(claims) == len(cluster.items(INSTANCES)):
            return f"{len(nodes)} nodes, {len(claims)} NodeClaims and {len(cluster.items(INSTANCES))} instances"
        if len(nodes) >= before or price(cluster) >= cost:
            return f"still {len(nodes)} nodes for ${price(cluster):.3f}/h"
        return ""

    story.wait("under-used nodes are gone", 400 if killer else 240, settled)
    if killer:
        killer.end()
        story.say(f"kill -9 of the operator at {killer.kills} random moments until here")
        story.wait("it is at rest again", 120, settled)
    count = len(fresh())
    time.sleep(30)
    again = settled()
    if again or len(fresh()) != count:
        raise Wrong(f"it does not rest: {again}; the ledger grew from {count} to {len(fresh())}")
    story.say(f"{before} nodes for ${cost:.3f}/h became {len(cluster.nodes())} for ${price(cluster):.3f}/h, and nothing more happens in 30 s; the ledger:")
    for one in fresh():
        print(f"      {ledger_line(one)}", flush=True)


def tell(arguments):
    cluster, story = Cluster(arguments.kubeconfig), Story()
    operator, killer = None if arguments.inside else Operator(arguments), None
    try:
        if operator:
            names = install(cluster, arguments.spokeshave)
            story.say(f"{len(names)} definitions of `spokeshave crds` are established")
            operator.start()
            if arguments.kills is not None:
                killer = Killer(operator, arguments.kills)
                killer.start()
        prepare(cluster)
        story.wait("the NodePool is ready", 60, lambda: condition(cluster.call("GET", f"{POOLS}/{POOL}"), "Ready") != "True" and "it is not")
        story.say("KWOKNodeClass, NodePool, Deployment and PodDisruptionBudget; the NodePool is ready")

        cluster.scale(REPLICAS)
        if operator and not killer:
            story.wait("a NodeClaim appears", 60, lambda: not cluster.items(CLAIMS) and "there is none")
            operator.kill()
            count = len(cluster.items(CLAIMS))
            story.say(f"kill -9 of the operator while it scales up ({count} NodeClaims, {len(cluster.nodes())} nodes so far)")
            operator.start()
        story.wait(f"{REPLICAS} pods run", 240, lambda: grown(cluster))
        nodes = cluster.nodes()
        kinds = sorted(node["metadata"]["labels"]["node.kubernetes.io/instance-type"] for node in nodes)
        story.say(f"{REPLICAS} pods run on {len(nodes)} initialised nodes without stray taints, one instance each: {', '.join(kinds)}")

        drain_one(cluster, story)

        cluster.call("DELETE", f"{BUDGETS}/web")
        consolidate(cluster, story, operator, killer)
        if killer:
            killer = Killer(operator, arguments.kills + 1)
            killer.start()
        cluster.scale(0)
        if operator and not killer:
            story.wait("a NodeClaim is being deleted", 120,
                       lambda: not any("deletionTimestamp" in claim["metadata"] for claim in cluster.items(CLAIMS)) and cluster.items(CLAIMS) and "none is")
            operator.kill()
            story.say(f"kill -9 of the operator while it scales down ({len(cluster.items(CLAIMS))} NodeClaims left)")
            operator.start()
        story.wait("everything is gone", 240, lambda: shrunk(cluster))
        if killer:
            killer.end()
            story.say(f"kill -9 of the operator at {killer.kills} random moments while it scales down")
            story.wait("everything is still gone", 60, lambda: shrunk(cluster))
        story.say("no pod, Node, NodeClaim or KWOKInstance is left")
        if operator:
            operator.alive()
            operator.stop()
            story.say("SIGTERM ends the operator with status 0")
    finally:
        if killer:
            killer.ended.set()
            killer.join()
        if operator and operator.process and operator.process.poll() is None:
            operator.process.kill()
    print(f"passed in {time.monotonic() - story.start:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--spokeshave", required=True, help="the program")
    parser.add_argument("--inside", action="store_true", help="the cluster brings its own controllers")
    parser.add_argument("--kubelets", action="store_true", help="the operator simulates the kubelets, too")
    parser.add_argument("--kills", type=int, metavar="SEED", help="kill the operator at random moments")
    parser.add_argument("--log", default="operator.log", help="where the operator's output goes")
    arguments = parser.parse_args()
    try:
        tell(arguments)
    except Wrong as wrong:
        print(f"FAIL {wrong}")
        if not arguments.inside and os.path.exists(arguments.log):
            print(f"--- the end of the operator's log\n{subprocess.run(['tail', '-n', '40', arguments.log], capture_output=True, text=True).stdout}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
