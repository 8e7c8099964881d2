#!/usr/bin/env python3
"""How much memory an operator of its own takes that watches a large cluster and judges every node of it.

    operator_memory.py SPOKESHAVE CATALOGUE [NODES [PODS [TYPES]]]

SPOKESHAVE is the binary; CATALOGUE a file of instance types in the format of the kwok provider, whose types are repeated under other names until
there are as many as wanted. Everything is bound and ready when the operator starts; budgets allow nothing, so that it judges and moves nothing.
Needs nothing but Python 3.9 or later, and Linux for the size.
"""

import concurrent.futures
import copy
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

from apiserver import Server
from load import CONNECTIONS, node, pod, resident_mib

POOL = {
    "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
    "spec": {"template": {"spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                                   "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}], "expireAfter": "Never"}},
             "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "0"}]}},
}
CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}, "spec": {}}


class Connections:
    """One kept connection a thread."""

    def __init__(self, server):
        self.server, self.local = server, threading.local()

    def send(self, method, path, body):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self.server.host, self.server.port, context=self.server.context, timeout=120)
            self.local.connection = connection
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind, "User-Agent": "load/1", "Authorization": f"Bearer {self.server.token}"}
        connection.request(method, path, body=body and json.dumps(body), headers=headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status not in (200, 201):
            sys.exit(f"{method} {path}: {response.status} {answer[:400]!r}")
        return json.loads(answer)


def claim(index):
    name = f"node-{index:04}"
    labels = {key: value for key, value in managed(index)["metadata"]["labels"].items() if not key.endswith("ed")}
    spec = {"nodeClassRef": POOL["spec"]["template"]["spec"]["nodeClassRef"], "requirements": [], "expireAfter": "Never"}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "labels": labels}, "spec": spec}


def claim_status(index):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 600))
    kinds = ("Launched", "Registered", "Initialized", "Ready", "Consolidatable")
    conditions = [{"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now} for kind in kinds]
    status = node(index)["status"]
    return {"status": {"providerID": f"kwok://node-{index:04}", "nodeName": f"node-{index:04}", "conditions": conditions,
                       "capacity": status["capacity"], "allocatable": status["allocatable"]}}


def instance(index, uid):
    status = node(index)["status"]
    labels = managed(index)["metadata"]["labels"]
    name = f"node-{index:04}"
    spec = {"nodeName": name, "nodeClaimName": name, "nodeClaimUID": uid, "nodePool": "default", "labels": labels,
            "instanceType": labels["node.kubernetes.io/instance-type"], "zone": labels["topology.kubernetes.io/zone"],
            "capacityType": labels["karpenter.sh/capacity-type"], "price": "0.1", "capacity": status["capacity"],
            "allocatable": status["allocatable"], "registrationDelay": "0s"}
    return {"apiVersion": "kwok.spokeshave.dev/v1alpha1", "kind": "KWOKInstance", "metadata": {"name": name}, "spec": spec}


def managed(index):
    made = node(index)
    made["metadata"]["labels"].update({"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", "topology.kubernetes.io/zone": f"test-zone-{'abc'[index % 3]}"})
    # Whose Node it is: the provider would take it for a stranger's.
    made["metadata"]["annotations"] = {"kwok.spokeshave.dev/instance": made["metadata"]["name"]}
    return made


def catalogue(path, count):
    with open(path, encoding="utf-8") as file:
        known = json.load(file)
    types = []
    while len(types) < count:
        for one in known[: count - len(types)]:
            copied = copy.deepcopy(one)
            if len(types) >= len(known):
                copied["name"] = f"{one['name']}-{len(types) // len(known)}"
            types.append(copied)
    return types


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    binary, path = sys.argv[1], sys.argv[2]
    nodes, pods, types = (int(argument) for argument in (sys.argv[3:] + ["5000", "75000", "800"][len(sys.argv) - 3 :]))
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, catalogue_file = os.path.join(folder, "kubeconfig"), os.path.join(folder, "types.json")
        with open(catalogue_file, "w", encoding="utf-8") as file:
            json.dump(catalogue(path, types), file)
        log = open(os.path.join(folder, "up.log"), "w", encoding="utf-8")
        server = subprocess.Popen([binary, "up", "--bare", "--no-operator", "--kubeconfig", kubeconfig, "--catalog", catalogue_file], stdout=log, stderr=log)
        try:
            while not os.path.exists(kubeconfig):
                time.sleep(0.2)
            measure(binary, kubeconfig, catalogue_file, nodes, pods, types)
        finally:
            server.terminate()
            server.wait()


def measure(binary, kubeconfig, catalogue_file, nodes, pods, types):
    to = Connections(Server(kubeconfig, "load/1"))
    to.send("POST", "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", CLASS)
    to.send("POST", "/apis/karpenter.sh/v1/nodepools", POOL)
    claims, instances = "/apis/karpenter.sh/v1/nodeclaims", "/apis/kwok.spokeshave.dev/v1alpha1/kwokinstances"

    def launched(index):
        uid = to.send("POST", claims, claim(index))["metadata"]["uid"]
        to.send("PATCH", f"{claims}/node-{index:04}/status", claim_status(index))
        to.send("POST", instances, instance(index, uid))

    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        for what, count, make in (
            ("nodes", nodes, lambda index: to.send("POST", "/api/v1/nodes", managed(index))),
            ("nodeclaims", nodes, launched),
            ("pods", pods, lambda index: to.send("POST", "/api/v1/namespaces/default/pods", pod(index, nodes))),
        ):
            started = time.monotonic()
            list(pool.map(make, range(count)))
            print(f"{count} {what} in {time.monotonic() - started:.1f} s", flush=True)
    environment = {**os.environ, "KUBECONFIG": kubeconfig, "INSTANCE_TYPES_FILE_PATH": catalogue_file, "METRICS_PORT": "0", "HEALTH_PROBE_PORT": "0",
                   "DISABLE_LEADER_ELECTION": "true", "LOG_LEVEL": "error"}
    log = open(kubeconfig + ".operator.log", "w", encoding="utf-8")
    operator = subprocess.Popen([binary, "operator", "--cloud-provider", "kwok"], env=environment, stdout=log, stderr=log)
    try:
        most = 0
        for second in range(180):
            time.sleep(1)
            if operator.poll() is not None:
                sys.exit(open(kubeconfig + ".operator.log", encoding="utf-8").read()[-2000:])
            most = max(most, resident_mib(operator.pid))
            if second % 30 == 29:
                print(f"after {second + 1} s: {resident_mib(operator.pid):.0f} MiB, at most {most:.0f} MiB", flush=True)
        for path in ("/api/v1/nodes", claims, "/api/v1/pods"):
            left = to.send("GET", f"{path}?limit=1", None)["metadata"]
            print(f"{left.get('remainingItemCount', 0) + 1} left of {path}")
        print(f"{nodes} nodes, {pods} pods, {types} types: at most {most:.0f} MiB")
    finally:
        operator.terminate()
        operator.wait()


if __name__ == "__main__":
    main()
