#!/usr/bin/env python3
"""Nodes that end, on a genuine kube-apiserver: what holds them up is named, deadlines are kept, nothing leaks, and a second operator takes over.

    lifecycle.py --kubeconfig FILE --spokeshave PROGRAM [--logs DIRECTORY] [--transcripts FILE]

Two operators compete for the Lease. Prints what it checked; the first thing that is not so ends it. With --transcripts, what `spokeshave
explain node` said on the way is appended to a file. Needs nothing but Python 3.9 or later.
"""

import argparse
import datetime
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from scenario import (BUDGETS, CLAIMS, CLASSES, DEPLOYMENTS, INSTANCES, NODES, PODS, POOLS, Cluster, Operator, Story, Wrong,  # noqa: E402
                      condition, install, running, taints)

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/karpenter-leader-election"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
EVENTS = "/api/v1/events"
FINALIZER, DEADLINE = "karpenter.sh/termination", "karpenter.sh/nodeclaim-termination-timestamp"
MERGE = "application/merge-patch+json"


def pool(name, **template):
    requirement = lambda key, *values: {"key": key, "operator": "In", "values": list(values)}
    return {
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "e2e"},
                "requirements": [
                    requirement("kubernetes.io/os", "linux"), requirement("karpenter.sh/capacity-type", "on-demand"),
                    {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["5"]}],
                "expireAfter": "Never", **template}},
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}}}


def deployment(name, replicas, pool_name, annotations=None):
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
            "spec": {"terminationGracePeriodSeconds": 2, "nodeSelector": {"karpenter.sh/nodepool": pool_name},
                     "containers": [{"name": "c", "image": "registry.example/pause", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}]}}}}


class Ends:
    """The story of some ends."""

    def __init__(self, arguments):
        self.arguments, self.cluster, self.story = arguments, Cluster(arguments.kubeconfig), Story()

    def pods(self, app):
        return [pod for pod in self.cluster.items(PODS) if (pod["metadata"].get("labels") or {}).get("app") == app]

    def run(self, app, replicas):
        def look():
            # The pods of a Node that vanished stay in the list until Kubernetes collects them.
            nodes = {node["metadata"]["name"] for node in self.cluster.items(NODES)}
            pods = self.pods(app)
            count = sum(running(pod) and pod["spec"].get("nodeName") in nodes for pod in pods)
            return "" if count == len(pods) == replicas else f"{count} of {len(pods)} run"
        self.story.wait(f"{replicas} pods of {app} run", 180, look)

    def place(self, app):
        """Node and NodeClaim of an app's first pod."""
        node = next(pod["spec"]["nodeName"] for pod in self.pods(app) if running(pod))
        claims = {(claim.get("status") or {}).get("nodeName"): claim["metadata"]["name"] for claim in self.cluster.items(CLAIMS)}
        if node not in claims:
            raise Wrong(f"no NodeClaim says that it is {node}: {claims}")
        return node, claims[node]

    def find(self, path, name):
        return next((one for one in self.cluster.items(path) if one["metadata"]["name"] == name), None)

    def blocked(self, claim):
        one = self.find(CLAIMS, claim) or {}
        for entry in (one.get("status") or {}).get("conditions") or []:
            if entry["type"] == "spokeshave.dev/TerminationBlocked":
                return entry
        return {}

    def until_blocked(self, claim, reason, text):
        self.story.wait(f"{claim} says {reason}", 60, lambda: self.blocked(claim).get("reason") != reason and f"it says {self.blocked(claim)}")
        message = self.blocked(claim)["message"]
        if text not in message:
            raise Wrong(f"the condition says {message!r} and not {text!r}")
        events = [event for event in self.cluster.items(EVENTS) if event.get("reason") == "TerminationBlocked"]
        if not any(text in (event.get("message") or "") for event in events):
            raise Wrong(f"no event says {text!r}")
        return message

    def until_gone(self, node, claim, seconds=60):
        def look():
            left = [f"{kind} {name}" for kind, path, name in (("Node", NODES, node), ("NodeClaim", CLAIMS, claim)) if self.find(path, name)]
            left += [f"KWOKInstance {one['metadata']['name']}" for one in self.cluster.items(INSTANCES) if one["spec"]["nodeClaimName"] == claim]
            return f"left: {left}" if left else ""
        self.story.wait(f"{node} is gone", seconds, look)

    def explain(self, node, title):
        command = [self.arguments.spokeshave, "explain", "node", node, "--kubeconfig", self.arguments.kubeconfig]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Wrong(f"explain node {node} ended with {done.returncode}: {done.stderr}")
        if self.arguments.transcripts:
            with open(self.arguments.transcripts, "a") as file:
                file.write(f"### {title}\n$ spokeshave explain node {node}\n{done.stdout}\n")
        return " ".join(done.stdout.split())

    def leader(self):
        lease = self.cluster.call("GET", LEASE, accepted=(200, 404))
        return (lease.get("spec") or {}).get("holderIdentity") or ""

    def budget(self, name, spec):
        self.cluster.apply(BUDGETS, name, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
                                           "spec": {**spec, "selector": {"matchLabels": {"app": name}}}})

    # What happens.

    def drain_with_a_budget(self):
        self.cluster.apply(DEPLOYMENTS, "web", deployment("web", 3, "plain"))
        self.budget("web", {"minAvailable": 3})
        self.run("web", 3)
        node, claim = self.place("web")
        self.cluster.call("DELETE", f"{NODES}/{node}")
        message = self.until_blocked(claim, "PodDisruptionBudget", "0 of 3 may be down: minAvailable 3, 3 healthy")
        held = self.find(NODES, node)
        if FINALIZER not in held["metadata"]["finalizers"] or "karpenter.sh/disrupted" not in taints(held):
            raise Wrong(f"Node {node} has finalizers {held['metadata']['finalizers']} and taints {taints(held)}")
        told = self.explain(node, "A drain that a PodDisruptionBudget holds up")
        if "0 of 3 may be down" not in told:
            raise Wrong(f"explain says:\n{told}")
        self.story.say(f"`kubectl delete node`: both are asked to go, tainted, and held: {message}")
        return node, claim

    def let_go(self, node, claim):
        self.budget("web", {"minAvailable": 2})
        lowest = 3

        def look():
            nonlocal lowest
            lowest = min(lowest, sum(running(pod) for pod in self.pods("web")))
            return f"{node} is there" if self.find(NODES, node) else ""
        self.story.wait(f"{node} is gone", 90, look)
        self.until_gone(node, claim)
        self.run("web", 3)
        if lowest < 2:
            raise Wrong(f"only {lowest} of 3 pods were available, and the budget asks for 2")
        self.story.say(f"with minAvailable 2 it drains through the Eviction API; never fewer than {lowest} of 3 available; Node, NodeClaim and instance are gone")

    def forced_deadline(self):
        self.cluster.apply(DEPLOYMENTS, "held", deployment("held", 1, "hurried", {"karpenter.sh/do-not-disrupt": "true"}))
        self.run("held", 1)
        node, claim = self.place("held")
        self.cluster.call("DELETE", f"{CLAIMS}/{claim}")
        self.story.wait("the deadline is written", 10, lambda: DEADLINE not in ((self.find(CLAIMS, claim) or {}).get("metadata", {}).get("annotations") or {}) and "it is not")
        found = self.find(CLAIMS, claim)["metadata"]
        instant = lambda text: datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        period = instant(found["annotations"][DEADLINE]) - instant(found["deletionTimestamp"])
        if period != datetime.timedelta(seconds=45):
            raise Wrong(f"the deadline lies {period} after the deletion and not 45 s")
        self.until_blocked(claim, "DoNotDisrupt", "held-")
        told = self.explain(node, "do-not-disrupt, with a deadline")
        if "do-not-disrupt" not in told:
            raise Wrong(f"explain says:\n{told}")
        start = instant(found["deletionTimestamp"])
        self.until_gone(node, claim, 90)
        took = (datetime.datetime.now(datetime.timezone.utc) - start).total_seconds()
        events = [event for event in self.cluster.items(EVENTS) if event.get("reason") == "Disrupted" and "bypasses the PDB" in (event.get("message") or "")]
        if took < 40 or not events:
            raise Wrong(f"gone after {took:.0f} s, {len(events)} events")
        self.run("held", 1)
        self.story.say(f"terminationGracePeriod 45s: do-not-disrupt is honoured until the deadline less the pod's grace, then overridden; gone after {took:.0f} s")

    def foreign_finalizer(self):
        node, claim = self.place("held")
        finalizers = self.find(NODES, node)["metadata"]["finalizers"]
        self.cluster.call("PATCH", f"{NODES}/{node}", {"metadata": {"finalizers": finalizers + ["example.com/audit"]}}, MERGE)
        pod = self.pods("held")[0]["metadata"]["name"]
        self.cluster.call("PATCH", f"{PODS}/{pod}", {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": None}}}, MERGE)
        self.cluster.call("DELETE", f"{CLAIMS}/{claim}")
        self.until_blocked(claim, "NodeFinalizers", "example.com/audit")
        left = self.find(NODES, node)["metadata"]["finalizers"]
        instances = [one for one in self.cluster.items(INSTANCES) if one["spec"]["nodeClaimName"] == claim]
        if left != ["example.com/audit"] or instances:
            raise Wrong(f"finalizers {left}, instances {instances}")
        self.explain(node, "A Node that another's finalizer keeps")
        self.cluster.call("PATCH", f"{NODES}/{node}", {"metadata": {"finalizers": None}}, MERGE)
        self.until_gone(node, claim)
        self.story.say("our finalizer goes once the instance is confirmed gone; another's is named, and kept until its owner removes it")

    def stuck_volume(self):
        self.run("web", 3)
        node, claim = self.place("web")
        self.cluster.call("POST", ATTACHMENTS, {
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "held"},
            "spec": {"attacher": "disk.csi.example.com", "nodeName": node, "source": {"persistentVolumeName": "pv-held"}}})
        self.cluster.call("DELETE", f"{CLAIMS}/{claim}")
        self.until_blocked(claim, "VolumeAttachment", "held")
        self.explain(node, "A volume that does not detach")
        self.cluster.call("DELETE", f"{ATTACHMENTS}/held")
        self.until_gone(node, claim)
        self.run("web", 3)
        self.story.say("a VolumeAttachment is waited for and named; the instance ends once it is gone")

    def garbage(self, operators):
        node, claim = self.place("web")
        instance = next(one["metadata"]["name"] for one in self.cluster.items(INSTANCES) if one["spec"]["nodeClaimName"] == claim)
        self.cluster.call("DELETE", f"{INSTANCES}/{instance}")
        self.until_gone(node, claim, 240)
        self.run("web", 3)
        self.story.say("an instance that vanished: its NodeClaim and Node are collected, its pods run elsewhere")
        node, claim = self.place("web")
        time.sleep(30)  # A younger instance may still be waiting for its NodeClaim (D-252).
        # While nobody looks, so that the operator cannot put the finalizer back before the NodeClaim is gone; and without its Node, which would
        # be drained and end its instance: what is left is a machine that nobody asked for.
        for operator in operators:
            operator.process.send_signal(signal.SIGSTOP)
        try:
            self.cluster.call("PATCH", f"{CLAIMS}/{claim}", {"metadata": {"finalizers": None}}, MERGE)
            self.cluster.call("DELETE", f"{CLAIMS}/{claim}", {"propagationPolicy": "Orphan"}, accepted=(200, 202, 404))
            self.story.wait(f"{claim} is gone", 8, lambda: self.find(CLAIMS, claim) and "it is there")
        finally:
            for operator in operators:
                operator.process.send_signal(signal.SIGCONT)
        self.until_gone(node, claim, 240)
        self.story.wait("the leaked instance is told", 60, lambda: not self.leaks(claim) and "no event LeakedInstanceTerminated")
        told = self.leaks(claim)
        self.run("web", 3)
        self.story.say(f"a NodeClaim whose finalizer was taken away: its instance and Node are collected ({len(told)} event LeakedInstanceTerminated)")

    def leaks(self, claim):
        """Events about the leaked instance of a NodeClaim."""
        return [event for event in self.cluster.items(EVENTS)
                if event.get("reason") == "LeakedInstanceTerminated" and claim in (event.get("message") or "")]

    def hand_over(self, operators):
        self.budget("web", {"minAvailable": 3})
        node, claim = self.place("web")
        self.cluster.call("DELETE", f"{CLAIMS}/{claim}")
        self.until_blocked(claim, "PodDisruptionBudget", "0 of 3 may be down")
        before = self.leader()
        if not before:
            raise Wrong("no operator leads")
        leading = next(one for one in operators if before in open(one.log).read())
        leading.kill()
        start = time.monotonic()
        self.story.wait("the other operator leads", 40, lambda: self.leader() in ("", before) and f"{self.leader() or 'nobody'} does")
        took = time.monotonic() - start
        self.budget("web", {"minAvailable": 1})
        self.until_gone(node, claim, 90)
        self.run("web", 3)
        self.story.say(f"kill -9 of the leader in mid-drain: the standby leads after {took:.0f} s and ends what was begun")
        leading.start()
        time.sleep(3)
        before = self.leader()
        if not before:
            raise Wrong("no operator leads")
        other = next(one for one in operators if one is not leading)
        other.stop()
        start = time.monotonic()
        self.story.wait("the Lease is handed over", 20, lambda: self.leader() in ("", before) and f"{self.leader()!r} has it")
        self.story.say(f"SIGTERM of the leader: the Lease is handed over after {time.monotonic() - start:.1f} s")

    def tell(self):
        operators = [Operator(argparse.Namespace(
            spokeshave=self.arguments.spokeshave, kubeconfig=self.arguments.kubeconfig, kubelets=True, kills=None,
            log=os.path.join(self.arguments.logs, f"operator-{name}.log"))) for name in "ab"]
        try:
            names = install(self.cluster, self.arguments.spokeshave)
            for operator in operators:
                operator.start()
            self.story.wait("one of two operators leads", 40, lambda: not self.leader() and "none does")
            self.story.say(f"{len(names)} definitions; two operators, {self.leader()} leads")
            self.cluster.apply(CLASSES, "e2e", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "e2e"},
                                                "spec": {"nodeRegistrationDelay": "1s"}})
            for one in (pool("plain"), pool("hurried", terminationGracePeriod="45s")):
                self.cluster.apply(POOLS, one["metadata"]["name"], one)
            self.let_go(*self.drain_with_a_budget())
            self.forced_deadline()
            self.foreign_finalizer()
            self.stuck_volume()
            self.garbage(operators)
            self.hand_over(operators)
            for name in ("plain", "hurried"):
                self.cluster.call("DELETE", f"{POOLS}/{name}")
            for app in ("web", "held"):
                self.cluster.call("DELETE", f"{DEPLOYMENTS}/{app}")

            def look():
                left = {kind: len(self.cluster.items(path)) for kind, path in (("Nodes", NODES), ("NodeClaims", CLAIMS), ("instances", INSTANCES))}
                return f"left: {left}" if any(left.values()) else ""
            self.story.wait("everything is gone", 120, look)
            self.story.say("deletion of the NodePools takes their NodeClaims, Nodes and instances along")
        finally:
            for operator in operators:
                if operator.process and operator.process.poll() is None:
                    operator.process.kill()
        print(f"passed in {time.monotonic() - self.story.start:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--spokeshave", required=True, help="the program")
    parser.add_argument("--logs", default=".", help="where the operators' output goes")
    parser.add_argument("--transcripts", help="file for what `spokeshave explain` said")
    arguments = parser.parse_args()
    try:
        Ends(arguments).tell()
    except Wrong as wrong:
        print(f"FAIL {wrong}")
        for name in "ab":
            log = os.path.join(arguments.logs, f"operator-{name}.log")
            if os.path.exists(log):
                print(f"--- the end of {log}\n{subprocess.run(['tail', '-n', '25', log], capture_output=True, text=True).stdout}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
