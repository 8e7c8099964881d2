#!/usr/bin/env python3
"""Machines that are genuine kubelets, at a genuine control plane, launched by the shipped operator through a provider in a process of its own: they join, pods run on
them, the NodePool goes, the Nodes are drained and the processes end. Called by e2e/kubelet.sh; prints what it checked."""

import argparse
import os
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "../grpc")]
from processes import CLASSES, DEFINITIONS, START, definition, deployment, machines, node_pool, say, started, until  # noqa: E402
from scenario import CLAIMS, DEPLOYMENTS, NODES, POOLS, PODS, Cluster, Wrong  # noqa: E402

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
# A genuine kubelet takes its time to join and to say that pods run and end.
SECONDS = 120
LABELS = {"team": "e2e"}
APART = {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]}


def children(pids):
    """Processes of these sessions."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            session = int(open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[3])
        except (OSError, ValueError):
            continue
        if session in pids and started(int(name)):
            found.add(int(name))
    return found


def is_true(node, kind):
    return any(one["type"] == kind and one["status"] == "True" for one in (node.get("status") or {}).get("conditions") or [])


def story(cluster, state):
    until("the definition is served", lambda: cluster.items(CLASSES) == [] or True, SECONDS)
    cluster.apply(CLASSES, "default", {"apiVersion": "process.example/v1", "kind": "ProcessNodeClass", "metadata": {"name": "default"}, "spec": {"disk": 1}})
    cluster.apply(POOLS, "default", node_pool("600s", LABELS))
    cluster.apply(DEPLOYMENTS, "web", deployment(2, nodeSelector=LABELS, affinity={"podAntiAffinity": APART}, terminationGracePeriodSeconds=5))

    def ready():
        nodes = cluster.items(NODES)
        return nodes if len(nodes) == 2 and all(is_true(node, "Ready") for node in nodes) else None

    nodes = until("2 Nodes are ready", ready, SECONDS)
    info = nodes[0]["status"]["nodeInfo"]
    if not info["kubeletVersion"].startswith("v1.") or info["containerRuntimeVersion"] != "none://0.1.0":
        raise Wrong(f"no genuine kubelet: {info}")
    pids = machines(state)
    ids = {node["spec"]["providerID"] for node in nodes}
    if {int(one.split("///")[1].split("-")[0]) for one in ids} != pids:
        raise Wrong(f"Nodes {ids} for the processes {pids}")
    say(f"2 kubelets {info['kubeletVersion']} have joined and are ready; they are the processes {sorted(pids)}")

    def initialized():
        return all(is_true(claim, "Initialized") for claim in cluster.items(CLAIMS)) and len(cluster.items(CLAIMS)) == 2

    until("both NodeClaims are initialized", initialized, SECONDS)
    for node in cluster.items(NODES):
        labels, taints = node["metadata"]["labels"], [taint["key"] for taint in node["spec"].get("taints") or []]
        if labels.get("team") != "e2e" or labels.get("karpenter.sh/initialized") != "true" or "karpenter.sh/unregistered" in taints:
            raise Wrong(f"Node {node['metadata']['name']}: labels {labels}, taints {taints}")
    say("both NodeClaims are initialized: the kubelets' labels are there, and the taint of the start is gone")

    def running():
        pods = [pod for pod in cluster.items(PODS) if "deletionTimestamp" not in pod["metadata"]]
        return pods if len(pods) == 2 and all(is_true(pod, "Ready") and pod["status"].get("podIP") for pod in pods) else None

    pods = until("2 pods run", running, SECONDS)
    if {pod["spec"]["nodeName"] for pod in pods} != {node["metadata"]["name"] for node in nodes}:
        raise Wrong("the pods are not on the two Nodes")
    say("a pod runs on each, as its kubelet says")

    evicted = {pod["metadata"]["uid"] for pod in pods}
    cluster.call("DELETE", f"{POOLS}/default")
    until("the pods have left, which only their kubelets can say", lambda: not evicted & {pod["metadata"]["uid"] for pod in cluster.items(PODS)}, SECONDS)
    until("no NodeClaim and no Node is left", lambda: not cluster.items(CLAIMS) and not cluster.items(NODES), SECONDS)
    until("no process is left", lambda: not machines(state) and not children(pids), 30)
    say("the NodePool is deleted: the Nodes are drained, pods end within their grace period, the kubelets' processes end, nothing is left")


def end(process):
    """Ends a process that we have started and waits for it."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main():
    # An end by SIGTERM takes the machines along as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser()
    for name in ("spokeshave", "work", "venv"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    work = options.work
    kubeconfig, log_path, socket, state = f"{work}/kubeconfig", f"{work}/operator.log", f"{work}/provider.sock", f"{work}/instances"
    cluster, processes = Cluster(kubeconfig), []
    environment = {
        **os.environ, "PYTHONPATH": f"{work}/python", "MACHINES": f"{work}/machines", "MACHINE_KUBECONFIG": f"{work}/machines.kubeconfig",
    }
    try:
        with open(log_path, "wb") as log:
            for definitions in subprocess.run([options.spokeshave, "crds"], check=True, capture_output=True, text=True).stdout.split("\n---\n"):
                name = next(line.split()[-1] for line in definitions.splitlines() if line.startswith("  name: "))
                path = f"{DEFINITIONS}/{name}?fieldManager=e2e&force=true"
                cluster.call("PATCH", path, definitions.encode(), "application/apply-patch+yaml")
            cluster.apply(DEFINITIONS, "processnodeclasses.process.example", definition())
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "machines"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "machines"}],
            }
            cluster.apply(BINDINGS, "machines", binding)
            provider = [f"{options.venv}/bin/python", "-B", "examples/providers/python/provider.py", "--socket", socket, "--state", state]
            processes.append(subprocess.Popen([*provider, "--machine", f"{HERE}/machine.py"], env=environment, stdout=log, stderr=log))
            until("the provider serves", lambda: os.path.exists(socket), SECONDS)
            settings = {"METRICS_PORT": "0", "HEALTH_PROBE_PORT": "0", "DISABLE_LEADER_ELECTION": "true"}
            command = [options.spokeshave, "operator", "--cloud-provider", "grpc", "--provider-socket", socket, "--kubeconfig", kubeconfig]
            operator = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
            processes.append(operator)
            story(cluster, state)
            operator.terminate()
            if operator.wait(30) != 0:
                raise Wrong(f"the operator ended with {operator.returncode}")
    except Wrong as error:
        print("".join(open(log_path, errors="replace").readlines()[-30:]), file=sys.stderr)
        print(f"FAIL {error}", flush=True)
        sys.exit(1)
    finally:
        # The operator first: it would replace machines that end. Whoever called removes the folder as soon as this has returned.
        for process in reversed(processes):
            end(process)
        left = machines(state)
        for signal_ in (signal.SIGTERM, signal.SIGKILL):
            for pid in left:
                try:
                    os.killpg(pid, signal_)
                except ProcessLookupError:
                    pass
            limit = time.monotonic() + 15
            while children(left) and time.monotonic() < limit:
                time.sleep(0.1)
    print(f"passed in {time.monotonic() - START:.0f} s")


main()
