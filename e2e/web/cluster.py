"""Programs under test and clusters for them: `spokeshave up` or `web` with its page, and generated dumps."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("SPOKESHAVE", str(ROOT / "target/release/spokeshave"))
# A page whose cluster changes twice a second: an example of the crate of the page.
CHANGING = os.environ.get("CHANGING", str(ROOT / "target/release/examples/changing"))
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


FIXED = "2026-03-02T12:00:00Z"
# By how much longer than on an idle machine it is waited for what has to come.
PATIENCE = float(os.environ.get("PATIENCE", "1"))


class Running:
    """A program that serves a page; ended at the end of the block."""

    def __init__(self, *arguments, program=PROGRAM):
        self.folder = tempfile.TemporaryDirectory()
        self.kubeconfig = Path(self.folder.name) / "kubeconfig"
        if arguments[:1] == ("up",):
            arguments += ("--kubeconfig", str(self.kubeconfig))
        self.errors = open(Path(self.folder.name) / "errors", "w+", encoding="utf-8")
        self.process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=self.errors)
        self.url = self._find_url()

    def _find_url(self):
        for _ in range(int(600 * PATIENCE)):
            self.errors.seek(0)
            text = self.errors.read()
            found = re.search(r"(http://\S+/\?token=\S+)", text)
            if found:
                return found[1]
            if self.process.poll() is not None:
                raise AssertionError(f"the program has ended: {text}")
            time.sleep(0.1)
        self.process.kill()
        raise AssertionError(f"no page within {PATIENCE:g} minutes")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20 * PATIENCE)
        finally:
            self.process.kill()
        self.errors.close()
        self.folder.cleanup()

    @property
    def origin(self):
        return self.url.split("/?")[0]

    @property
    def token(self):
        return self.url.split("token=")[1]

    def get(self, path):
        """An answer of the page's server, as text."""
        request = urllib.request.Request(self.origin + path, headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def view(self):
        return json.loads(self.get("/api/view"))

    def wait(self, what, holds, seconds=120):
        """Waits until the view has a property; returns the view."""
        for _ in range(int(seconds * 4 * PATIENCE)):
            try:
                view = self.view()
                if holds(view):
                    return view
            except urllib.error.HTTPError:
                pass
            time.sleep(0.25)
        raise AssertionError(f"not within {seconds * PATIENCE:g} s: {what}")

    def api(self, method, path, body=None, kind="application/merge-patch+json"):
        """A request to the API server of `up`."""
        text = self.kubeconfig.read_text()
        server = re.search(r"server: \"?(https://[^\s\"]+)", text)[1]
        token = re.search(r"token: \"?([^\s\"]+)", text)[1]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(server + path, data, headers, method=method)
        # The certificate is of this run's own authority; what is spoken to is this machine.
        context = ssl._create_unverified_context()
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return json.loads(answer.read())


def dump(nodes, pods_per_node=12, seed=1):
    """A cluster as `kubectl get -o json` would write it: two NodePools, nodes that are filled differently, budgets, guards, pods that wait."""
    now = "2026-03-02T11:00:00Z"
    items = [
        pool("default", [{"nodes": "10%"}, {"nodes": "0", "schedule": "0 8 * * mon-fri", "duration": "9h", "reasons": ["Underutilized"]}], None),
        pool("ml", [{"nodes": "2"}], {"cpu": "600"}),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "cache", "namespace": "shop"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "cache"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
        },
    ]
    state = seed
    for index in range(nodes):
        state = (state * 1103515245 + 12345) % 2**31
        in_pool = "ml" if index % 6 == 0 else "default"
        cores = [4, 8, 16, 4, 8][state // 7 % 5]
        letter = "c" if in_pool == "default" else "m"
        capacity = "spot" if state // 11 % 3 else "on-demand"
        zone = "test-zone-" + "abcd"[state // 13 % 4]
        name = f"{in_pool}-{index:05d}"
        items += node(name, in_pool, f"{letter}-{cores}x-amd64-linux", cores, 4 if letter == "c" else 8, capacity, zone, now)
        fill = [0.95, 0.7, 0.4, 0.85, 0.15, 0.0, 0.6][state // 17 % 7]
        count = max(1, pods_per_node // 2 + state // 19 % pods_per_node) if fill else 0
        for number in range(count):
            app = ["web", "api", "cache", "train"][(state // 23 + number) % 4] if number else "web"
            if app == "cache" and index % 9:
                app = "api"
            pod = a_pod(f"{app}-{index:05d}-{number}", app, int(cores * 1000 * fill / count), int(cores * 1800 * fill / count), name, now)
            if number == 0 and index % 14 == 3:
                pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
            items.append(pod)
    for number in range(10):
        items.append(a_pod(f"train-wait-{number}", "train-large", 90_000, 1000, None, now))
    for number in range(6):
        items.append(a_pod(f"web-new-{number}", "web-new", 3000, 2000, None, now))
    return {"apiVersion": "v1", "kind": "List", "items": items}


def pool(name, budgets, limits):
    spec = {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}, {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            }
        },
        "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s", "budgets": budgets},
    }
    if limits:
        spec["limits"] = limits
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-03-01T00:00:00Z"}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name, "uid": name}, "spec": spec, "status": {"conditions": [ready]}}


def node(name, in_pool, kind, cores, memory_per_core, capacity, zone, now):
    labels = {
        "karpenter.sh/nodepool": in_pool,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": capacity,
        "node.kubernetes.io/instance-type": kind,
        "topology.kubernetes.io/zone": zone,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
    }
    room = {"cpu": str(cores), "memory": f"{cores * memory_per_core}Gi", "pods": "110"}
    condition = lambda kind: {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}
    claim_conditions = [condition(kind) for kind in ("Launched", "Registered", "Initialized", "Consolidatable", "Ready")]
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items() if key.split("/")[1] in ("nodepool", "instance-type", "capacity-type", "zone")]
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"n-{name}", "labels": labels, "creationTimestamp": now},
            "spec": {"providerID": f"kwok://{name}"},
            "status": {"capacity": room, "allocatable": room, "conditions": [condition("Ready")]},
        },
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "uid": f"c-{name}", "labels": labels, "creationTimestamp": now},
            "spec": {"nodeClassRef": reference, "requirements": requirements},
            "status": {"providerID": f"kwok://{name}", "nodeName": name, "capacity": room, "allocatable": room, "conditions": claim_conditions},
        },
    ]


def a_pod(name, app, milli_cpu, mebibytes, on, now):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-5d9", "uid": f"rs-{app}", "controller": True}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    if on is None:
        status = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{milli_cpu}m", "memory": f"{mebibytes}Mi"}}}]}
    if on is not None:
        spec["nodeName"] = on
    meta = {"name": name, "namespace": "shop", "uid": f"p-{name}", "labels": {"app": app}, "creationTimestamp": now, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def still(world, *arguments):
    """A page of a dump."""
    file = Path(tempfile.mkdtemp()) / "shop.json"
    file.write_text(json.dumps(world), encoding="utf-8")
    return Running("web", "-f", str(file), "--now", FIXED, *arguments)


def free_port():
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def until(page, expression, timeout=20000):
    """Waits until an expression holds in the page; asked from outside, because the page's policy forbids eval."""
    for _ in range(int(timeout * PATIENCE) // 50):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within {timeout * PATIENCE:g} ms: {expression}")


def golden(file, tree):
    """What a screen reader meets is what a file has; BLESS=1 writes it, for somebody to read before it is committed."""
    if os.environ.get("BLESS"):
        file.write_text(tree + "\n", encoding="utf-8")
    assert file.exists(), f"there is no {file}; BLESS=1 writes it:\n{tree}"
    assert file.read_text(encoding="utf-8") == tree + "\n", f"what a screen reader meets differs from {file}; BLESS=1 rewrites it:\n{tree}"
