"""Worlds for the parity runs: states of the oracle's generator, changed in many small ways, the same bytes for the same seed."""

import copy
import json
import random
import subprocess

EPOCH = "2026-01-01T00:00:00Z"
NOW = "2026-01-01T01:00:00Z"
ZONES = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
CAPACITY = "karpenter.sh/capacity-type"
TYPE = "node.kubernetes.io/instance-type"
CPU = "karpenter.kwok.sh/instance-cpu"
FAMILY = "karpenter.kwok.sh/instance-family"
SIZE = "karpenter.kwok.sh/instance-size"
CLASS = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
APPS = ["web", "db", "cache", "batch", "queue"]
SHAPES = ["plain", "hostname-anti-affinity", "spread", "full", "pending"]


def generate(oracle, shape, nodes, pods, seed):
    """A state of the oracle's own generator, as a list of objects."""
    command = [oracle, "generate", "--shape", shape, "--nodes", str(nodes), "--seed", str(seed), "-o", "json"]
    if pods:
        command += ["--pods", str(pods)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["items"]


class World:
    """A state under change. All choices come from `dice`."""

    def __init__(self, objects, seed):
        self.objects = objects
        self.dice = random.Random(seed)
        self.made = 0
        self.traits = []

    def of(self, kind):
        return [o for o in self.objects if o["kind"] == kind]

    def chance(self, probability):
        return self.dice.random() < probability

    def pick(self, *choices):
        return self.dice.choice(choices)

    def add(self, kind, version, name, namespace=None, **fields):
        meta = {"name": name, "uid": f"{kind.lower()}/{name}", "creationTimestamp": EPOCH}
        if namespace:
            meta["namespace"] = namespace
        meta.update(fields.pop("metadata", {}))
        self.objects.append({"apiVersion": version, "kind": kind, "metadata": meta, **fields})
        return self.objects[-1]

    # Pods

    def pending(self, pod):
        """Takes a pod off its node."""
        pod["spec"].pop("nodeName", None)
        pod["status"] = {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": EPOCH}],
        }

    def pod(self, app, cpu, memory, **spec):
        """A new pending pod."""
        self.made += 1
        name = f"{app}-x{self.made:04d}"
        fields = {"metadata": {"labels": {"app": app, "track": self.pick("stable", "canary")}}}
        fields["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"replicaset/{app}", "controller": True}
        ]
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        spec = {"containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}], **spec}
        pod = self.add("Pod", "v1", name, "default", spec=spec, **fields)
        self.pending(pod)
        return pod

    def batch(self, count):
        """Pods of one shape with one of the rules that a user may write."""
        app = self.pick(*APPS)
        cpu = self.pick(100, 250, 500, 1000, 1500, 3000, 7000)
        memory = self.pick(128, 256, 1024, 2048, 6000)
        rule = self.pick(
            "none", "selector", "affinity", "preferred", "spread-zone", "spread-host", "spread-soft", "spread-both", "together", "apart",
            "apart-zone", "apart-soft", "port", "tolerates", "init", "capacity", "gt", "custom", "volume", "or-terms", "huge", "spread-capacity",
        )
        self.traits.append(rule)
        like = {"labelSelector": {"matchLabels": {"app": app}}}
        spread = lambda key, hard=True, **more: {
            "maxSkew": self.pick(1, 1, 2, 3),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            **like,
            **more,
        }
        expression = lambda key, operator, *values: {"key": key, "operator": operator, "values": list(values)}
        required = lambda *terms: {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": term} for term in terms]
                    }
                }
            }
        }
        spec = {}
        if rule == "selector":
            spec = {"nodeSelector": self.pick({ZONE: self.pick(*ZONES)}, {ARCH: "amd64"}, {CAPACITY: "on-demand"}, {FAMILY: self.pick("c", "s", "m")})}
        elif rule == "affinity":
            spec = required([expression(ZONE, self.pick("In", "NotIn"), *self.dice.sample(ZONES, 2))])
        elif rule == "or-terms":
            spec = required([expression(ZONE, "In", "nowhere")], [expression(FAMILY, "In", self.pick("c", "m"))])
        elif rule == "preferred":
            terms = [
                {"weight": self.pick(1, 50, 100), "preference": {"matchExpressions": [expression(ZONE, "In", self.pick(*ZONES, "nowhere"))]}}
                for _ in range(self.pick(1, 2))
            ]
            spec = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}
        elif rule == "spread-zone":
            more = self.pick({}, {}, {"minDomains": self.pick(2, 4)}, {"nodeTaintsPolicy": "Honor"}, {"nodeAffinityPolicy": "Ignore"}, {"matchLabelKeys": ["track"]})
            spec = {"topologySpreadConstraints": [spread(ZONE, **more)]}
        elif rule == "spread-host":
            spec = {"topologySpreadConstraints": [spread(HOST)]}
        elif rule == "spread-soft":
            spec = {"topologySpreadConstraints": [spread(self.pick(ZONE, HOST), hard=False)]}
        elif rule == "spread-both":
            spec = {"topologySpreadConstraints": [spread(ZONE), spread(HOST, hard=self.chance(0.5))]}
        elif rule == "spread-capacity":
            spec = {"topologySpreadConstraints": [spread(CAPACITY)]}
        elif rule == "together":
            spec = {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": self.pick(ZONE, HOST), **like}]}}}
        elif rule in ("apart", "apart-zone"):
            key = ZONE if rule == "apart-zone" else HOST
            spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, **like}]}}}
        elif rule == "apart-soft":
            term = {"weight": self.pick(1, 100), "podAffinityTerm": {"topologyKey": self.pick(ZONE, HOST), **like}}
            spec = {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}
        elif rule == "tolerates":
            spec = {"tolerations": [self.pick({"key": "team", "operator": "Exists"}, {"key": "team", "operator": "Equal", "value": "ml", "effect": "NoSchedule"})]}
        elif rule == "capacity":
            spec = {"nodeSelector": {CAPACITY: "spot"}}
        elif rule == "gt":
            spec = required([{"key": CPU, "operator": self.pick("Gt", "Lt"), "values": [self.pick("4", "8", "16")]}])
        elif rule == "custom":
            spec = {"nodeSelector": {"team": self.pick("ml", "shop")}}
        elif rule == "huge":
            cpu = self.pick(60_000, 250_000, 300_000)
        elif rule == "volume":
            claim = f"claim-{self.made}"
            zones = self.dice.sample(ZONES, self.pick(1, 2))
            topology = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
            self.add("StorageClass", "storage.k8s.io/v1", f"class-{self.made}", provisioner="disk.example", volumeBindingMode="WaitForFirstConsumer", allowedTopologies=topology)
            self.add("PersistentVolumeClaim", "v1", claim, "default", spec={"storageClassName": f"class-{self.made}", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, status={"phase": "Pending"})
            spec = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}
        for _ in range(count):
            pod = self.pod(app, cpu, memory, **copy.deepcopy(spec))
            container = pod["spec"]["containers"][0]
            if rule == "port":
                container["ports"] = [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]
            if rule == "init":
                side = {"name": "side", "image": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
                first = {"name": "first", "image": "first", "resources": {"requests": {"cpu": f"{cpu * 2}m", "memory": "64Mi"}}}
                pod["spec"]["initContainers"] = self.pick([first], [side], [side, first])
                pod["spec"]["overhead"] = {"cpu": "50m", "memory": "32Mi"}
            if self.chance(0.1):
                pod["spec"]["priority"] = self.pick(-10, 0, 1000)

    # NodePools

    def pool(self, name, requirements, **changes):
        """One more NodePool."""
        spec = {
            "template": {
                "metadata": {"labels": changes.pop("labels", {})},
                "spec": {"nodeClassRef": CLASS, "requirements": requirements, "expireAfter": "Never", **changes.pop("template", {})},
            },
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
            **changes,
        }
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": EPOCH}
            for kind in ("ValidationSucceeded", "NodeClassReady", "Ready")
        ]
        self.add("NodePool", "karpenter.sh/v1", name, spec=spec, status={"conditions": conditions})

    def more_pools(self):
        """None, one or two more NodePools with what makes a pool special."""
        requirement = lambda key, *values, **more: {"key": key, "operator": "In", "values": list(values), **more}
        linux = [requirement("kubernetes.io/os", "linux")]
        for number in range(self.pick(0, 0, 1, 1, 2)):
            what = self.pick("taint", "prefer-taint", "limits", "weight", "labels", "spot", "arm", "min-values", "family", "zone", "node-limit", "startup")
            self.traits.append("pool-" + what)
            amd = linux + [requirement(ARCH, "amd64"), requirement(CAPACITY, "on-demand")]
            name = f"extra-{number}"
            weight = {"weight": self.pick(1, 10, 100)} if self.chance(0.6) else {}
            if what == "taint":
                self.pool(name, amd, template={"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}, **weight)
            elif what == "prefer-taint":
                self.pool(name, amd, template={"taints": [{"key": "team", "value": "ml", "effect": "PreferNoSchedule"}]}, **weight)
            elif what == "startup":
                self.pool(name, amd, template={"startupTaints": [{"key": "agent", "effect": "NoSchedule"}]}, **weight)
            elif what == "limits":
                self.pool(name, amd, limits={"cpu": self.pick("4", "20", "100")}, weight=50)
            elif what == "node-limit":
                self.pool(name, amd, limits={"nodes": self.pick("1", "3")}, weight=50)
            elif what == "weight":
                self.pool(name, amd, weight=self.pick(1, 50))
            elif what == "labels":
                self.pool(name, amd, labels={"team": "shop"}, **weight)
            elif what == "spot":
                self.pool(name, linux + [requirement(ARCH, "amd64"), requirement(CAPACITY, "spot", "on-demand")], **weight)
            elif what == "arm":
                self.pool(name, linux + [requirement(ARCH, "arm64", "amd64")], **weight)
            elif what == "min-values":
                count = self.pick(2, 5, 10, 100)
                self.pool(name, amd + [{"key": TYPE, "operator": "Exists", "minValues": count}], **weight)
            elif what == "family":
                self.pool(name, amd + [requirement(FAMILY, self.pick("c", "m"))], **weight)
            elif what == "zone":
                self.pool(name, amd + [requirement(ZONE, *self.dice.sample(ZONES, 2))], **weight)

    def daemons(self):
        """A DaemonSet that new nodes have to carry."""
        for number in range(self.pick(0, 1, 1, 2)):
            name = f"agent-{number}"
            spec = {"containers": [{"name": "main", "image": "agent", "resources": {"requests": {"cpu": self.pick("100m", "500m"), "memory": "128Mi"}}}]}
            if self.chance(0.3):
                spec["nodeSelector"] = {ARCH: self.pick("amd64", "arm64")}
            if self.chance(0.5):
                spec["tolerations"] = [{"operator": "Exists"}]
            labels = {"daemon": name}
            template = {"metadata": {"labels": labels}, "spec": spec}
            self.add("DaemonSet", "apps/v1", name, "default", spec={"selector": {"matchLabels": labels}, "template": template})

    def worn_nodes(self):
        """Taints, cordons, and nodes on their way out."""
        for node in self.of("Node"):
            if self.chance(0.06):
                node["spec"]["taints"] = [{"key": "team", "value": "ml", "effect": self.pick("NoSchedule", "NoExecute", "PreferNoSchedule")}]
            elif self.chance(0.04):
                node["spec"]["unschedulable"] = True
                node["spec"]["taints"] = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]

    # Disruption

    def claim_of(self, node):
        name = node["metadata"]["name"]
        return next(c for c in self.of("NodeClaim") if c["metadata"]["name"] == name)

    def retype(self, node, **labels):
        """Other labels on a node and its NodeClaim."""
        for thing in (node, self.claim_of(node)):
            thing["metadata"]["labels"].update(labels)

    def disruption(self):
        """What keeps nodes, and what makes them go."""
        dice = self.dice
        pods = self.of("Pod")
        bound = [p for p in pods if p["spec"].get("nodeName")]
        nodes = self.of("Node")
        if self.chance(0.6):
            for node in dice.sample(nodes, k=min(len(nodes), self.pick(1, 2, 3))):
                name = node["metadata"]["name"]
                gone = [p for p in bound if p["spec"]["nodeName"] == name]
                keep = 0 if self.chance(0.5) else max(1, len(gone) // 3)
                dropped = {id(p) for p in gone[keep:]}
                self.objects = [o for o in self.objects if id(o) not in dropped]
            bound = [p for p in bound if any(o is p for o in self.objects)]
        for pod in bound:
            annotations = {}
            if self.chance(0.02):
                annotations["karpenter.sh/do-not-disrupt"] = "true"
                self.traits.append("do-not-disrupt")
            if self.chance(0.03):
                annotations["controller.kubernetes.io/pod-deletion-cost"] = self.pick("-2147483647", "100", "2147483647")
            if annotations:
                pod["metadata"]["annotations"] = annotations
            if self.chance(0.02):
                pod["spec"]["priority"] = self.pick(-100, 1000000)
        for node in nodes:
            if self.chance(0.03):
                node["metadata"].setdefault("annotations", {})["karpenter.sh/do-not-disrupt"] = "true"
            if self.chance(0.03):
                conditions = self.claim_of(node)["status"]["conditions"]
                conditions[:] = [c for c in conditions if c["type"] != "Consolidatable"]
        apps = sorted({p["metadata"]["labels"].get("app", "") for p in bound} - {""})
        for app in dice.sample(apps, k=min(len(apps), self.pick(0, 1, 2))):
            self.traits.append("pdb")
            allowed = self.pick(0, 0, 1, 5)
            self.add(
                "PodDisruptionBudget", "policy/v1", f"budget-{app}", "default",
                spec={"maxUnavailable": allowed, "selector": {"matchLabels": {"app": app}}},
                status={"disruptionsAllowed": allowed, "currentHealthy": 9, "desiredHealthy": 9 - allowed, "expectedPods": 9},
            )
        for pool in self.of("NodePool"):
            disruption = pool["spec"]["disruption"]
            if self.chance(0.1):
                disruption["consolidationPolicy"] = "WhenEmpty"
                self.traits.append("when-empty")
            if self.chance(0.05):
                disruption["consolidateAfter"] = "Never"
            if self.chance(0.2):
                disruption["budgets"] = [{"nodes": self.pick("0", "1", "2", "10%", "50%")}]
                self.traits.append("budget")
            if self.chance(0.4):
                for requirement in pool["spec"]["template"]["spec"]["requirements"]:
                    if requirement["key"] == CAPACITY:
                        requirement["values"] = ["spot", "on-demand"]
                self.traits.append("spot-pool")
        if self.chance(0.3):
            self.traits.append("spot-nodes")
            for node in nodes:
                if self.chance(0.5):
                    self.retype(node, **{CAPACITY: "spot"})
        if self.chance(0.2) and nodes:
            self.traits.append("drifted")
            for node in dice.sample(nodes, k=min(len(nodes), 2)):
                self.claim_of(node)["status"]["conditions"].append(
                    {"type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": EPOCH}
                )


def provisioning_world(oracle, seed, small=False):
    """(name, objects) of a world about pending pods."""
    dice = random.Random(f"provisioning/{seed}")
    shape = SHAPES[seed % len(SHAPES)]
    if shape == "pending":
        objects = generate(oracle, shape, 0, dice.choice([10, 20] if small else [20, 60, 150, 300]), seed)
    else:
        # The generator's spread shape needs a node in each zone.
        objects = generate(oracle, shape, dice.choice([4] if small else [4, 5, 12, 30]), 20 if small else 0, seed)
    world = World(objects, f"changes/{seed}")
    # Every third world is the generator's own, with some pods taken off their nodes.
    for pod in world.of("Pod"):
        if world.chance(0.25):
            world.pending(pod)
    if seed % 3:
        world.more_pools()
        world.daemons()
        world.worn_nodes()
        for _ in range(world.pick(1, 2, 4)):
            world.batch(world.pick(1, 3, 8, 20))
    return f"{shape}-{seed}", world


def disruption_world(oracle, seed, small=False):
    """(name, objects) of a world about nodes that might go."""
    dice = random.Random(f"disruption/{seed}")
    shape = SHAPES[seed % 4]
    sizes = [4, 6] if small else [4, 8, 16, 30]
    if shape != "spread":
        sizes += [1, 2]
    nodes = dice.choice(sizes)
    objects = generate(oracle, shape, nodes, 6 * nodes if small else 0, seed)
    world = World(objects, f"changes/{seed}")
    if seed % 4:
        world.disruption()
    if seed % 5 == 4:
        world.more_pools()
    if seed % 7 == 3:
        world.worn_nodes()
    if seed % 11 == 5:
        world.batch(world.pick(1, 3))
    return f"{shape}-{seed}", world


def write(world, path):
    """Writes a v1 List, an object a line."""
    lines = ",\n".join(json.dumps(o, sort_keys=True, separators=(",", ":")) for o in world.objects)
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"apiVersion":"v1","kind":"List","items":[\n' + lines + "\n]}\n")
