#!/usr/bin/env python3
"""A cluster that Karpenter's own operator has made is taken over in the middle of a consolidation, and given back; a shadow looks on.

    take_over.py --kubeconfig FILE --spokeshave PROGRAM --upstream PROGRAM --kubelets PROGRAM --definitions DIR… --audit-log FILE --folder DIR

Karpenter (with its kwok provider, unchanged) makes 50 nodes with workloads, while `spokeshave operator --shadow` runs beside it as a user who may do anything:
the audit log must have nothing but reads of it. Karpenter begins to consolidate and is killed. Spokeshave starts: no node may be lost and no pod evicted
beyond the command that was under way. It works, is ended, and Karpenter has the cluster again. Needs nothing but Python 3.9 or later.
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
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from scenario import CLAIMS, CLASSES, DEPLOYMENTS, INSTANCES, NODES, PODS, POOLS, Cluster, Story, Wrong, condition, install, requirements, running, taints  # noqa: E402

NODE_COUNT = 50
POOL = "taken"
MERGE = "application/merge-patch+json"
DISRUPTED = "karpenter.sh/disrupted"
SHADOW = "system:serviceaccount:kube-system:shadow"
READS = ("get", "list", "watch")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """A program that runs beside the story."""

    def __init__(self, name, folder, command, environment=None):
        self.name, self.log = name, f"{folder}/{name}.log"
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def alive(self):
        if self.process.poll() is not None:
            raise Wrong(f"{self.name} ended by itself with status {self.process.returncode}; see {self.log}")

    def end(self, with_signal):
        self.alive()
        self.process.send_signal(with_signal)
        self.process.wait(30)

    def sweep(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class TakeOver:
    def __init__(self, arguments):
        self.arguments, self.cluster, self.story, self.processes = arguments, Cluster(arguments.kubeconfig), Story(), []

    def start(self, name, command, environment=None):
        process = Process(name, self.arguments.folder, command, environment)
        self.processes.append(process)
        return process

    def upstream(self, name):
        port = free_port()
        return self.start(name, [self.arguments.upstream], {
            "KUBECONFIG": self.arguments.kubeconfig, "LEADER_ELECTION_NAMESPACE": "kube-system", "SYSTEM_NAMESPACE": "kube-system", "KUBERNETES_MIN_VERSION": "1.19.0-0",
            "KARPENTER_SERVICE": "karpenter", "METRICS_PORT": str(port), "HEALTH_PROBE_PORT": str(free_port()), "CPU_REQUESTS": "2000"})

    def ours(self, name, *flags, kubeconfig=None, metrics_port=0):
        return self.start(name, [self.arguments.spokeshave, "operator", "--kubeconfig", kubeconfig or self.arguments.kubeconfig, "--cloud-provider", "kwok", *flags,
                                 "--metrics-port", str(metrics_port), "--health-probe-port", "0", "--log-format", "text"])

    # What there is.

    def claims(self):
        return self.cluster.items(CLAIMS)

    def nodes(self):
        return [node for node in self.cluster.items(NODES) if (node["metadata"].get("labels") or {}).get("karpenter.sh/nodepool") == POOL]

    def pods(self):
        return [pod for pod in self.cluster.items(PODS) if (pod["metadata"].get("labels") or {}).get("app") == "web"]

    def budgets(self, nodes):
        self.cluster.call("PATCH", f"{POOLS}/{POOL}", {"spec": {"disruption": {"budgets": [{"nodes": nodes}]}}}, MERGE)

    def scale(self, replicas):
        self.cluster.call("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": replicas}}, MERGE)

    def incomplete(self, replicas):
        pods, claims, nodes = self.pods(), self.claims(), self.nodes()
        ready = sum(running(pod) for pod in pods)
        if ready != replicas or len(pods) != replicas:
            return f"{ready} of {len(pods)} pods run, {len(nodes)} nodes, {len(claims)} NodeClaims"
        waiting = [claim["metadata"]["name"] for claim in claims if condition(claim, "Initialized") != "True"]
        if waiting:
            return f"not initialised: {waiting[:3]}"
        if len(nodes) != len(claims):
            return f"{len(nodes)} nodes and {len(claims)} NodeClaims"
        return ""

    def evictions(self, since):
        """Pods that somebody asked to evict since then, from the audit log."""
        found = set()
        with open(self.arguments.audit_log, encoding="utf-8") as log:
            log.seek(since)
            for line in log:
                event = json.loads(line)
                reference = event.get("objectRef") or {}
                if reference.get("subresource") == "eviction" and event.get("responseStatus", {}).get("code") in (200, 201):
                    found.add(reference["name"])
        return found

    def mark(self):
        return os.path.getsize(self.arguments.audit_log)

    # The story.

    def prepare(self):
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for folder in self.arguments.definitions:
            for file in sorted(glob.glob(f"{folder}/*.yaml")):
                text = open(file, encoding="utf-8").read()
                name = re.search(r"(?m)^  name: (\S+)$", text).group(1)
                self.cluster.apply(path, name, text.encode())
                self.story.wait(f"definition {name}", 20, lambda: condition(self.cluster.call("GET", f"{path}/{name}"), "Established") != "True" and "it is not established")
        self.start("kubelets", [self.arguments.kubelets, self.arguments.kubeconfig])
        self.cluster.apply(CLASSES, "e2e", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "e2e"}})
        self.cluster.apply(POOLS, POOL, {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": POOL}, "spec": {
            "template": {"spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "e2e"}, "requirements": requirements("4"), "expireAfter": "Never"}},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}}})
        # More than half of a node: one pod each.
        self.cluster.apply(DEPLOYMENTS, "web", {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "terminationGracePeriodSeconds": 5, "nodeSelector": {"karpenter.sh/nodepool": POOL},
                "containers": [{"name": "c", "image": "registry.example/pause", "resources": {"requests": {"cpu": "2", "memory": "512Mi"}}}]}}}})

    def shadow_account(self):
        """A user who may do everything, so that nothing but the shadow itself keeps it from writing."""
        self.cluster.call("POST", "/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "shadow"}})
        self.cluster.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
            "metadata": {"name": "shadow"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "shadow", "namespace": "kube-system"}]})
        token = self.cluster.call("POST", "/api/v1/namespaces/kube-system/serviceaccounts/shadow/token",
                                  {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}})["status"]["token"]
        text = open(self.arguments.kubeconfig, encoding="utf-8").read()
        field = lambda name: re.search(rf'^\s*{name}:\s*"?([^\s"]+)', text, re.M).group(1)
        path = f"{self.arguments.folder}/shadow.kubeconfig"
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "it",
                       "clusters": [{"name": "it", "cluster": {"server": field("server"), "certificate-authority-data": field("certificate-authority-data")}}],
                       "users": [{"name": "it", "user": {"token": token}}], "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}, out)
        return path

    def report(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/shadow.json", timeout=10) as answer:
            return json.load(answer)

    def row(self, report):
        return next((pool for pool in report["nodePools"] if pool["name"] == POOL), {"shadow": {"launches": 0, "nodesDisrupted": 0}, "other": {"launches": 0, "nodesDisrupted": 0}})

    def grow_with_a_shadow(self):
        upstream = self.upstream("karpenter-1")
        port = free_port()
        shadow = self.ours("shadow", "--shadow", kubeconfig=self.shadow_account(), metrics_port=port)

        def sees():
            shadow.alive()
            try:
                return "" if self.report(port)["since"] else "it has not begun"
            except OSError as error:
                return str(error)
        self.story.wait("the shadow sees the cluster", 60, sees)
        self.story.say("Karpenter's own operator runs, and a shadow beside it, in a cluster without our own kinds")
        self.story.wait("the NodePool is ready", 60, lambda: condition(self.cluster.call("GET", f"{POOLS}/{POOL}"), "Ready") != "True" and "it is not")
        self.scale(NODE_COUNT)
        self.story.wait(f"{NODE_COUNT} pods run", 300, lambda: self.incomplete(NODE_COUNT))
        count = len(self.nodes())
        if count != NODE_COUNT:
            raise Wrong(f"Karpenter made {count} nodes; {NODE_COUNT} were meant, one for each pod")

        def compared():
            row = self.row(self.report(port))
            return "" if row["shadow"]["launches"] == row["other"]["launches"] == NODE_COUNT else f"{row}"
        self.story.wait("the shadow would have launched as many", 60, compared)
        self.story.say(f"Karpenter made {NODE_COUNT} nodes for {NODE_COUNT} pods, and the shadow would have launched as many")
        return upstream, shadow, port

    def kill_in_mid_consolidation(self, upstream):
        # Larger machines, of which one takes the pods of several.
        self.cluster.call("PATCH", f"{POOLS}/{POOL}", {"spec": {"template": {"spec": {"requirements": requirements("4", "8", "16")}}}}, MERGE)
        self.budgets("10%")

        def under_way():
            upstream.alive()
            tainted = [node for node in self.nodes() if DISRUPTED in taints(node)]
            going = [claim for claim in self.claims() if "deletionTimestamp" in claim["metadata"]]
            return "" if tainted and going else f"{len(tainted)} nodes are tainted, {len(going)} NodeClaims go"
        self.story.wait("Karpenter consolidates", 180, under_way)
        upstream.end(signal.SIGKILL)
        self.budgets("0")

    def state(self):
        """What must survive, and what may go."""
        claims = {claim["metadata"]["uid"]: claim for claim in self.claims()}
        nodes = {node["metadata"]["uid"]: node for node in self.nodes()}
        going = {claim["status"].get("nodeName") for claim in claims.values() if "deletionTimestamp" in claim["metadata"]}
        return {
            "nodes": {uid: node["metadata"]["name"] for uid, node in nodes.items() if node["metadata"]["name"] not in going and "deletionTimestamp" not in node["metadata"]},
            "claims": {uid: claim["metadata"]["name"] for uid, claim in claims.items() if "deletionTimestamp" not in claim["metadata"]},
            "going": going,
            "may_move": {pod["metadata"]["name"] for pod in self.pods() if pod["spec"].get("nodeName") in going},
            "tainted": [node["metadata"]["name"] for node in nodes.values() if DISRUPTED in taints(node) and node["metadata"]["name"] not in going],
        }

    def lost(self, before):
        nodes = {node["metadata"]["uid"] for node in self.nodes() if "deletionTimestamp" not in node["metadata"]}
        claims = {claim["metadata"]["uid"] for claim in self.claims() if "deletionTimestamp" not in claim["metadata"]}
        gone = [name for uid, name in before["nodes"].items() if uid not in nodes] + [name for uid, name in before["claims"].items() if uid not in claims]
        return gone

    def watch_over(self, operator, before, since, what, settled):
        """Looks for a while that nothing is lost; then that what was half done is done."""
        quiet_until = time.monotonic() + 40

        def look():
            operator.alive()
            gone = self.lost(before)
            if gone:
                raise Wrong(f"{what}: lost {gone}")
            evicted = self.evictions(since) - before["may_move"]
            if evicted:
                raise Wrong(f"{what}: evicted beyond the command under way: {sorted(evicted)}")
            if time.monotonic() < quiet_until:
                return "looking on"
            return settled()
        self.story.wait(what, 180, look)

    def clean(self, replicas, instances):
        problem = self.incomplete(replicas)
        if problem:
            return problem
        nodes, claims = self.nodes(), self.claims()
        stray = [node["metadata"]["name"] for node in nodes if DISRUPTED in taints(node)]
        if stray:
            return f"stray taints: {stray}"
        drifted = [claim["metadata"]["name"] for claim in claims if condition(claim, "Drifted") == "True" and claim["metadata"]["uid"] not in self.drifted_before]
        if drifted:
            return f"drifted: {drifted}"
        if instances and len(self.cluster.items(INSTANCES)) != len(nodes):
            return f"{len(nodes)} nodes and {len(self.cluster.items(INSTANCES))} instances"
        return ""

    def drain(self, claim, replicas, instances, made_by):
        name = claim["metadata"]["name"]
        self.cluster.call("DELETE", f"{CLAIMS}/{name}")
        self.story.wait(f"NodeClaim {name} is gone", 120, lambda: any(one["metadata"]["name"] == name for one in self.claims()) and "it is there")
        self.story.wait("its pods run elsewhere", 120, lambda: self.clean(replicas, instances))
        self.story.say(f"a node that {made_by} has made is drained and gone")

    def judge_shadow(self):
        verbs, writes = {}, []
        with open(self.arguments.audit_log, encoding="utf-8") as log:
            for line in log:
                event = json.loads(line)
                if event["user"]["username"] != SHADOW:
                    continue
                verbs[event["verb"]] = verbs.get(event["verb"], 0) + 1
                if event["verb"] not in READS:
                    writes.append(f"{event['verb']} {event['requestURI']}")
        if not verbs:
            raise Wrong("the audit log has no request of the shadow")
        if writes:
            raise Wrong(f"the shadow wrote: {writes[:5]}")
        return ", ".join(f"{count} {verb}" for verb, count in sorted(verbs.items()))

    def tell(self):
        arguments = self.arguments
        self.prepare()
        upstream, shadow, port = self.grow_with_a_shadow()
        self.kill_in_mid_consolidation(upstream)
        before, since = self.state(), self.mark()
        self.drifted_before = {claim["metadata"]["uid"] for claim in self.claims() if condition(claim, "Drifted") == "True"}
        self.story.say(f"kill -9 of Karpenter in the middle of a consolidation: {len(before['going'])} nodes go, {len(before['tainted'])} more are tainted, {len(before['nodes'])} stay")
        report = self.report(port)
        row = self.row(report)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        if f'spokeshave_shadow_launches{{nodepool="{POOL}",operator="other"}}' not in metrics:
            raise Wrong("the shadow's metrics do not say what the other launched")
        # Half of each machine is paid for a pod that is there.
        if not row["other"]["nodesDisrupted"] or not report["price"] / 2 < (report["priceAtRest"] or 0) <= report["price"]:
            raise Wrong(f"the shadow's report is not whole: {report}")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/shadow", timeout=10) as answer:
            text = answer.read().decode()
        shadow.end(signal.SIGTERM)
        self.story.say(f"the shadow saw {row['other']['nodesDisrupted']} nodes disrupted and would have disrupted {row['shadow']['nodesDisrupted']}; ${report['price']:.2f} an hour, at rest "
                       f"${report['priceAtRest']:.2f}; the API server has nothing but reads of it: {self.judge_shadow()}")
        print("".join(f"      {line}\n" for line in text.splitlines()), end="", flush=True)

        install(self.cluster, arguments.spokeshave)
        said = subprocess.run([arguments.spokeshave, "adopt", "--check", "--live", "--namespace", "kube-system", "--kubeconfig", arguments.kubeconfig, "-o", "json"],
                              capture_output=True, text=True)
        findings = {finding["code"]: finding for finding in json.loads(said.stdout)["findings"]}
        if said.returncode != 0 or "instances-recorded" not in findings or "would-drift" in findings:
            raise Wrong(f"adopt --check ends with {said.returncode} and says: {sorted(findings)}")
        self.story.say(f"spokeshave adopt --check: nothing stands in the way ({', '.join(sorted(findings))})")

        operator = self.ours("spokeshave-1")
        self.watch_over(operator, before, since, "taken over", lambda: self.clean(NODE_COUNT, True))
        moved = len(self.evictions(since))
        self.story.say(f"Spokeshave took over: {len(before['nodes'])} nodes and {len(before['claims'])} NodeClaims are those of before, {moved} pods of the command under way were evicted and no "
                       f"other; every node has its record")
        self.scale(NODE_COUNT + 4)
        self.story.wait("new pods run", 120, lambda: self.clean(NODE_COUNT + 4, True))
        self.drain(next(claim for claim in self.claims() if claim["metadata"]["uid"] in before["claims"]), NODE_COUNT + 4, True, "Karpenter")
        operator.end(signal.SIGTERM)
        own = [claim for claim in self.claims() if claim["metadata"]["uid"] not in before["claims"]]
        if not own:
            raise Wrong("Spokeshave has made no node")

        before, since = self.state(), self.mark()
        upstream = self.upstream("karpenter-2")
        self.watch_over(upstream, before, since, "given back", lambda: self.clean(NODE_COUNT + 4, False))
        self.story.say(f"Karpenter has the cluster back: {len(before['nodes'])} nodes are those of before, {len(own)} of them made by Spokeshave; no pod was evicted")
        self.drain(own[0], NODE_COUNT + 4, False, "Spokeshave")
        upstream.end(signal.SIGTERM)

        before, since = self.state(), self.mark()
        operator = self.ours("spokeshave-2")
        self.watch_over(operator, before, since, "taken over again", lambda: self.clean(NODE_COUNT + 4, True))
        self.story.say("Spokeshave took over once more: nothing is lost, and no record is left of the node that Karpenter has ended")
        operator.end(signal.SIGTERM)
        print(f"passed in {time.monotonic() - self.story.start:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("kubeconfig", "spokeshave", "upstream", "kubelets", "audit-log", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--definitions", required=True, nargs="+", help="folders with Karpenter's CustomResourceDefinitions")
    story = TakeOver(parser.parse_args())
    try:
        story.tell()
    except Wrong as wrong:
        print(f"FAIL {wrong}")
        for process in story.processes[-2:]:
            print(f"--- the end of {process.log}\n{subprocess.run(['tail', '-n', '15', process.log], capture_output=True, text=True).stdout}")
        return 1
    finally:
        for process in story.processes:
            process.sweep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
