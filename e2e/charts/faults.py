#!/usr/bin/env python3
"""What goes wrong around an installation, on a genuine kube-apiserver: each time it is said by name what is wrong, and nothing stays wrong when that is mended.

    faults.py --kubeconfig FILE --spokeshave PROGRAM --helm PROGRAM --audit-log FILE --folder DIR

Definitions that are missing, that are an older version's, or of which one is missing; a second install, Karpenter under other names and other programs of our image; a leader that was stopped and
comes back; an upgrade from another version of the chart in the middle of a command; a shadow with the chart's permissions, and one that is to become
the operator; definitions of Karpenter's release. Needs nothing but Python 3.9 or later.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, ".."))
from install import CHARTS, NAMESPACE, RELEASE, Helm, Pod, claims, pool, pods, requests, wait_running, workload  # noqa: E402
from scenario import CLASSES, DEPLOYMENTS, DISRUPTIONS, NODES, POOLS, Cluster, Story, Wrong, condition, is_finished, running, taints  # noqa: E402
from take_over import free_port  # noqa: E402

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/karpenter-leader-election"
MERGE = "application/merge-patch+json"
WRITES = ("create", "update", "patch", "delete", "deletecollection")


class Replica(Pod):
    """One replica of the Deployment: its own token, host name, ports and log."""

    def __init__(self, cluster, arguments, name):
        super().__init__(cluster, argparse.Namespace(**{**vars(arguments), "folder": f"{arguments.folder}/{name}"}))
        os.makedirs(self.arguments.folder, exist_ok=True)
        self.name, self.log, self.port, self.health = name, f"{arguments.folder}/{name}.log", free_port(), free_port()

    def up(self):
        self.start(self.log, {"HOSTNAME": self.name, "METRICS_PORT": str(self.port), "HEALTH_PROBE_PORT": str(self.health)})
        return self

    def said(self):
        return open(self.log, encoding="utf-8").read().replace('\\"', '"')

    def ready(self):
        """Nothing when it is ready, and otherwise what it says."""
        if self.process.poll() is not None:
            raise Wrong(f"{self.name} ended by itself with status {self.process.returncode}: {self.said()[-800:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}/readyz", timeout=5) as answer:
                return "" if answer.status == 200 else answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode() or "not ready"
        except OSError as error:
            return f"not ready: {error}"

    def sweep(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


class Faults:
    def __init__(self, arguments):
        self.arguments, self.cluster, self.story = arguments, Cluster(arguments.kubeconfig), Story()
        self.helm, self.replicas = Helm(arguments.helm, arguments.kubeconfig, arguments.folder), []

    def replica(self, name):
        self.replicas.append(Replica(self.cluster, self.arguments, name))
        return self.replicas[-1].up()

    def says(self, replica, *words, seconds=60):
        def look():
            replica.ready()
            missing = [word for word in words if word not in replica.said()]
            return f"the log does not say {missing}" if missing else ""
        self.story.wait(f"{replica.name} says what is wrong", seconds, look)

    def until_ready(self, replica, seconds=90):
        self.story.wait(f"{replica.name} is ready", seconds, replica.ready)

    def established(self, name):
        self.story.wait(f"{name} is established", 20, lambda: condition(self.cluster.call("GET", f"{DEFINITIONS}/{name}"), "Established") != "True" and "it is not")

    def gone(self, path):
        self.story.wait(f"{path} is gone", 60, lambda: self.cluster.call("GET", path, accepted=(200, 404)).get("code") != 404 and "it is there")

    def holder(self):
        return self.cluster.call("GET", LEASE, accepted=(200, 404)).get("spec", {}).get("holderIdentity") or ""

    def led_otherwise(self, name):
        """Who leads, unless it is this replica."""
        holder = self.holder()
        return "" if holder.startswith(name) else f"{holder or 'nobody'} does"

    # The faults.

    def definitions(self):
        self.cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.helm.chart("install", "small", "--set", "simulateKubelets=true")
        replica = self.replica("bare")
        self.says(replica, "does not serve kinds of karpenter.sh/v1", '"missing":"nodepools, nodeclaims"')
        if "[-]crd not ready" not in replica.ready():
            raise Wrong(f"/readyz does not name the definitions: {replica.ready()}")
        self.story.say("without definitions the log and /readyz name them, and the operator goes on looking")

        # What Karpenter before 1.0 has installed.
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        for kind, plural in (("NodePool", "nodepools"), ("NodeClaim", "nodeclaims")):
            self.cluster.call("POST", DEFINITIONS, {
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.karpenter.sh"},
                "spec": {"group": "karpenter.sh", "scope": "Cluster", "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
                         "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}]}})
            self.established(f"{plural}.karpenter.sh")
        time.sleep(3)
        if "[-]crd not ready" not in replica.ready():
            raise Wrong("definitions of v1beta1 are taken for those of v1")
        said = self.adopt()
        if "definition-version" not in said:
            raise Wrong(f"adopt --check does not say that the definitions are of another version: {sorted(said)}")
        for plural in ("nodepools", "nodeclaims"):
            self.cluster.call("DELETE", f"{DEFINITIONS}/{plural}.karpenter.sh")
            self.gone(f"{DEFINITIONS}/{plural}.karpenter.sh")
        self.story.say("definitions of v1beta1 are not taken for those of v1, and adopt --check names them")

        self.take_definitions_over()
        self.until_ready(replica)
        replica.stop()
        # As after an upgrade of the operator without that of its definitions.
        name = "disruptionpolicies.spokeshave.dev"
        kept = self.cluster.call("GET", f"{DEFINITIONS}/{name}")
        self.cluster.call("DELETE", f"{DEFINITIONS}/{name}")
        self.gone(f"{DEFINITIONS}/{name}")
        replica = self.replica("one-missing")
        self.says(replica, '"kind":"DisruptionPolicy"', "install its CustomResourceDefinition")
        self.cluster.call("POST", DEFINITIONS, {"apiVersion": kept["apiVersion"], "kind": kept["kind"],
                                                "metadata": {key: kept["metadata"][key] for key in ("name", "annotations", "labels") if key in kept["metadata"]}, "spec": kept["spec"]})
        self.until_ready(replica)
        replica.stop()
        self.story.say("with the definitions it becomes ready by itself; one that an upgrade has forgotten is named, too")

    def take_definitions_over(self):
        """A release like Karpenter's gives its definitions up in the two ways of docs/migrate.md. Helm 3 deletes what the record of a release lists, whoever owns it by then."""
        chart = os.path.join(CHARTS, "spokeshave-crds")
        uids = lambda: {one["metadata"]["name"]: one["metadata"]["uid"] for one in self.cluster.items(DEFINITIONS)}
        # As Karpenter's chart, which keeps nothing.
        self.helm.run("install", "karpenter-crd", chart, "--set", "keep=false", "--wait")
        if "definition-release" not in self.adopt():
            raise Wrong("adopt --check does not say that another release has the definitions")
        before = uids()
        self.helm.run("upgrade", "karpenter-crd", chart, "--set", "keep=true")
        self.helm.run("uninstall", "karpenter-crd")
        if not before or uids() != before:
            raise Wrong(f"an upgrade that keeps definitions does not: of {sorted(before)} there are {sorted(uids())}")

        self.helm.run("install", "karpenter-crd", chart, "--set", "keep=false", "--take-ownership")
        self.helm.run("install", "spokeshave-crds", chart, "--take-ownership", "--wait")
        self.cluster.call("DELETE", "/api/v1/namespaces/default/secrets?labelSelector=owner%3Dhelm%2Cname%3Dkarpenter-crd")
        if "karpenter-crd" in self.helm.run("list", "--all"):
            raise Wrong("Helm still knows the release whose record was removed")
        if uids() != before or "definition-release" in self.adopt():
            raise Wrong(f"the definitions were not taken over: of {sorted(before)} there are {sorted(uids())}")
        self.story.say("definitions of another release stay where an upgrade keeps them before it is uninstalled, and where only its record is removed")

    def adopt(self):
        import subprocess
        done = subprocess.run([self.arguments.spokeshave, "adopt", "--check", "--live", "--kubeconfig", self.arguments.kubeconfig, "-o", "json"], capture_output=True, text=True)
        if done.returncode not in (0, 3):
            raise Wrong(f"adopt --check ends with {done.returncode}: {done.stderr[-500:]}")
        return {finding["code"] for finding in json.loads(done.stdout)["findings"]}

    def work(self):
        self.cluster.apply(CLASSES, "e2e", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "e2e"}, "spec": {"nodeRegistrationDelay": "1s"}})
        self.cluster.apply(POOLS, "web", pool("web", disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}))
        self.cluster.apply(DEPLOYMENTS, "web", workload("web", "web", 12))

    def second_install(self):
        self.cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
        chart, values = os.path.join(CHARTS, "spokeshave"), os.path.join(HERE, "values", "small.yaml")
        said = self.helm.run("install", "other", chart, "-n", "elsewhere", "-f", values, fails=True)
        if f"Deployment {NAMESPACE}/{RELEASE} runs an operator" not in said:
            raise Wrong(f"a second install does not say what is wrong: {said[-600:]}")
        self.helm.run("install", "other", chart, "-n", "elsewhere", "-f", values, "--set", "ignoreOtherOperators=true", "--dry-run=server")
        self.story.say("a second install in another namespace is refused, with the name of the first")

    def others(self):
        """What counts as another operator: Karpenter under any name, and of the programs of our image one that does more than look on, however it is started."""
        ours = lambda **started: {"image": "registry.example/spokeshave:1", **started}
        mirrored = lambda **more: {"image": "registry.example/platform/nodes-7:2", **more}
        variable = lambda name, value: {"env": [{"name": name, "value": value}]}
        unelected = variable("DISABLE_LEADER_ELECTION", "true")
        for name, namespace, label, containers, leads in (
            ("web", "elsewhere", "spokeshave", [ours(args=["web"])], False),
            ("provider", "elsewhere", "spokeshave", [ours(command=["/spokeshave", "provider-serve"])], False),
            ("looks-on", "elsewhere", "spokeshave", [ours(command=["/spokeshave", "operator", "--shadow"])], False),
            ("leads", "elsewhere", "spokeshave", [ours(command=["/spokeshave"], args=["operator"])], True),
            ("dashboards", "elsewhere", "web", [{"image": "registry.example/karpenter-dashboards:1"}], False),
            ("mirrored", "elsewhere", "autonodes", [{"image": "registry.example:5000/karpenter@sha256:" + 64 * "0"}], True),
            ("variable", "elsewhere", "autonodes", [mirrored(**variable("KARPENTER_SERVICE", "karpenter"))], True),
            ("sidecar", "elsewhere", "autonodes", [mirrored(), {"image": "public.ecr.aws/karpenter/controller:1.14.1"}], True),
            ("label", "elsewhere", "karpenter", [mirrored()], True),
            # In our namespace the Lease keeps them apart, if both wait for it.
            ("elects", NAMESPACE, "karpenter", [mirrored()], False),
            ("unelected", NAMESPACE, "karpenter", [mirrored(**unelected)], True),
            ("other-lease", NAMESPACE, "karpenter", [mirrored(**variable("LEADER_ELECTION_NAME", "other"))], True),
        ):
            place = f"/apis/apps/v1/namespaces/{namespace}/deployments"
            containers = [{"name": f"c{index}", **container} for index, container in enumerate(containers)]
            self.cluster.call("POST", place, {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app.kubernetes.io/name": label}},
                # Paused, it makes no pods.
                "spec": {"replicas": 1, "paused": True, "selector": {"matchLabels": {"app": name}},
                         "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}}})
            said = self.helm.chart("upgrade", "small", "--set", "simulateKubelets=true", "--dry-run=server", fails=leads)
            if leads and f"Deployment {namespace}/{name} runs an operator" not in said:
                raise Wrong(f"an operator that was not installed by a chart is not named: {said[-600:]}")
            self.cluster.call("DELETE", f"{place}/{name}")
        self.story.say("an upgrade is refused beside another operator under any name, in this namespace without a common Lease, and not beside a shadow or other programs of the same image")

    def values_of_karpenter(self):
        """Values that were copied as a whole name the PodDisruptionBudget of Karpenter's release, which is there until that is uninstalled."""
        place = "/apis/policy/v1/namespaces/elsewhere/poddisruptionbudgets"
        self.cluster.call("POST", place, {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "karpenter", "labels": {"app.kubernetes.io/managed-by": "Helm"},
                         "annotations": {"meta.helm.sh/release-name": "karpenter", "meta.helm.sh/release-namespace": "elsewhere"}},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app.kubernetes.io/instance": "karpenter"}}}})
        chart, values = os.path.join(CHARTS, "spokeshave"), os.path.join(HERE, "values", "whole-karpenter.yaml")
        said = self.helm.run("install", "whole", chart, "-n", "elsewhere", "-f", values, "--set", "ignoreOtherOperators=true", "--dry-run=server")
        if "podDisruptionBudget.name: karpenter is another release's; the PodDisruptionBudget is whole-spokeshave" not in said:
            raise Wrong(f"the notes do not say which name the PodDisruptionBudget has: {said[-600:]}")
        self.cluster.call("DELETE", f"{place}/karpenter")
        self.story.say("values of Karpenter's chart as a whole are installed beside its release, whose PodDisruptionBudget stays its own")

    def shadow(self):
        chart, values = os.path.join(CHARTS, "spokeshave"), os.path.join(HERE, "values", "shadow.yaml")
        self.helm.run("install", "shadow", chart, "-n", "elsewhere", "-f", values)
        said = self.helm.run("upgrade", "shadow", chart, "-n", "elsewhere", "-f", values, "--set", "shadow=false", fails=True)
        if f"Deployment {NAMESPACE}/{RELEASE} runs an operator" not in said:
            raise Wrong(f"a shadow that is to become the operator beside another does not say what is wrong: {said[-600:]}")
        # The operator itself is not held up by what only looks on.
        self.helm.chart("upgrade", "small", "--set", "simulateKubelets=true", "--dry-run=server")
        spec = self.cluster.call("GET", "/apis/apps/v1/namespaces/elsewhere/deployments/shadow-spokeshave")["spec"]
        if spec["replicas"] != 1 or "--shadow" not in spec["template"]["spec"]["containers"][0]["args"]:
            raise Wrong("the chart does not start a shadow")
        replica = Replica(self.cluster, self.arguments, "shadow")
        replica.namespace, replica.release = "elsewhere", "shadow-spokeshave"
        self.replicas.append(replica.up())
        self.until_ready(replica)
        self.cluster.apply(DEPLOYMENTS, "more", workload("more", "web", 2))
        wait_running(self.cluster, self.story, "more", 2)

        def compared():
            with urllib.request.urlopen(f"http://127.0.0.1:{replica.port}/shadow.json", timeout=5) as answer:
                rows = json.load(answer)["nodePools"]
            return "" if rows and rows[0]["shadow"]["launches"] == rows[0]["other"]["launches"] > 0 else f"{rows}"
        self.story.wait("the shadow would have launched the same", 60, compared)
        replica.stop()
        used, denied = requests(self.arguments.audit_log, "system:serviceaccount:elsewhere:shadow-spokeshave")
        wrong = [one for one in used if one[2] not in ("get", "list", "watch")] + list(denied)
        if wrong or not used:
            raise Wrong(f"the shadow asked for {wrong or 'nothing'}")
        self.helm.run("uninstall", "shadow", "-n", "elsewhere")
        self.story.say(f"a shadow beside it is not made the operator, and lives by the chart's permissions, which only read: {len(used)} kinds of requests, none denied")

    def old_leader(self):
        first = self.replica("first")
        self.until_ready(first)
        self.story.wait("the first leads", 60, lambda: self.led_otherwise("first"))
        self.work()
        wait_running(self.cluster, self.story, "web", 12)
        self.second_install()
        self.others()
        self.values_of_karpenter()
        self.shadow()
        second = self.replica("second")
        self.until_ready(second)
        first.process.send_signal(signal.SIGSTOP)
        self.story.wait("the second leads", 60, lambda: self.led_otherwise("second"))
        before, mark = {claim["metadata"]["uid"] for claim in claims(self.cluster, "web")}, os.path.getsize(self.arguments.audit_log)
        self.cluster.apply(DEPLOYMENTS, "later", workload("later", "web", 2))
        first.process.send_signal(signal.SIGCONT)
        try:
            status = first.process.wait(60)
        except Exception:
            raise Wrong("the old leader neither leads nor ends") from None
        if status == 0 or "leader election lost" not in first.said():
            raise Wrong(f"the old leader ended with {status} and does not say why: {first.said()[-600:]}")
        wait_running(self.cluster, self.story, "later", 2)
        if not before <= {claim["metadata"]["uid"] for claim in claims(self.cluster, "web")}:
            raise Wrong("NodeClaims are lost")
        wrote = self.writers(mark)
        if first.credential in wrote:
            raise Wrong(f"the old leader wrote after the other led: {wrote[first.credential]}")
        if second.credential not in wrote:
            raise Wrong(f"the audit log does not tell the replicas apart: {sorted(wrote)}")
        self.story.say("a leader that was stopped and comes back ends with `leader election lost`, and has written nothing since the other led")
        return second

    def writers(self, since):
        """What was written since then, by credential; a stopped process may have sent a renewal of the Lease before it was stopped, which is refused."""
        found = {}
        with open(self.arguments.audit_log, encoding="utf-8") as log:
            log.seek(since)
            for line in log:
                event = json.loads(line)
                reference = event.get("objectRef") or {}
                if event["verb"] in WRITES and reference.get("resource") != "leases" and event.get("responseStatus", {}).get("code", 200) < 400:
                    for identity in event["user"].get("extra", {}).get("authentication.kubernetes.io/credential-id", ["?"]):
                        found.setdefault(identity, set()).add(f"{event['verb']} {reference.get('resource')}")
        return found

    def upgrade(self, old):
        """An upgrade replaces pods one by one: the new one waits until the old one ends, here in the middle of a command."""
        previous = f"{self.arguments.folder}/previous"
        shutil.copytree(os.path.join(CHARTS, "spokeshave"), previous)
        path = f"{previous}/Chart.yaml"
        text = open(path, encoding="utf-8").read()
        lines = ["version: 0.0.9" if line.startswith("version:") else line for line in text.splitlines()]
        with open(path, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
        self.helm.run("upgrade", RELEASE, previous, "-n", NAMESPACE, "-f", os.path.join(HERE, "values", "small.yaml"), "--set", "simulateKubelets=true")
        for name in ("more", "later"):
            self.cluster.call("DELETE", f"{DEPLOYMENTS}/{name}")
        self.cluster.call("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 4}}, MERGE)
        self.cluster.call("PATCH", f"{POOLS}/web", {"spec": {"disruption": {"budgets": [{"nodes": "100%"}]}}}, MERGE)

        def under_way():
            open_ones = [one for one in self.cluster.items(DISRUPTIONS) if not is_finished(one)]
            return "" if open_ones else "no command is under way"
        self.story.wait("a command is under way", 120, under_way)
        begun = {one["metadata"]["name"] for one in self.cluster.items(DISRUPTIONS)}
        self.helm.chart("upgrade", "small", "--set", "simulateKubelets=true")
        new = self.replica("new")
        old.stop()

        def settled():
            new.ready()
            unfinished = [one["metadata"]["name"] for one in self.cluster.items(DISRUPTIONS) if not is_finished(one)]
            if unfinished:
                return f"under way: {unfinished}"
            ready = [pod for pod in pods(self.cluster, "web") if running(pod)]
            stray = [node["metadata"]["name"] for node in self.cluster.items(NODES) if "karpenter.sh/disrupted" in taints(node)]
            return "" if len(ready) == 4 and not stray else f"{len(ready)} pods run, stray taints: {stray}"
        self.story.wait("the commands are finished by the new operator", 240, settled)
        ends = {one["metadata"]["name"]: one["status"]["phase"] for one in self.cluster.items(DISRUPTIONS) if one["metadata"]["name"] in begun}
        if set(ends) != begun:
            raise Wrong(f"of {sorted(begun)} the ledger has {ends}")
        new.stop()
        self.story.say(f"an upgrade from another version of the chart in the middle of a command: the new operator finishes what was begun ({', '.join(sorted(set(ends.values())))})")

    def tell(self):
        self.definitions()
        self.upgrade(self.old_leader())
        print(f"passed in {time.monotonic() - self.story.start:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("kubeconfig", "spokeshave", "helm", "audit-log", "folder"):
        parser.add_argument(f"--{name}", required=True)
    faults = Faults(parser.parse_args())
    try:
        faults.tell()
    except Wrong as wrong:
        print(f"FAIL {wrong}")
        return 1
    finally:
        for replica in faults.replicas:
            replica.sweep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
