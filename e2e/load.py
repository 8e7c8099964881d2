#!/usr/bin/env python3
"""Creates nodes and pods through the API of a running server, several connections at a time, and tells how long it took and how large the
server's process is then.

    load.py KUBECONFIG PROCESS-ID [NODES [PODS]]

Needs nothing but Python 3.9 or later, and Linux for the size.
"""

import concurrent.futures
import http.client
import json
import sys
import threading
import time

from apiserver import Server

CONNECTIONS = 8


class Connections:
    """One kept connection a thread."""

    def __init__(self, server):
        self.server, self.local = server, threading.local()

    def post(self, path, body):
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self.server.host, self.server.port, context=self.server.context, timeout=60)
            self.local.connection = connection
        headers = {"Content-Type": "application/json", "User-Agent": "load/1", "Authorization": f"Bearer {self.server.token}"}
        connection.request("POST", path, body=json.dumps(body), headers=headers)
        response = connection.getresponse()
        answer = response.read()
        if response.status != 201:
            sys.exit(f"POST {path}: {response.status} {answer[:400]!r}")


def node(index):
    name = f"node-{index:04}"
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": f"zone-{index % 3}",
              "node.kubernetes.io/instance-type": "c-8x-amd64-linux", "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot"}
    amounts = {"cpu": "8", "memory": "16Gi", "ephemeral-storage": "20Gi", "pods": "110"}
    conditions = [{"type": kind, "status": "False", "reason": f"No{kind}", "message": "as it should be"} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")]
    conditions.append({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"})
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions,
              "addresses": [{"type": "InternalIP", "address": f"10.{index >> 8}.{index & 255}.1"}, {"type": "Hostname", "address": name}]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"providerID": f"kwok://{name}"}, "status": status}


def pod(index, nodes):
    labels = {"app": "web", "pod-template-hash": "6b7c8d9f54", "app.kubernetes.io/part-of": "shop"}
    container = {
        "name": "web", "image": "registry.example.com/shop/web:1.2.3", "ports": [{"containerPort": 8080, "name": "http"}],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
        "env": [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
    }
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "web"}}}
    spec = {"nodeName": f"node-{index % nodes:04}", "containers": [container], "topologySpreadConstraints": [spread]}
    return {"metadata": {"name": f"web-{index:05}", "labels": labels}, "spec": spec}


def resident_mib(process):
    with open(f"/proc/{process}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    kubeconfig, process = sys.argv[1], int(sys.argv[2])
    nodes, pods = (int(argument) for argument in (sys.argv[3:] + ["1000", "10000"][len(sys.argv) - 3 :]))
    connections = Connections(Server(kubeconfig, "load/1"))
    print(f"before: {resident_mib(process):.0f} MiB")
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        for what, path, count, make in (
            ("nodes", "/api/v1/nodes", nodes, node),
            ("pods", "/api/v1/namespaces/default/pods", pods, lambda index: pod(index, nodes)),
        ):
            started = time.monotonic()
            list(pool.map(lambda index: connections.post(path, make(index)), range(count)))
            print(f"{count} {what} created in {time.monotonic() - started:.1f} s: {resident_mib(process):.0f} MiB")
    time.sleep(5)
    print(f"5 s later: {resident_mib(process):.0f} MiB")


if __name__ == "__main__":
    main()
