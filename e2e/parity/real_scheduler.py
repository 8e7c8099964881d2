#!/usr/bin/env python3
"""Asks the genuine kube-scheduler whether Spokeshave's plans hold.

For each generated world: its nodes and bound pods are created on a genuine control plane, then the nodes that
`spokeshave plan` would launch, with the DaemonSets' pods on them, then the pods that the plan finds a place for. Each pod
names the node it was planned for as its nominated node, so that the scheduler tries that one first; with --free it chooses
by itself, under the profile that --profile names. Every such pod must be bound in the end. See e2e/README.md.
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import worlds  # noqa: E402
from apiserver import Server  # noqa: E402
from oracle import controlplane, oracle  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
CORE = "/api/v1"
PODS = f"{CORE}/namespaces/default/pods"
STORAGE = "/apis/storage.k8s.io/v1"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
# What the DaemonSet controller lets its pods tolerate.
DAEMON_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists"}
    for condition in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
]


class Cluster:
    """Requests that must succeed."""

    def __init__(self, kubeconfig):
        self.server = Server(kubeconfig, "real-scheduler")
        # Constraints of a profile select what the owner of a pod selects.
        self.keeps_owners = False

    def call(self, method, path, body=None, content_type="application/json", accepted=(200, 201, 202)):
        data = json.dumps(body).encode() if body is not None else None
        status, _, raw = self.server.send(method, path, data, content_type if data else None)
        if status not in accepted:
            raise RuntimeError(f"{method} {path}: {status} {raw.decode('utf-8', 'replace')[:600]}")
        return json.loads(raw) if raw else {}

    def create(self, path, thing):
        thing = copy.deepcopy(thing)
        for field in ("uid", "creationTimestamp", "resourceVersion"):
            thing["metadata"].pop(field, None)
        # Admission learns of a new PriorityClass or RuntimeClass a moment after it was created.
        for _ in range(50):
            try:
                return self.call("POST", path, thing)
            except RuntimeError as error:
                if "Class" not in str(error) or ": 403 " not in str(error):
                    raise
                time.sleep(0.1)
        return self.call("POST", path, thing)

    def patch(self, path, change):
        return self.call("PATCH", path, change, "application/merge-patch+json")

    def clear(self):
        """Takes everything of the last world away."""
        now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for path in (PODS, REPLICA_SETS, f"{CORE}/namespaces/default/persistentvolumeclaims", f"{CORE}/persistentvolumes"):
            self.call("DELETE", path, now)
            for thing in self.call("GET", path)["items"]:
                if thing["metadata"].get("finalizers"):
                    self.patch(f"{path}/{thing['metadata']['name']}", {"metadata": {"finalizers": None}})
        for path in (f"{CORE}/nodes", f"{STORAGE}/storageclasses", f"{STORAGE}/csinodes"):
            self.call("DELETE", path, now)
        for thing in self.call("GET", PRIORITIES)["items"]:
            if thing["metadata"]["name"].startswith("priority-"):
                self.call("DELETE", f"{PRIORITIES}/{thing['metadata']['name']}")


def pod_of(source, cluster, known_classes):
    """A pod of the dump as a new one: priorities and overhead need a class."""
    pod = copy.deepcopy(source)
    pod.pop("status", None)
    if not cluster.keeps_owners:
        pod["metadata"].pop("ownerReferences", None)
    priority = pod["spec"].pop("priority", None)
    if priority is not None:
        name = f"priority-{priority}".replace("--", "-minus-")
        if name not in known_classes:
            known_classes.add(name)
            cluster.create(PRIORITIES, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": priority})
        pod["spec"]["priorityClassName"] = name
    overhead = pod["spec"].get("overhead")
    if overhead:
        # Overhead comes from a RuntimeClass, and must be the same.
        name = "overhead-" + "-".join(f"{key}-{value.lower()}" for key, value in sorted(overhead.items()))
        if name not in known_classes:
            known_classes.add(name)
            body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "runc", "overhead": {"podFixed": overhead}}
            cluster.call("POST", RUNTIMES, body, accepted=(201, 409))
        pod["spec"]["runtimeClassName"] = name
    return pod


def ready(cluster, node):
    """Creates a node, and takes the taint away that admission gave it."""
    node = copy.deepcopy(node)
    status, taints = node.pop("status", {}), node.get("spec", {}).get("taints", [])
    name = node["metadata"]["name"]
    node["metadata"].pop("finalizers", None)
    node["metadata"].pop("ownerReferences", None)
    cluster.create(f"{CORE}/nodes", node)
    cluster.patch(f"{CORE}/nodes/{name}", {"spec": {"taints": taints or None}})
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": worlds.EPOCH, "lastHeartbeatTime": worlds.EPOCH}
    amounts = {field: status.get(field) for field in ("capacity", "allocatable")}
    cluster.patch(f"{CORE}/nodes/{name}/status", {"status": {**amounts, "conditions": [condition]}})


def single(requirements):
    """The labels that requirements leave no choice about."""
    return {r["key"]: r["values"][0] for r in requirements if r["operator"] == "In" and len(r.get("values", [])) == 1}


def milli(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(float(quantity) * 1000)


def mebibytes(quantity):
    units = {"Ti": 1 << 20, "Gi": 1 << 10, "Mi": 1}
    for unit, factor in units.items():
        if quantity.endswith(unit):
            return int(float(quantity[: -len(unit)]) * factor)
    raise ValueError(f"unit of {quantity}")


def planned_node(name, claim, pool, types):
    """The node that a planned NodeClaim becomes when it is launched at its cheapest."""
    cheapest = claim["cheapest"]
    machine = types[cheapest["instanceType"]]
    template = pool["spec"]["template"]
    resources = machine["resources"]
    labels = {
        **template["metadata"].get("labels", {}),
        **single(template["spec"]["requirements"]),
        "karpenter.sh/nodepool": pool["metadata"]["name"],
        worlds.TYPE: machine["name"],
        worlds.ARCH: machine["architecture"],
        "kubernetes.io/os": machine["operatingSystems"][0],
        worlds.ZONE: cheapest["zone"],
        worlds.CAPACITY: cheapest["capacityType"],
        worlds.HOST: name,
        worlds.CPU: resources["cpu"],
        worlds.SIZE: resources["cpu"],
        worlds.FAMILY: machine["name"].split("-")[0],
        "karpenter.kwok.sh/instance-memory": resources["memory"],
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
    }
    allocatable = {
        **resources,
        "cpu": f"{milli(resources['cpu']) - 100}m",
        "memory": f"{mebibytes(resources['memory']) - 10}Mi",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": template["spec"].get("taints", [])},
        "status": {"capacity": resources, "allocatable": allocatable},
    }


def tolerates(pod_spec, taint):
    for toleration in pod_spec.get("tolerations", []):
        key = toleration.get("key")
        if key not in (None, "", taint["key"]) or toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""):
            return True
    return taint["effect"] == "PreferNoSchedule"


def daemon_pods(world, node):
    """What the DaemonSet controller and the scheduler would put on a new node."""
    for daemon in world.of("DaemonSet"):
        template = copy.deepcopy(daemon["spec"]["template"])
        spec = template["spec"]
        selector = spec.get("nodeSelector", {})
        fits = all(node["metadata"]["labels"].get(key) == value for key, value in selector.items())
        if fits and all(tolerates(spec, taint) for taint in node["spec"]["taints"]):
            spec["tolerations"] = spec.get("tolerations", []) + DAEMON_TOLERATIONS
            spec["nodeName"] = node["metadata"]["name"]
            name = f"{daemon['metadata']['name']}-{node['metadata']['name']}"
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": template["metadata"]["labels"]}, "spec": spec}


def provision_volumes(cluster, world):
    """Plays the external provisioner: a volume where the scheduler wants one."""
    zones = {node["metadata"]["name"]: node["metadata"]["labels"].get(worlds.ZONE) for node in cluster.call("GET", f"{CORE}/nodes")["items"]}
    for claim in cluster.call("GET", f"{CORE}/namespaces/default/persistentvolumeclaims")["items"]:
        meta = claim["metadata"]
        chosen = meta.get("annotations", {}).get("volume.kubernetes.io/selected-node")
        if not chosen or claim["spec"].get("volumeName"):
            continue
        name = f"volume-{meta['name']}"
        term = {"matchExpressions": [{"key": worlds.ZONE, "operator": "In", "values": [zones[chosen]]}]}
        spec = {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": claim["spec"]["storageClassName"],
            "csi": {"driver": "disk.example", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": meta["name"], "uid": meta["uid"]},
        }
        cluster.create(f"{CORE}/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec})
        cluster.patch(f"{CORE}/persistentvolumes/{name}/status", {"status": {"phase": "Bound"}})
        path = f"{CORE}/namespaces/default/persistentvolumeclaims/{meta['name']}"
        bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
        cluster.patch(path, {"metadata": {"annotations": bound}, "spec": {"volumeName": name}})
        cluster.patch(f"{path}/status", {"status": {"phase": "Bound"}})


def build(cluster, world, plan, types, free):
    """Creates everything; the result says on which node each pod was planned."""
    pools = {pool["metadata"]["name"]: pool for pool in world.of("NodePool")}
    classes = set()
    for kind, path in (
        ("StorageClass", f"{STORAGE}/storageclasses"),
        ("PersistentVolume", f"{CORE}/persistentvolumes"),
        ("PersistentVolumeClaim", f"{CORE}/namespaces/default/persistentvolumeclaims"),
        ("CSINode", f"{STORAGE}/csinodes"),
        ("ReplicaSet", REPLICA_SETS),
    ):
        for thing in world.of(kind):
            cluster.create(path, thing)
    for node in world.of("Node"):
        ready(cluster, node)
    bound = [pod for pod in world.of("Pod") if pod["spec"].get("nodeName")]
    for pod in bound:
        cluster.create(PODS, pod_of(pod, cluster, classes))
    planned = {pod: entry["node"] for entry in plan["existingNodes"] for pod in entry["pods"]}
    for number, claim in enumerate(plan["nodeClaims"]):
        node = planned_node(f"planned-{number:04d}", claim, pools[claim["nodePool"]], types)
        ready(cluster, node)
        for daemon in daemon_pods(world, node):
            cluster.create(PODS, daemon)
        planned.update({pod: node["metadata"]["name"] for pod in claim["pods"]})
    sources = {f"default/{pod['metadata']['name']}": pod for pod in world.of("Pod")}
    # In the order in which they were planned, largest first (P-080): gated until each knows its node.
    for key in sorted(planned, key=lambda key: planning_order(sources[key])):
        pod = pod_of(sources[key], cluster, classes)
        if not free:
            pod["spec"]["schedulingGates"] = [{"name": "spokeshave.dev/planned"}]
        cluster.create(PODS, pod)
        if not free:
            path = f"{PODS}/{pod['metadata']['name']}"
            cluster.patch(f"{path}/status", {"status": {"nominatedNodeName": planned[key]}})
            cluster.patch(path, {"spec": {"schedulingGates": None}})
    return planned


def planning_order(pod):
    """Largest first: by what the containers of a pod ask for, then by age and UID."""
    requests = [container.get("resources", {}).get("requests", {}) for container in pod["spec"]["containers"]]
    cpu = sum(milli(one.get("cpu", "0")) for one in requests)
    memory = sum(mebibytes(one.get("memory", "0Mi")) for one in requests)
    meta = pod["metadata"]
    return -cpu, -memory, meta.get("creationTimestamp", ""), meta.get("uid", "")


def settle(cluster, world, planned, seconds):
    """Waits until every planned pod is bound, or nothing has happened for a while."""
    has_volumes = bool(world.of("PersistentVolumeClaim"))
    quiet_since, before = time.monotonic(), -1
    while True:
        if has_volumes:
            provision_volumes(cluster, world)
        pods = {f"default/{pod['metadata']['name']}": pod for pod in cluster.call("GET", PODS)["items"]}
        places = {key: pods[key]["spec"].get("nodeName") for key in planned if key in pods}
        count = sum(1 for place in places.values() if place)
        if count == len(planned):
            return places, pods
        if count != before:
            quiet_since, before = time.monotonic(), count
        if time.monotonic() - quiet_since > seconds:
            return places, pods
        time.sleep(0.2)


def add_owners(world):
    """The ReplicaSets that pods name as their owners."""
    owners = {owner["name"]: owner["uid"] for pod in world.of("Pod") for owner in pod["metadata"].get("ownerReferences", []) if owner["kind"] == "ReplicaSet"}
    for name, uid in sorted(owners.items()):
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "app"}]}}
        world.add("ReplicaSet", "apps/v1", name, "default", metadata={"uid": uid}, spec={"selector": {"matchLabels": labels}, "template": template})


def as_planned_but_for_names(planned, places, pods):
    """Pods that are where a pod with the same specification was planned: which of two replicas is where makes no difference."""
    def kinds(where):
        shapes = Counter()
        for key, node in where.items():
            if node and key in pods:
                spec = {name: value for name, value in pods[key]["spec"].items() if name not in ("nodeName", "volumes")}
                for container in spec["containers"]:
                    container.pop("volumeMounts", None)
                labels = pods[key]["metadata"].get("labels")
                shapes[json.dumps([node, spec, labels], sort_keys=True)] += 1
        return shapes

    return sum((kinds(planned) & kinds(places)).values())


def why(pod):
    conditions = (pod.get("status") or {}).get("conditions", [])
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "no message yet")


def scoring(strategy):
    """Settings of the plugin that scores nodes by what is requested of them."""
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    return [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": strategy, "resources": resources}}}]


# What pods without topology spread get under the profile `spread`; the plan is told of it by --scheduler-config.
SPREAD = [
    {"maxSkew": 1, "topologyKey": worlds.ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 1, "topologyKey": worlds.HOST, "whenUnsatisfiable": "ScheduleAnyway"},
]

# Profiles of the kube-scheduler: settings of plugins, and weights other than the usual ones.
PROFILES = {
    "LeastAllocated": (scoring("LeastAllocated"), {}),
    "MostAllocated": (scoring("MostAllocated"), {}),
    # As clusters are set up that mean to be full: nothing else speaks for an empty node.
    "MostAllocated-strong": (scoring("MostAllocated"), {"NodeResourcesFit": 10}),
    "spread": (
        [
            {
                "name": "PodTopologySpread",
                "args": {"defaultingType": "List", "defaultConstraints": SPREAD},
            }
        ],
        {},
    ),
}


def scheduler_configuration(profile, directory):
    """The configuration file of a profile, as the kube-scheduler reads it."""
    plugins, weights = PROFILES[profile]
    kubeconfig = Path(directory) / "cluster" / "pki" / "kube-scheduler.kubeconfig"
    multi_point = [{"name": name, "weight": weight} for name, weight in weights.items()]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": multi_point}}, "pluginConfig": plugins}],
    }


def start(binary, directory, profile=None, *flags):
    """A control plane of its own, that ends with this program."""
    command = [binary, "--dir", str(Path(directory) / "cluster"), "--kubeconfig", str(Path(directory) / "kubeconfig"), "--scheduler", "--exit-with-stdin", *flags]
    if profile:
        path = Path(directory) / "scheduler.json"
        path.write_text(json.dumps(scheduler_configuration(profile, directory)))
        command.append(f"--scheduler-arg=--config={path}")
    log = open(Path(directory) / "log", "wb")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    line = child.stdout.readline()
    if not line.startswith("ready"):
        sys.exit(f"the control plane did not start: {Path(directory, 'log').read_text()[-2000:]}")
    return child, line.split(maxsplit=1)[1].strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", default=os.environ.get("UPSTREAM_ORACLE"), help="generates the worlds [env: UPSTREAM_ORACLE]")
    parser.add_argument("--controlplane", default=os.environ.get("CONTROLPLANE_BINARY"), help="the genuine control plane [env: CONTROLPLANE_BINARY]")
    parser.add_argument("--spokeshave", default=os.environ.get("SPOKESHAVE", str(ROOT / "target/release/spokeshave")))
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--free", action="store_true", help="nominate no nodes: the scheduler chooses among all")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="how the kube-scheduler scores nodes [default: its own defaults]")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds without progress before a pod counts as refused")
    options = parser.parse_args()
    options.oracle, options.controlplane = oracle(options.oracle), controlplane(options.controlplane)
    catalog = json.loads(subprocess.run([options.oracle, "catalog"], check=True, capture_output=True, text=True).stdout)
    types = {machine["name"]: machine for machine in catalog}
    failed = pods_planned = pods_bound = as_planned = alike = launched = 0
    with tempfile.TemporaryDirectory() as directory:
        child, kubeconfig = start(options.controlplane, directory, options.profile)
        cluster = Cluster(kubeconfig)
        cluster.keeps_owners = options.profile == "spread"
        for seed in range(options.first, options.first + options.worlds):
            name, world = worlds.provisioning_world(options.oracle, seed, small=True)
            command = []
            if options.profile == "spread":
                add_owners(world)
                config = Path(directory) / "spread.json"
                config.write_text(json.dumps({"podTopologySpread": {"defaultConstraints": SPREAD}}))
                command = ["--scheduler-config", str(config)]
            path = str(Path(directory) / f"{name}.json")
            worlds.write(world, path)
            command = [options.spokeshave, "plan", "-f", path, "--now", worlds.NOW, "-o", "json", "--methods", "emptiness", *command]
            plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["provisioning"]
            planned = build(cluster, world, plan, types, options.free)
            places, pods = settle(cluster, world, planned, options.patience)
            # One that is gone was preempted by another, so that not both had a place.
            refused = [key for key in planned if not places.get(key)]
            pods_planned += len(planned)
            pods_bound += len(planned) - len(refused)
            as_planned += sum(1 for key, place in places.items() if place == planned[key])
            alike += as_planned_but_for_names(planned, places, pods)
            launched += len(plan["nodeClaims"])
            failed += bool(refused)
            print(
                f"{name}: {len(planned) - len(refused)} of {len(planned)} pods bound, {len(plan['nodeClaims'])} nodes launched, "
                f"{len(plan['existingNodes'])} used, {len(plan['unschedulable'])} pods not planned ({', '.join(sorted(set(world.traits)))})",
                flush=True,
            )
            for key in refused[:4]:
                print(f"  {key}, planned for {planned[key]}: {why(pods[key])[:300] if key in pods else 'it is gone'}")
            cluster.clear()
        child.stdin.close()
        child.wait(60)
    print(
        f"{options.worlds - failed} of {options.worlds} worlds: every planned pod was bound by the kube-scheduler; {pods_bound} pods, "
        f"{as_planned} of them where they were planned, {alike} where one just like them was; {launched} nodes launched"
    )
    # A world has two dozen pods that are planned on average.
    is_idle = pods_planned < options.worlds
    if is_idle:
        print(f"{pods_planned} pods were planned: the plans say next to nothing")
    sys.exit(1 if failed or is_idle else 0)


if __name__ == "__main__":
    main()
