#!/usr/bin/env python3
"""The shipped operator with the provider in Python, whose instances are genuine processes: a Deployment comes, the provider is killed and comes back, the
Deployment goes, and no process is left. Nodes join as a kubelet would make them. Called by e2e/grpc.sh; prints what it checked."""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from scenario import CLAIMS, DEPLOYMENTS, NODES, POOLS, Cluster, Wrong  # noqa: E402
from processes import CLASSES, DEFINITIONS, START, definition, deployment, machines, node_pool, say, started, until  # noqa: E402


def join(cluster, stop):
    """For every instance a Node joins."""
    while not stop.wait(0.5):
        try:
            known = {node["spec"].get("providerID") for node in cluster.items(NODES)}
            for claim in cluster.items(CLAIMS):
                status = claim.get("status") or {}
                identity = status.get("providerID")
                if not identity or identity in known or "deletionTimestamp" in claim["metadata"]:
                    continue
                name = claim["metadata"]["name"]
                node = {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
                    "spec": {"providerID": identity, "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
                    "status": {"capacity": status.get("capacity"), "allocatable": status.get("allocatable")},
                }
                cluster.call("POST", NODES, node, accepted=(200, 201, 409))
        except (Wrong, OSError):
            continue


class Provider:
    """The provider in Python; machines outlive it."""

    def __init__(self, options):
        work = options.work
        self.socket, self.state = f"{work}/operator.sock", f"{work}/operator-machines"
        self.command = [f"{options.venv}/bin/python", "-B", "examples/providers/python/provider.py", "--socket", self.socket, "--state", self.state]
        self.environment = {**os.environ, "PYTHONPATH": f"{work}/python"}
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.environment)
        until("the provider serves", lambda: os.path.exists(self.socket))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def processes(self):
        return machines(self.state)


def story(cluster, provider):
    cluster.apply(DEFINITIONS, "processnodeclasses.process.example", definition())
    until("the definition is served", lambda: cluster.items(CLASSES) == [] or True)
    cluster.apply(CLASSES, "default", {"apiVersion": "process.example/v1", "kind": "ProcessNodeClass", "metadata": {"name": "default"}, "spec": {"disk": 1}})
    cluster.apply(POOLS, "default", node_pool("2s"))
    cluster.apply(DEPLOYMENTS, "web", deployment(4))

    def running(count):
        pods = [pod for pod in cluster.pods() if "deletionTimestamp" not in pod["metadata"]]
        return len(pods) == count and all(pod["status"].get("phase") == "Running" for pod in pods)

    until("4 pods run", lambda: running(4))
    first = provider.processes()
    claims = {claim["status"]["providerID"] for claim in cluster.items(CLAIMS)}
    if not first or len(first) != len(claims):
        raise Wrong(f"{len(first)} processes for the NodeClaims {claims}")
    say(f"4 pods run on {len(first)} nodes, each of which is a process: {sorted(first)}")

    provider.kill()
    cluster.apply(DEPLOYMENTS, "web", deployment(8))
    time.sleep(5)
    if provider.processes() != first or running(8):
        raise Wrong("something was launched although the provider is away")
    say("the provider is killed: its processes live on, nothing is launched")
    provider.start()
    until("8 pods run", lambda: running(8))
    if not first <= provider.processes():
        raise Wrong("a process was replaced although nothing was wrong with it")
    say(f"the provider is back: {len(provider.processes())} processes, the first are among them")

    victim = sorted(first)[0]
    os.kill(victim, signal.SIGKILL)
    # The kubelets of `up` live on without machines; a cloud's node controller deletes the Node of one that is gone.
    lost = [node for node in cluster.items(NODES) if f"/{victim}-" in node["spec"].get("providerID", "")]
    if len(lost) != 1:
        raise Wrong(f"{len(lost)} Nodes of process {victim}")
    cluster.call("DELETE", f"{NODES}/{lost[0]['metadata']['name']}")
    until("the NodeClaim of a process that was killed is gone, and all pods run", lambda: running(8) and victim not in provider.processes()
          and len(cluster.items(CLAIMS)) == len(provider.processes()), 240)
    say("a process is killed by hand and its Node deleted: the NodeClaim goes after it, the pods run elsewhere")

    ended = provider.processes()
    cluster.call("DELETE", f"{DEPLOYMENTS}/web")
    until("no process is left", lambda: not provider.processes(), 120)
    until("no NodeClaim is left", lambda: not cluster.items(CLAIMS), 60)
    if any(started(pid) for pid in ended | first):
        raise Wrong("a process is left")
    say("the Deployment is deleted: nodes are drained, processes end, nothing is left")


def main():
    parser = argparse.ArgumentParser()
    for name in ("spokeshave", "work", "proto", "venv"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    kubeconfig, log_path = f"{options.work}/kubeconfig", f"{options.work}/operator.log"
    stop, processes = threading.Event(), []
    provider = Provider(options)
    try:
        with open(log_path, "wb") as log:
            processes.append(subprocess.Popen([options.spokeshave, "up", "--bare", "--no-operator", "--kubeconfig", kubeconfig], stdout=log, stderr=log))
            until("the cluster answers", lambda: os.path.getsize(kubeconfig))
            provider.start()
            settings = {"METRICS_PORT": "0", "HEALTH_PROBE_PORT": "0"}
            command = [options.spokeshave, "operator", "--cloud-provider", "grpc", "--provider-socket", provider.socket, "--kubeconfig", kubeconfig]
            operator = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
            processes.append(operator)
            threading.Thread(target=join, args=(Cluster(kubeconfig), stop), daemon=True).start()
            story(Cluster(kubeconfig), provider)
            operator.terminate()
            if operator.wait(30) != 0:
                raise Wrong(f"the operator ended with {operator.returncode}")
    except Wrong as error:
        print("".join(open(log_path, errors="replace").readlines()[-30:]), file=sys.stderr)
        print(f"FAIL {error}", flush=True)
        sys.exit(1)
    finally:
        stop.set()
        for pid in provider.processes():
            os.kill(pid, signal.SIGTERM)
        for process in [*processes, provider.process]:
            if process and process.poll() is None:
                process.terminate()
    print(f"passed in {time.monotonic() - START:.0f} s")


main()
