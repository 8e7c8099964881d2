"""What the stories on the provider in Python share (e2e/grpc, e2e/kubelet): steps that are told and waited for, its NodeClass, a NodePool and a Deployment, and the
processes that are its instances."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from apiserver import PATIENCE  # noqa: E402
from scenario import Wrong  # noqa: E402

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLASSES = "/apis/process.example/v1/processnodeclasses"
START = time.monotonic()


def say(text):
    print(f"ok   {time.monotonic() - START:6.1f} s  {text}", flush=True)


def until(what, check, seconds=90):
    """Looks until there is something. PATIENCE multiplies how long, for machines that are busy with something else."""
    seconds *= PATIENCE
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            if value := check():
                return value
        except (Wrong, OSError) as error:
            last = error
        time.sleep(0.5)
    raise Wrong(f"not within {seconds:.0f} s: {what}" + (f" ({last})" if last else ""))


def definition():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    names = {"kind": "ProcessNodeClass", "plural": "processnodeclasses", "singular": "processnodeclass"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "processnodeclasses.process.example"},
        "spec": {"group": "process.example", "scope": "Cluster", "names": names, "versions": [version]},
    }


def node_pool(consolidate_after, labels=None):
    reference = {"group": "process.example", "kind": "ProcessNodeClass", "name": "default"}
    spec = {"requirements": [], "nodeClassRef": reference, "expireAfter": "720h"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"metadata": {"labels": labels or {}}, "spec": spec},
            # All empty nodes may go at once: by the default budget of 10 % they go one after the other, each after a command's 15 s.
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": consolidate_after, "budgets": [{"nodes": "100%"}]},
        },
    }


def deployment(replicas, **more):
    """So many pods; `more` are fields of their spec."""
    container = {"name": "pause", "image": "pause", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], **more}},
        },
    }


def machines(state):
    """Numbers of the processes that the provider's files name and that exist: a number alone may be another's by now."""
    found = set()
    for name in os.listdir(state) if os.path.isdir(state) else []:
        try:
            record = json.load(open(os.path.join(state, name))) if name.endswith(".json") else None
        except OSError:
            continue  # The provider has just removed it.
        if record and started(record["pid"]) == record["started"]:
            found.add(record["pid"])
    return found


def started(pid):
    """When the process was started, in the kernel's ticks; None for one that has ended."""
    try:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
