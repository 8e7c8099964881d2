"""What every instance type holds, reserves, is labelled with and costs, asked of upstream's AWS provider: of all types that moto knows, in classes of every AMI family with every kubelet setting."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "crates/ec2-simulated/data/instance_types.jsonl"
# The region whose facts ours are.
REGION = "us-east-1"
FAMILIES = ["AL2023", "AL2", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025", "Custom"]
SETTINGS = {
    "plain": {},
    "max-pods": {"maxPods": 110},
    "pods-per-core": {"podsPerCore": 5},
    "both-limits": {"podsPerCore": 10, "maxPods": 30},
    "reserved": {"kubeReserved": {"cpu": "200m", "memory": "1Gi"}, "systemReserved": {"cpu": "100m", "memory": "100Mi", "ephemeral-storage": "2Gi", "pid": "100"}},
    "eviction-percent": {"evictionHard": {"memory.available": "5%", "nodefs.available": "15%", "nodefs.inodesFree": "5%"}},
    "eviction-quantity": {"evictionHard": {"memory.available": "750Mi", "nodefs.available": "5Gi"}},
    "eviction-soft": {"evictionSoft": {"memory.available": "10%"}, "evictionSoftGracePeriod": {"memory.available": "1m"}},
}
# Classes of each family whose settings are drawn together.
DRAWN_TOGETHER = 4
DRAWN = {
    "maxPods": [0, 1, 8, 29, 58, 110, 250, 737],
    "podsPerCore": [1, 2, 3, 10, 40],
    "systemReserved": [{"cpu": "100m"}, {"memory": "100Mi", "ephemeral-storage": "1Gi"}, {"cpu": "1500m", "memory": "2G"}],
    "kubeReserved": [{"cpu": "200m", "memory": "1Gi"}, {"ephemeral-storage": "3Gi"}, {"memory": "123456789"}],
    "evictionHard": [{"memory.available": "5%"}, {"memory.available": "3.33%", "nodefs.available": "0%"}, {"nodefs.available": "10%", "memory.available": "200Mi"}, {"memory.available": "100%"}],
}


def node_class(name, family, kubelet):
    return {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": {"amiFamily": family} | ({"kubelet": kubelet} if kubelet else {})}


def classes(dice, family):
    """Classes of one family: each setting alone, and some drawn together."""
    made = [node_class(name, family, kubelet) for name, kubelet in SETTINGS.items()]
    for index in range(DRAWN_TOGETHER):
        kubelet = {field: dice.choice(DRAWN[field]) for field in sorted(dice.sample(sorted(DRAWN), dice.randint(1, 4)))}
        made.append(node_class(f"drawn-{index}", family, kubelet))
    return "".join(f"---\n{json.dumps(one)}\n" for one in made)


def disagreements(ours, theirs, where):
    """Where a fact of ours is not in what moto says."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [text for key, value in ours.items() for text in disagreements(value, theirs.get(key), f"{where}.{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [text for a, b in zip(ours, theirs) for text in disagreements(a, b, where)]
    return [] if ours == theirs else [f"{where} is {ours} here and {theirs} there"]


def check_facts(catalog):
    """The facts of the simulated EC2 are among those that upstream is asked about, so that what is equal for those is equal for these."""
    said = {one["InstanceType"]: one for one in catalog["InstanceTypes"]}
    rows = [json.loads(line) for line in FACTS.read_text().splitlines() if not line.startswith("#")]
    wrong = [text for row in rows for text in disagreements({field: value for field, value in row.items() if field != "Zones"}, said.get(row["InstanceType"]), row["InstanceType"])]
    return len(rows), wrong


def generate(ask, catalog_text, folder, cases, dice):
    """Writes the catalogue, the classes of each family, and upstream's answers. Gives how many classes there are."""
    (folder / "all-types.json").write_text(catalog_text)
    number = 0
    for family in FAMILIES:
        name = f"types-{family.lower()}"
        text = classes(dice, family)
        number += text.count("---")
        (folder / f"{name}.yaml").write_text(text)
        ask(name, "types", "--catalog", str(folder / "all-types.json"), "--nodeclass", str(folder / f"{name}.yaml"))
    # The committed variants, with what is for sale, each asked alone: upstream's cache of offerings mixes up classes that differ in family or `cpuOptions`.
    variants = [line for line in (cases / "nodeclasses.yaml").read_text().replace("us-west-2", REGION).splitlines() if line.startswith("{")]
    for index, line in enumerate(variants):
        name = f"types-variant-{index}"
        (folder / f"{name}.yaml").write_text(line + "\n")
        ask(name, "types", "--offerings", "--catalog", str(folder / "all-types.json"), "--nodeclass", str(folder / f"{name}.yaml"))
    return number + len(variants)
