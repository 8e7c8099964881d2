#!/usr/bin/env python3
"""Helm installs the charts, and the operator lives by the chart's permissions.

    install.py --kubeconfig FILE --spokeshave PROGRAM --helm PROGRAM --audit-log FILE --folder DIR

Installs `charts/spokeshave-crds` and `charts/spokeshave`, takes arguments, environment, files and service account from the Deployment as a kubelet would, and runs the
program with them. A story makes it do all that it can do. At the end the API server's audit log says which requests it made: a denied one fails, and so does a
rule of the chart that none of them needed. Needs nothing but Python 3.9 or later.
"""

import argparse
import base64
import json
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from scenario import CLAIMS, CLASSES, DEPLOYMENTS, DISRUPTIONS, INSTANCES, PODS, POOLS, Cluster, Story, Wrong, condition, requirements, running  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CHARTS = os.path.join(HERE, "../../charts")
NAMESPACE = RELEASE = "spokeshave"
USER = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
OVERLAYS = "/apis/karpenter.sh/v1alpha1/nodeoverlays"
BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/default/capacitybuffers"
POLICIES = "/apis/spokeshave.dev/v1alpha1/disruptionpolicies"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"

# Rules that no request shows, as "group/resource verb": each with its reason.
NOT_SHOWN = {
    "karpenter.sh/nodepools/finalizers update": "asked by the admission plugin OwnerReferencesPermissionEnforcement, which is on here; it makes no request",
    "karpenter.sh/nodeclaims/finalizers update": "the same",
    "spokeshave.dev/disruptions delete": "finished ones go after a day, or when there are 200 of them",
}
# Rules that this story uses or not, as time and the scheduler will have it; either is right. Each with its reason and the test that shows the request.
SOMETIMES = {
    "spokeshave.dev/disruptions get": "after an answer that was lost, the command is looked up (invariant_2_and_38_a_command_whose_creation_had_no_answer)",
    "karpenter.sh/nodeclaims get": "after an answer that was lost, a replacement is looked up (d_102)",
    "/events patch": "an event that is told again counts up, which takes two minutes or the same news twice (d_034_events_are_written_once_and_counted_later)",
}


class Helm:
    """Helm against the cluster."""

    def __init__(self, program, kubeconfig, folder):
        self.program, self.environment = program, dict(os.environ, KUBECONFIG=kubeconfig, HELM_CACHE_HOME=f"{folder}/helm", HELM_CONFIG_HOME=f"{folder}/helm", HELM_DATA_HOME=f"{folder}/helm")

    def run(self, *arguments, fails=False):
        done = subprocess.run([self.program, *arguments], env=self.environment, capture_output=True, text=True)
        if (done.returncode != 0) != fails:
            raise Wrong(f"helm {' '.join(arguments)}: status {done.returncode}: {done.stderr[-800:]}")
        return done.stdout + done.stderr

    def chart(self, verb, values, *arguments, fails=False):
        return self.run(verb, RELEASE, os.path.join(CHARTS, "spokeshave"), "-n", NAMESPACE, "-f", os.path.join(HERE, "values", f"{values}.yaml"), *arguments, fails=fails)


# Where objects of a kind are, for those that the charts render.
PLACES = {
    "spokeshave.dev/v1alpha1/DisruptionPolicy": "disruptionpolicies",
    "apps/v1/Deployment": "deployments", "v1/ServiceAccount": "serviceaccounts", "v1/ConfigMap": "configmaps", "v1/Service": "services",
    "policy/v1/PodDisruptionBudget": "poddisruptionbudgets", "networking.k8s.io/v1/NetworkPolicy": "networkpolicies",
    "rbac.authorization.k8s.io/v1/Role": "roles", "rbac.authorization.k8s.io/v1/RoleBinding": "rolebindings",
    "rbac.authorization.k8s.io/v1/ClusterRole": "clusterroles", "rbac.authorization.k8s.io/v1/ClusterRoleBinding": "clusterrolebindings",
    "apiextensions.k8s.io/v1/CustomResourceDefinition": "customresourcedefinitions",
}


def admit_strictly(cluster, rendered):
    """Every rendered object as a server-side apply that changes nothing: a field that the API server does not know, and one that is there twice, is refused."""
    admitted, elsewhere = 0, set()
    for document in re.split(r"(?m)^---\s*$", rendered):
        field = lambda pattern: (re.search(pattern, document, re.M) or [None, None])[1]
        kind, name = field(r"^kind: (\S+)"), field(r"^metadata:\n(?:  .*\n)*?  name: ['\"]?([^\s'\"]+)")
        if not kind:
            continue
        version, namespace = field(r"^apiVersion: (\S+)"), field(r"^metadata:\n(?:  .*\n)*?  namespace: (\S+)")
        place = PLACES.get(f"{version}/{kind}")
        if not place:
            elsewhere.add(f"{version}/{kind}")
            continue
        path = ("/apis/" if "/" in version else "/api/") + version + (f"/namespaces/{namespace}" if namespace else "") + f"/{place}/{name}"
        cluster.call("PATCH", f"{path}?fieldManager=strict&force=true&dryRun=All&fieldValidation=Strict", document.encode(), "application/apply-patch+yaml")
        admitted += 1
    # Kinds of the Prometheus operator, which the cluster does not have.
    unknown = {one for one in elsewhere if not one.startswith("monitoring.coreos.com/")}
    if unknown or not admitted:
        raise Wrong(f"rendered and not looked at: {sorted(unknown)}")
    return admitted


class Pod:
    """The container of the Deployment, run by hand."""

    def __init__(self, cluster, arguments):
        self.cluster, self.arguments, self.process = cluster, arguments, None
        self.namespace, self.release, self.credential = NAMESPACE, RELEASE, None

    def token(self, account):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
        token = self.cluster.call("POST", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token", body)["status"]["token"]
        claims_of_it = token.split(".")[1]
        # As the audit log names it.
        self.credential = f"JTI={json.loads(base64.urlsafe_b64decode(claims_of_it + '=' * (-len(claims_of_it) % 4)))['jti']}"
        return token

    def kubeconfig(self, account):
        """As the files of a service account: the cluster's address and authority, and a token."""
        lines = open(self.arguments.kubeconfig, encoding="utf-8").read().splitlines()
        wanted = {line.split(":", 1)[0].strip(): line.split(":", 1)[1].strip() for line in lines if ":" in line}
        path = f"{self.arguments.folder}/account.kubeconfig"
        with open(path, "w", encoding="utf-8") as out:
            json.dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "it",
                "clusters": [{"name": "it", "cluster": {key: wanted[key].strip('"') for key in ("server", "certificate-authority-data")}}],
                "users": [{"name": "it", "user": {"token": self.token(account)}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": self.namespace}}],
            }, out)
        return path

    def files(self, spec):
        """What volumes from ConfigMaps hold, by the path where it is mounted."""
        mounts = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0].get("volumeMounts") or []}
        found = {}
        for volume in spec.get("volumes") or []:
            if "configMap" in volume:
                data = self.cluster.call("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{volume['configMap']['name']}")["data"]
                for name, text in data.items():
                    path = f"{self.arguments.folder}/{name}"
                    with open(path, "w", encoding="utf-8") as out:
                        out.write(text)
                    found[f"{mounts[volume['name']]}/{name}"] = path
        return found

    def start(self, log, variables=None):
        spec = self.cluster.call("GET", f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.release}")["spec"]["template"]["spec"]
        container, files = spec["containers"][0], self.files(spec)
        environment = {"PATH": os.environ["PATH"], "HOSTNAME": "pod", "KUBECONFIG": self.kubeconfig(spec["serviceAccountName"])}
        for variable in container["env"]:
            # What a kubelet would work out of requests that are not there is 0.
            value = variable.get("value", "0")
            environment[variable["name"]] = files.get(value, value)
        # The pod's namespace, which the operator reads from a file, and ports that nobody else has.
        environment.update({"LEADER_ELECTION_NAMESPACE": self.namespace, "METRICS_PORT": "0", "HEALTH_PROBE_PORT": "0", **(variables or {})})
        with open(log, "ab") as out:
            self.process = subprocess.Popen([self.arguments.spokeshave, *container["args"]], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def stop(self):
        if self.process.poll() is not None:
            raise Wrong(f"the operator ended by itself with status {self.process.returncode}")
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(30) != 0:
            raise Wrong("the operator did not end well after SIGTERM")


def pool(name, **spec):
    template = {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "e2e"}, "requirements": requirements("2", "4", "8"), **spec.pop("template", {})}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name},
            "spec": {"template": {"metadata": {"labels": {"pool": name}}, "spec": template}, **spec}}


def workload(name, pool_name, replicas, annotations=None):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
                "spec": {"terminationGracePeriodSeconds": 1, "nodeSelector": {"pool": pool_name},
                         "containers": [{"name": "c", "image": "registry.example/pause", "resources": {"requests": {"cpu": "900m", "memory": "512Mi"}}}]}}}}


def pods(cluster, name):
    return [pod for pod in cluster.items(PODS) if (pod["metadata"].get("labels") or {}).get("app") == name]


def claims(cluster, name):
    return [claim for claim in cluster.items(CLAIMS) if claim["metadata"]["labels"]["karpenter.sh/nodepool"] == name]


def wait_running(cluster, story, name, count, replaced=()):
    def look():
        ready = [pod for pod in pods(cluster, name) if running(pod) and pod["spec"]["nodeName"] not in replaced]
        return "" if len(ready) == count else f"{len(ready)} of {count} run"
    story.wait(f"{count} pods of {name} run", 120, look)


def wait_gone(cluster, story, claim):
    name = claim["metadata"]["name"]
    story.wait(f"NodeClaim {name} is gone", 120, lambda: any(one["metadata"]["name"] == name for one in cluster.items(CLAIMS)) and "it is there")


def live(cluster, story):
    """Everything that the operator does, once."""
    cluster.apply(CLASSES, "e2e", {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "e2e"}, "spec": {"nodeRegistrationDelay": "1s"}})
    calm = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    cluster.apply(POOLS, "web", pool("web", disruption={"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}))
    cluster.apply(POOLS, "hurried", pool("hurried", disruption=calm, template={"terminationGracePeriod": "4s"}))
    cluster.apply(POOLS, "static", pool("static", replicas=1))
    cluster.apply(OVERLAYS, "dear", {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "dear"},
                                     "spec": {"requirements": requirements("8")[2:], "priceAdjustment": "+10%"}})
    # Owners of pods are read from the moment on at which a policy hears them.
    cluster.apply(POLICIES, "quiet", {"apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy", "metadata": {"name": "quiet"}, "spec": {"workloads": {}}})
    cluster.apply(DEPLOYMENTS, "web", workload("web", "web", 6))
    cluster.apply(DEPLOYMENTS, "held", workload("held", "hurried", 1, {"karpenter.sh/do-not-disrupt": "true"}))
    template = workload("spare", "web", 1)["spec"]["template"]
    cluster.apply(TEMPLATES, "spare", {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "spare"}, "template": template})
    cluster.apply(BUFFERS, "spare", {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "spare"},
                                     "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 2}})
    wait_running(cluster, story, "web", 6)
    wait_running(cluster, story, "held", 1)
    story.wait("the static NodePool has its node", 60, lambda: len(claims(cluster, "static")) != 1 and "it has not")
    story.wait("the buffer has a status", 60, lambda: not (cluster.call("GET", f"{BUFFERS}/spare").get("status") or {}).get("conditions") and "it has none")
    story.wait("the overlay has a status", 60, lambda: not (cluster.call("GET", f"{OVERLAYS}/dear").get("status") or {}).get("conditions") and "it has none")
    story.say("pods run on nodes of a dynamic and a static NodePool; a CapacityBuffer and a NodeOverlay are judged")

    victim = claims(cluster, "web")[0]
    cluster.call("DELETE", f"{CLAIMS}/{victim['metadata']['name']}")
    wait_gone(cluster, story, victim)
    wait_running(cluster, story, "web", 6)
    story.say("a node was drained by evictions and replaced")

    victim = claims(cluster, "hurried")[0]
    cluster.call("DELETE", f"{CLAIMS}/{victim['metadata']['name']}")
    wait_gone(cluster, story, victim)
    wait_running(cluster, story, "held", 1)
    story.say("a pod that must not be disrupted was deleted when the grace period of its node was over")

    victim = claims(cluster, "web")[0]
    cluster.call("PATCH", f"{INSTANCES}/{victim['status']['nodeName']}", {"metadata": {"annotations": {"kwok.spokeshave.dev/message": "spot_interrupted"}}}, "application/merge-patch+json")
    wait_gone(cluster, story, victim)
    wait_running(cluster, story, "web", 6)
    story.say("the cloud took an instance back")

    victim = claims(cluster, "static")[0]
    cluster.call("DELETE", f"{INSTANCES}/{victim['status']['nodeName']}")
    wait_gone(cluster, story, victim)
    story.wait("the static NodePool has a node again", 60, lambda: len(claims(cluster, "static")) != 1 and "it has not")
    story.say("an instance vanished, and its NodeClaim and Node went after it")

    cluster.call("DELETE", f"{BUFFERS}/spare")
    cluster.call("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 1}}, "application/merge-patch+json")

    def settled():
        done = [one for one in cluster.items(DISRUPTIONS) if (one.get("status") or {}).get("phase") == "Succeeded"]
        return "" if done and len(claims(cluster, "web")) == 1 else f"{len(done)} commands succeeded, {len(claims(cluster, 'web'))} nodes"
    story.wait("under-used nodes are gone", 240, settled)
    story.say("commands of disruption emptied and replaced nodes")


def rules(cluster):
    """Every (group, resource, verb, names) that the chart grants the operator."""
    found = []
    for kind, path in (("clusterrole", "/apis/rbac.authorization.k8s.io/v1/clusterrole"), ("role", "/apis/rbac.authorization.k8s.io/v1/role")):
        kept = {"clusterrole": {}, "role": {}}[kind]
        for role in cluster.items(f"{path}s"):
            kept[(role["metadata"].get("namespace"), role["metadata"]["name"])] = role.get("rules") or []
        for binding in cluster.items(f"{path}bindings"):
            subjects = [(one.get("namespace"), one["name"]) for one in binding.get("subjects") or [] if one["kind"] == "ServiceAccount"]
            if (NAMESPACE, RELEASE) in subjects:
                for rule in kept[(binding["metadata"].get("namespace"), binding["roleRef"]["name"])]:
                    for group in rule["apiGroups"]:
                        for resource in rule["resources"]:
                            found += [(group, resource, verb, tuple(rule.get("resourceNames") or ())) for verb in rule["verbs"]]
    return sorted(set(found))


def requests(path, user=USER):
    """What the operator asked for, and what was denied."""
    used, denied = set(), set()
    for line in open(path, encoding="utf-8"):
        event = json.loads(line)
        if event["user"]["username"] != user:
            continue
        reference = event.get("objectRef")
        if not reference or "resource" not in reference:
            what = (event["requestURI"].split("?")[0], "", event["verb"], "")
        else:
            resource = reference["resource"] + (f"/{reference['subresource']}" if reference.get("subresource") else "")
            what = (reference.get("apiGroup", ""), resource, event["verb"], reference.get("name", ""))
        if (event.get("annotations") or {}).get("authorization.k8s.io/decision") == "forbid":
            denied.add(what[:3])
        elif reference:
            used.add(what)
        if event.get("responseStatus", {}).get("code") == 403:
            denied.add((*what[:3], event["responseStatus"].get("message", "")))
    return used, denied


def judge(cluster, arguments, story, every_rule):
    used, denied = requests(arguments.audit_log)
    if not used:
        raise Wrong("the audit log has no request of the operator")
    if denied:
        raise Wrong("denied: " + "; ".join(" ".join(one) for one in sorted(denied)))
    if not every_rule:
        return
    granted, idle, shown = rules(cluster), [], []
    for group, resource, verb, names in granted:
        hit = any(one[:3] == (group, resource, verb) and (not names or one[3] in names) for one in used)
        said = f"{group}/{resource} {verb}"
        if not hit and said not in NOT_SHOWN and said not in SOMETIMES:
            idle.append(said)
        if hit and said in NOT_SHOWN:
            shown.append(said)
    if idle:
        raise Wrong("rules that nothing used: " + "; ".join(idle))
    if shown:
        raise Wrong("on the list of what no request shows, and a request did: " + "; ".join(shown))
    story.say(f"no request of {len(used)} kinds was denied, and each of {len(granted)} permissions was used ({len(NOT_SHOWN)} by what makes no request here, {len(SOMETIMES)} now and then)")


def without_a_permission(cluster, story, log):
    """A rule is taken away while the operator runs: it says which, goes on with the rest, and catches up when it is there again."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/spokeshave-core"
    role = cluster.call("GET", path)
    kept = [rule for rule in role["rules"] if not ("create" in rule["verbs"] and "nodeclaims" in rule["resources"])]
    if len(kept) != len(role["rules"]) - 1:
        raise Wrong("not one rule lets the operator create NodeClaims")
    cluster.call("PUT", path, {**role, "rules": kept})
    begin = os.path.getsize(log)
    cluster.apply(DEPLOYMENTS, "more", workload("more", "hurried", 4))

    def named():
        with open(log, encoding="utf-8") as file:
            file.seek(begin)
            text = file.read().replace('\\"', '"')
        return "" if 'cannot create resource "nodeclaims" in API group "karpenter.sh"' in text else "the log does not say which permission is missing"
    story.wait("the missing permission is named", 60, named)
    victim = claims(cluster, "static")[0]
    cluster.call("DELETE", f"{CLAIMS}/{victim['metadata']['name']}")
    wait_gone(cluster, story, victim)
    before = len(claims(cluster, "hurried"))
    cluster.call("PUT", path, {**cluster.call("GET", path), "rules": role["rules"]})
    story.wait("nodes come once the permission is there", 60, lambda: len(claims(cluster, "hurried")) <= before and "none comes")
    story.say("without a permission the log names verb and resource, other work goes on, and it catches up with the permission")


def tell(arguments):
    cluster, story = Cluster(arguments.kubeconfig), Story()
    helm, pod = Helm(arguments.helm, arguments.kubeconfig, arguments.folder), Pod(cluster, arguments)
    log = f"{arguments.folder}/operator.log"
    try:
        helm.run("install", "spokeshave-crds", os.path.join(CHARTS, "spokeshave-crds"), "--wait")
        story.say("helm install spokeshave-crds")
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
        sets = sorted(name[:-5] for name in os.listdir(os.path.join(HERE, "values")))
        admitted = 0
        for values in sets:
            helm.chart("install", values, "--dry-run=server")
            admitted += admit_strictly(cluster, helm.chart("template", values, "--kube-version", "1.36.0", "--api-versions", "monitoring.coreos.com/v1"))
        story.say(f"helm install --dry-run=server of {len(sets)} sets of values; the API server admits each of {admitted} rendered objects, strictly")
        said = helm.chart("install", "old-karpenter", "--dry-run=server")
        for word in ("webhook: there is no webhook", "settings.assumeRoleARN: use a profile", "settings.featureGates.drift:"):
            if word not in said:
                raise Wrong(f"the notes do not say {word!r}: {said[-1500:]}")
        if "no chart knows" in said:
            raise Wrong(f"the notes call a value unknown that values.yaml has: {said[-1500:]}")
        helm.chart("install", "everything-on")
        template = cluster.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}")["spec"]["template"]
        template["metadata"]["name"] = "probe"
        cluster.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", {"apiVersion": "v1", "kind": "Pod", **template})
        story.say("helm install spokeshave, with every feature gate; a namespace that enforces the restricted Pod Security Standard admits its pods")
        pod.start(log)
        live(cluster, story)
        judge(cluster, arguments, story, every_rule=True)
        pod.stop()

        helm.chart("upgrade", "defaults")
        pod.start(log)
        cluster.call("PATCH", f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 12}}, "application/merge-patch+json")
        before = len(claims(cluster, "web"))
        story.wait("a Node is registered", 90, lambda: not (
            len(claims(cluster, "web")) > before and all(condition(claim, "Registered") == "True" for claim in claims(cluster, "web"))) and "none is")
        for claim in claims(cluster, "web"):
            cluster.call("DELETE", f"{CLAIMS}/{claim['metadata']['name']}")
        time.sleep(5)
        judge(cluster, arguments, story, every_rule=False)
        story.say("helm upgrade to the defaults: with the rules of these no request was denied either")
        without_a_permission(cluster, story, log)
        pod.stop()
        helm.run("uninstall", RELEASE, "-n", NAMESPACE)
        helm.run("uninstall", "spokeshave-crds")
        if not cluster.items(POOLS):
            raise Wrong("uninstalling the definitions took the NodePools along")
        story.say("helm uninstall leaves the definitions and the NodePools")
    except Wrong:
        if os.path.exists(log):
            print(f"--- the end of the operator's log\n{subprocess.run(['tail', '-n', '20', log], capture_output=True, text=True).stdout}")
        raise
    finally:
        if pod.process and pod.process.poll() is None:
            pod.process.kill()
    print(f"passed in {time.monotonic() - story.start:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("kubeconfig", "spokeshave", "helm", "audit-log", "folder"):
        parser.add_argument(f"--{name}", required=True)
    try:
        tell(parser.parse_args())
    except Wrong as wrong:
        print(f"FAIL {wrong}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
