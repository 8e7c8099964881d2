"""Measures one run of bench.sh: 250 small and 250 large pods, then 150 of each. Prints, and writes to result.json, one JSON object.

The operator's process is the one in operator.pid, or the only child of it where that one restarts it.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

# Seconds: for the pods to run, for what the operator improves without a change, and for the rest after the pods are fewer.
LAUNCH_SECONDS, SETTLE_SECONDS, SHRINK_SECONDS = 400, 45, 660
# At rest: nothing has changed for so many seconds.
REST_SECONDS = 75

MANIFESTS = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements:
        - {key: kubernetes.io/os, operator: In, values: [linux]}
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: karpenter.kwok.sh/instance-size, operator: Lt, values: ["32"]}
      nodeClassRef: {name: default, kind: KWOKNodeClass, group: karpenter.kwok.sh}
      expireAfter: 720h
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 30s, budgets: [{nodes: "100%"}]}
---
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
"""

DEPLOYMENT = """
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: 250
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: c, image: x, resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}}}]}}
"""


def kubectl(*arguments, stdin=None):
    return subprocess.run(["kubectl", *arguments], input=stdin, capture_output=True, text=True).stdout


class Bench:
    def __init__(self, folder):
        self.folder = Path(folder)
        os.environ["KUBECONFIG"] = str(self.folder / "kubeconfig")
        self.prices = {}
        for machine in json.loads((self.folder / "catalog.json").read_text()):
            for offering in machine["offerings"]:
                labels = {one["key"]: one["values"][0] for one in offering["Requirements"]}
                place = (machine["name"], labels["topology.kubernetes.io/zone"], labels["karpenter.sh/capacity-type"])
                self.prices[place] = offering["Price"]
        parent = int((self.folder / "operator.pid").read_text())
        children = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, text=True).stdout.split()
        self.operator = int(children[0]) if children else parent

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.operator}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        lines = Path(f"/proc/{self.operator}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))

    def listed(self, *arguments):
        return json.loads(kubectl("get", *arguments, "-o", "json") or '{"items": []}')["items"]

    def pods(self):
        return self.listed("pods")

    def nodes(self):
        return self.listed("nodes", "-l", "karpenter.sh/nodepool")

    def price(self, nodes):
        keys = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "karpenter.sh/capacity-type")
        return round(sum(self.prices[tuple(node["metadata"]["labels"][key] for key in keys)] for node in nodes), 3)

    def launch(self):
        """500 pods, until they run."""
        text = MANIFESTS + DEPLOYMENT.format(name="small", cpu="950m", memory="3900Mi") + DEPLOYMENT.format(name="large", cpu="3800m", memory="31Gi")
        begun, cpu = time.time(), self.cpu_seconds()
        kubectl("apply", "-f", "-", stdin=text)
        running = 0
        while running < 500 and time.time() - begun < LAUNCH_SECONDS:
            time.sleep(1)
            running = sum(pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"] for pod in self.pods())
        nodes = self.nodes()
        return {
            "launch_seconds": round(time.time() - begun, 1), "launch_pods_running": running, "launch_nodes": len(nodes),
            "launch_price": self.price(nodes), "launch_cpu_seconds": round(self.cpu_seconds() - cpu, 2),
        }

    def shrink(self):
        """300 pods, until nothing has changed for a while. Pods that are new after the scaling were moved."""
        begun, cpu = time.time(), self.cpu_seconds()
        kubectl("scale", "deployment", "small", "large", "--replicas=150")
        time.sleep(5)
        kept = {pod["metadata"]["uid"] for pod in self.pods()}
        moved, last, before = set(), time.time(), None
        while time.time() - begun < SHRINK_SECONDS and (time.time() - last < REST_SECONDS or time.time() - begun < 60):
            nodes, pods = self.nodes(), self.pods()
            disrupted = any(taint["key"] == "karpenter.sh/disrupted" for node in nodes for taint in node["spec"].get("taints", []))
            now = (sorted(node["metadata"]["name"] for node in nodes), disrupted)
            moved |= {pod["metadata"]["uid"] for pod in pods} - kept
            if now != before or any(pod["status"].get("phase") != "Running" for pod in pods):
                last, before = time.time(), now
            time.sleep(2)
        nodes = self.nodes()
        return {
            "shrink_seconds": round(last - begun, 1), "shrink_nodes": len(nodes), "shrink_price": self.price(nodes),
            "shrink_cpu_seconds": round(self.cpu_seconds() - cpu, 2), "pods_moved": len(moved),
        }

    def run(self):
        result = self.launch()
        time.sleep(SETTLE_SECONDS)
        nodes = self.nodes()
        result.update(settled_nodes=len(nodes), settled_price=self.price(nodes))
        result.update(self.shrink())
        result.update(total_cpu_seconds=round(self.cpu_seconds(), 2), peak_mib=self.peak_mib())
        return result


def main():
    bench = Bench(sys.argv[1])
    text = json.dumps(bench.run(), indent=2)
    (bench.folder / "result.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
