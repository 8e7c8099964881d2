#!/usr/bin/env python3
"""Compares decisions of our AWS provider with those of upstream's own, on the committed cases and on generated ones.

The oracle (e2e/aws) answers generated messages, user data and changes of classes, describes every type that moto knows (aws_types.py), and launches generated NodeClaims at moto, where its requests are recorded; the provider's
own tests read them by AWS_CASES and must find every one equal. Our whole provider launches the NodeClaims of the committed scenarios and of generated ones at the oracle's recording proxy (aws_recorded.py), and must ask for
the same templates and fleets. For the committed cases they allow what cases/differences.json lists, and nothing that is listed may have become equal. Prints the table of
docs/aws.md; --write puts it there, and without it a table that is not up to date is a failure.
"""

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import aws_recorded
import aws_types

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "e2e/aws/cases"
DOCUMENT = ROOT / "docs/aws.md"
BEGIN, END = "<!-- parity: begin -->\n", "<!-- parity: end -->\n"
RECORDED = "recorded::a_065_a_073_a_074"
EVERY_TYPE = "types::a_042_a_044_a_047_every_type"
GENERATED = ["messages::a_111_d_275", "user_data::a_069_a_070", "hash::a_010_the_same", "launches::a_017_a_065"]
FAMILIES = ["al2023", "bottlerocket", "windows2022"]

KINDS = [
    ("types", "capacity, overhead, labels and offerings of types, odd and made-up ones too, for classes of every family"),
    ("userdata", "user data"),
    ("messages", "messages of the queue"),
    ("errors", "classes and reasons of errors"),
    ("fleets", "what failed fleets make unavailable"),
    ("hash", "changes of a class that drift nodes"),
    ("launch", "scenarios of launches: templates, fleets, dry runs; by the rules, and by the whole provider over HTTP"),
    ("statuses", "status of the classes of these scenarios: what they find, and every condition"),
]


def expected(name):
    return json.loads((CASES / f"expected/{name}.json").read_text())


def count(kind):
    if kind == "types":
        files = sorted((CASES / "expected").glob("types-*.json"))
        return sum(len(one["types"]) for file in files for one in json.loads(file.read_text())["node_classes"])
    if kind == "launch":
        return len(list(CASES.glob("launch-*.yaml")))
    if kind == "statuses":
        return sum(len(json.loads(file.read_text())["node_classes"]) for file in sorted((CASES / "expected").glob("launch-*.json")))
    answers = expected(kind)
    if kind == "hash":
        return len(answers) - 1
    return len(answers[kind] if isinstance(answers, dict) else answers)


def table(types, variants):
    listed = json.loads((CASES / "differences.json").read_text())
    lines = ["| Decision | Cases | Otherwise, and why |", "|---|---|---|"]
    lines.append(f"| capacity, overhead, allocatable and labels of every type that moto knows ({types:,}), in {variants} classes: each AMI family with each kubelet setting, volumes, interfaces, reservations | {types * variants:,} | none |")
    for kind, words in KINDS:
        reasons = {}
        for name, reason in listed.get(kind, {}).items():
            reasons.setdefault(reason, []).append(name)
        text = "; ".join(f"{len(names)}: {reason}" for reason, names in sorted(reasons.items()))
        lines.append(f"| {words} | {count(kind)} | {text or 'none'} |")
    return "\n".join(lines) + "\n"


# --- generated cases


def messages(dice, number):
    """Messages of all formats, with fields that are missing, of other kinds and of other versions."""
    def one():
        instance = f"i-{dice.getrandbits(68):017x}"
        envelope = {"version": "0", "id": str(dice.getrandbits(30)), "region": "us-west-2", "time": f"2026-{dice.randint(1, 12):02}-{dice.randint(1, 28):02}T{dice.randint(0, 23):02}:00:00Z"}
        kind = dice.randrange(6)
        if kind == 0:
            envelope |= {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "detail": {"instance-id": instance, "instance-action": dice.choice(["terminate", "stop", "hibernate"])}}
        elif kind == 1:
            envelope |= {"source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": instance}}
        elif kind == 2:
            state = dice.choice(["pending", "running", "stopping", "stopped", "shutting-down", "terminated"])
            envelope |= {"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {"instance-id": instance, "state": state}}
        elif kind == 3:
            entities = [{"entityValue": f"i-{dice.getrandbits(68):017x}"} for _ in range(dice.randint(1, 5))]
            detail = {"service": dice.choice(["EC2", "EC2", "RDS"]), "eventTypeCategory": dice.choice(["scheduledChange", "scheduledChange", "issue", "accountNotification"]), "affectedEntities": entities}
            envelope |= {"source": "aws.health", "detail-type": "AWS Health Event", "detail": detail}
        elif kind == 4:
            envelope |= {"source": dice.choice(["aws.s3", "aws.autoscaling", "me"]), "detail-type": dice.choice(["Object Created", "EC2 Instance Launch Successful"]), "detail": {"instance-id": instance}}
        else:
            envelope |= {"source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {"instance-id": instance}}
            if dice.random() < 0.5:
                envelope["version"] = dice.choice(["1", ""])
            else:
                envelope["detail"]["more"] = {"nested": [1, None]}
        return envelope

    return [one() for _ in range(number)]


def user_data(dice, number):
    """User data of the families that have a form of their own, with kubelet settings, labels and taints drawn together."""
    clusters = [
        {"name": "c", "endpoint": "https://A.example", "caBundle": "Y2E=", "cidr": "10.100.0.0/16"},
        {"name": "long-" + "n" * 60, "endpoint": "https://B.example:6443", "caBundle": "Yg==", "cidr": "172.20.0.0/16", "dns": "172.20.0.10"},
        {"name": "six", "endpoint": "https://[fd00::1]", "caBundle": "Yg==", "cidr": "fd00::/108", "dns": "fd00::a"},
    ]
    settings = {
        "maxPods": [1, 29, 110, 737],
        "podsPerCore": [1, 8],
        "clusterDNS": [["10.100.0.10"]],
        "systemReserved": [{"cpu": "100m"}, {"memory": "100Mi", "ephemeral-storage": "1Gi"}],
        "kubeReserved": [{"cpu": "200m", "memory": "1Gi"}, {"ephemeral-storage": "3Gi"}],
        "evictionHard": [{"memory.available": "5%"}, {"nodefs.available": "10%", "memory.available": "200Mi"}],
        "imageGCHighThresholdPercent": [85, 100],
        "cpuCFSQuota": [True, False],
    }
    effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
    cases = []
    for index in range(number):
        family = dice.choice(["AL2023", "AL2", "Bottlerocket", "Windows2022"])
        case = {"name": f"generated-{index}", "family": family, "cluster": dice.choice(clusters), "pods": dice.choice([4, 29, 234])}
        kubelet = {field: dice.choice(values) for field, values in settings.items() if dice.random() < 0.35}
        if kubelet:
            case["kubelet"] = kubelet
        case["labels"] = {f"{dice.choice(['team', 'example.com/part', 'a.b.c/x', 'tier'])}-{n}": dice.choice(["a", "1", "true", "x.y_z-0", ""]) for n in range(dice.randint(0, 4))}
        for field in ("taints", "startupTaints"):
            if dice.random() < 0.5:
                case[field] = [{"key": f"key-{n}", "effect": dice.choice(effects)} | ({"value": dice.choice(["v", "true"])} if dice.random() < 0.7 else {}) for n in range(dice.randint(1, 3))]
        if dice.random() < 0.3:
            case["capacityType"] = dice.choice(["spot", "on-demand"])
        if dice.random() < 0.2:
            case["instanceStorePolicy"] = "RAID0"
        if family != "Bottlerocket" and dice.random() < 0.4:
            case["userData"] = dice.choice(["#!/bin/bash\necho one\n", "#!/bin/sh\nset -e\necho 'two \\ three'\n", "#!/bin/bash\ncat <<X\n$(date)\nX\n"])
        if family == "Bottlerocket" and dice.random() < 0.4:
            case["userData"] = dice.choice(["[settings.kubernetes]\n'max-pods' = 12\n", "[settings.kernel]\nlockdown = \"integrity\"\n", "[settings.kubernetes.node-labels]\n'x' = 'y'\n"])
        cases.append(case)
    return cases


def classes(dice, number):
    """Classes that each change some fields of the first of the committed ones."""
    lines = [line for line in (CASES / "hash.yaml").read_text().splitlines() if line.startswith("{")]
    base = json.loads(lines[0])
    changes = {
        "role": ["node", "other"],
        "tags": [{"a": "1", "b": "2"}, {"b": "2", "a": "1"}, {"a": "1"}, {"a": "2", "b": "2"}],
        "userData": ["#!/bin/sh\n", "#!/bin/sh\necho\n"],
        "detailedMonitoring": [True, False],
        "associatePublicIPAddress": [True, False],
        "subnetSelectorTerms": [[{"tags": {"d": "2"}}], [{"id": "subnet-1"}]],
        "securityGroupSelectorTerms": [[{"name": "x"}]],
        "amiSelectorTerms": [[{"alias": "al2023@latest"}], [{"id": "ami-1"}]],
        "instanceStorePolicy": ["RAID0"],
        "kubelet": [base["spec"]["kubelet"], base["spec"]["kubelet"] | {"maxPods": 51}, base["spec"]["kubelet"] | {"podsPerCore": 3}, {"maxPods": 50}],
        "metadataOptions": [base["spec"]["metadataOptions"], base["spec"]["metadataOptions"] | {"httpPutResponseHopLimit": 2}, base["spec"]["metadataOptions"] | {"httpTokens": "optional"}],
        "blockDeviceMappings": [base["spec"]["blockDeviceMappings"], base["spec"]["blockDeviceMappings"][::-1], base["spec"]["blockDeviceMappings"][:1]],
    }
    made = [base]
    for index in range(number):
        changed = json.loads(json.dumps(base))
        changed["metadata"]["name"] = f"generated-{index}"
        for field in dice.sample(sorted(changes), dice.randint(1, 3)):
            changed["spec"][field] = dice.choice(changes[field])
        made.append(changed)
    return "".join(f"---\n{json.dumps(one)}\n" for one in made)


def launches(dice, number, alias):
    """A scenario: classes of one family with options drawn together, and NodeClaims of them with types, zones, ways to buy, requests, labels and taints."""
    # Types that also run 32-bit images are lost by moto's filter, so that upstream does not know them.
    described = json.loads((ROOT / "e2e/aws/catalog.json").read_text())["InstanceTypes"]
    types = [one["InstanceType"] for one in described if "i386" not in one["ProcessorInfo"]["SupportedArchitectures"]]
    scenario = json.loads(next(line for line in (CASES / "launch-spot.yaml").read_text().splitlines() if '"Scenario"' in line))
    # One subnet in each zone: upstream also sets addresses aside in zones that the NodeClaim excludes, and never gives them back, so that it fills up the
    # larger of two subnets sooner.
    subnets = {subnet["zone"]: subnet for subnet in scenario["fixture"]["subnets"] if "karpenter.sh/discovery" in subnet.get("tags", {})}
    scenario["fixture"]["subnets"] = list(subnets.values())
    terms = [{"tags": {"karpenter.sh/discovery": "oracle"}}]
    options = {
        "tags": [{"team": "a"}, {"team": "b", "Name": "mine"}],
        "detailedMonitoring": [True, False],
        "associatePublicIPAddress": [True, False],
        "context": ["ctx-1"],
        "kubelet": [{"maxPods": 30}, {"kubeReserved": {"cpu": "100m"}, "evictionHard": {"memory.available": "5%"}}],
        "blockDeviceMappings": [[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "volumeType": "io2", "iops": 3000, "encrypted": True}}, {"deviceName": "/dev/xvdb", "ebs": {"snapshotID": "snap-1", "throughput": 200}}]],
    }
    if alias == "al2023":
        options |= {"userData": ["#!/bin/bash\necho one\n"], "instanceStorePolicy": ["RAID0"], "ipPrefixCount": [2]}
    if alias == "bottlerocket":
        options |= {"userData": ["[settings.kernel]\nlockdown = \"integrity\"\n"], "instanceStorePolicy": ["RAID0"]}
    made = [json.dumps(scenario)]
    names = [f"{alias}-{index}" for index in range(4)]
    # All classes or none: upstream's cache of offerings does not look at it, and mixes them up.
    tracking = dice.choice([{}, {"connectionTracking": {"udpTimeout": 40}}, {"connectionTracking": {"tcpEstablishedTimeout": 600, "udpStreamTimeout": 100}}])
    for name in names:
        metadata = {"httpEndpoint": "enabled", "httpProtocolIPv6": dice.choice(["enabled", "disabled"]), "httpPutResponseHopLimit": dice.randint(1, 3), "httpTokens": dice.choice(["required", "optional"])}
        spec = {"amiSelectorTerms": [{"alias": f"{alias}@latest"}], "instanceProfile": "node-profile", "subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms, "metadataOptions": metadata} | tracking
        for field in dice.sample(sorted(options), dice.randint(0, 4)):
            spec[field] = dice.choice(options[field])
        made.append(json.dumps({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": spec}))
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}
        requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}]
        made.append(json.dumps({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}, "disruption": {"consolidateAfter": "0s"}}}))
    for index in range(number):
        name = dice.choice(names)
        requirements = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": sorted(dice.sample(types, dice.randint(1, 12)))}]
        requirements.append({"key": "karpenter.sh/capacity-type", "operator": "In", "values": dice.choice([["spot"], ["on-demand"], ["on-demand", "spot"], ["on-demand", "reserved", "spot"]])})
        if dice.random() < 0.5:
            requirements.append({"key": "topology.kubernetes.io/zone", "operator": "In", "values": sorted(dice.sample(["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"], dice.randint(1, 3)))})
        if dice.random() < 0.3:
            requirements.append({"key": "kubernetes.io/arch", "operator": "In", "values": [dice.choice(["amd64", "arm64"])]})
        if dice.random() < 0.2:
            requirements.append({"key": "karpenter.k8s.aws/instance-cpu", "operator": dice.choice(["Gt", "Lt"]), "values": [dice.choice(["1", "8", "40"])]})
        requests = {"cpu": dice.choice(["100m", "1", "4"]), "memory": dice.choice(["64Mi", "1Gi", "12Gi"]), "pods": "3"}
        if dice.random() < 0.1:
            requests |= dice.choice([{"nvidia.com/gpu": "1"}, {"aws.amazon.com/neuron": "1"}])
        spec = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}, "requirements": requirements, "resources": {"requests": requests}}
        labels = {"karpenter.sh/nodepool": name} | ({"team": dice.choice(["a", "b"])} if dice.random() < 0.4 else {})
        if dice.random() < 0.3:
            spec["taints"] = [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]
        if dice.random() < 0.2:
            spec["startupTaints"] = [{"key": "boot", "effect": "NoExecute"}]
        made.append(json.dumps({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": f"claim-{index}", "labels": labels}, "spec": spec}))
    return "---\n" + "\n---\n".join(made) + "\n"


def at_once(dice, number):
    """A scenario of equal NodeClaims that are launched at once: eight kinds, each as often as it takes."""
    documents = [json.loads(line) for line in launches(dice, 8, "al2023").splitlines() if line.startswith("{")]
    documents[0]["concurrent"] = True
    kinds = [one for one in documents if one["kind"] == "NodeClaim"]
    others = [one for one in documents if one["kind"] != "NodeClaim"]
    claims = [kinds[index % len(kinds)] | {"metadata": kinds[index % len(kinds)]["metadata"] | {"name": f"claim-{index}"}} for index in range(number)]
    return "".join(f"---\n{json.dumps(one)}\n" for one in others + claims)


class Moto:
    """A moto on a free port of this machine, for as long as the block lasts."""

    def __init__(self, server):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.server = server

    def __enter__(self):
        environment = dict(os.environ) | {"MOTO_AMIS_PATH": str(CASES / "images.json")}
        command = [self.server, "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{self.port}"
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5).close()
                return self
            except OSError:
                time.sleep(0.5)
        raise SystemExit("moto does not start")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def say(oracle, *command):
    """What the oracle says."""
    done = subprocess.run([oracle, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the oracle ended with {done.returncode} on {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def ask(oracle, folder, name, file, *command):
    (folder / f"expected/{name}.json").write_text(say(oracle, *command, str(folder / file)))


def generate(oracle, program, moto, folder, seed, number, claims):
    dice = random.Random(seed)
    (folder / "expected").mkdir()
    (folder / "messages.json").write_text(json.dumps(messages(dice, number)))
    (folder / "userdata.yaml").write_text(json.dumps(user_data(dice, number)))
    (folder / "hash.yaml").write_text(classes(dice, number))
    (folder / "differences.json").write_text(json.dumps({kind: {} for kind, _ in KINDS}))
    ask(oracle, folder, "messages", "messages.json", "messages")
    ask(oracle, folder, "userdata", "userdata.yaml", "userdata")
    ask(oracle, folder, "hash", "hash.yaml", "hash", "--ca-bundle", "Y2E=")
    with Moto(moto) as running:
        catalog = say(oracle, "catalog", "--endpoint", running.url, "--region", aws_types.REGION, "--only", "all")
        scenarios = {file.stem: file.read_text() for file in sorted(CASES.glob("launch-*.yaml"))}
        scenarios |= {f"launch-generated-{family}": launches(dice, claims, family) for family in FAMILIES}
        scenarios["launch-at-once"] = at_once(dice, claims)
        for name, text in scenarios.items():
            is_generated = not (CASES / f"{name}.yaml").exists()
            if is_generated:
                (folder / f"{name}.yaml").write_text(text)
                ask(oracle, folder, name, f"{name}.yaml", "launch", "--endpoint", running.url, "--reset", "--cache", str(folder / "cache"))
            aws_recorded.record(oracle, program, running.url, folder, name.removeprefix("launch-"), text, at_once=is_generated)
    variants = aws_types.generate(lambda name, *command: (folder / f"expected/{name}.json").write_text(say(oracle, *command)), catalog, folder, CASES, dice)
    return json.loads(catalog), variants, len(scenarios)


def built():
    """The example that runs our whole provider."""
    command = ["cargo", "build", "--quiet", "-p", "spokeshave-aws-http", "--example", "launches"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("our provider cannot be built")
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug/examples/launches"


def tests(*filters, cases=None):
    """Whether the tests that these filters name, one each, are there and find everything equal; without filters, whether all tests do."""
    environment, features = dict(os.environ), []
    if cases:
        # What looks at generated cases alone is no test without them.
        environment["AWS_CASES"], features = str(cases), ["--features", "asked"]
    command = ["cargo", "test", "--quiet", "-p", "spokeshave-provider-aws", *features, "--test", "it", "--", *filters]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="")
    ran = re.search(r"^running (\d+) test", done.stdout, re.MULTILINE)
    if filters and (not ran or int(ran[1]) != len(filters)):
        print(f"FAIL {', '.join(filters)} should name one test each")
        return False
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", required=True, help="the program that e2e/build.sh aws-oracle builds")
    parser.add_argument("--cases", type=int, default=300, help="generated cases of each kind")
    parser.add_argument("--launches", type=int, default=60, help="generated NodeClaims that are launched, for each image family")
    parser.add_argument("--moto", default="moto_server", help="the moto_server that upstream's provider launches at")
    parser.add_argument("--keep", type=Path, help="keep the generated cases in this new folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the table into docs/aws.md")
    options = parser.parse_args()
    sound = tests()
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        folder.mkdir(exist_ok=True)
        catalog, variants, scenarios = generate(options.oracle, built(), options.moto, folder, options.seed, options.cases, options.launches)
        equal = tests(*GENERATED, cases=folder)
        types = len(catalog["InstanceTypes"])
        equal_calls = tests(RECORDED, cases=folder)
        equal_types = tests(EVERY_TYPE, cases=folder)
    facts, wrong = aws_types.check_facts(catalog)
    print(f"{'ok  ' if sound else 'FAIL'} the committed cases")
    print(f"{'ok  ' if equal else 'FAIL'} {options.cases} generated cases of each kind and {options.launches} launches of each of {len(FAMILIES)} families, seed {options.seed}")
    print(f"{'ok  ' if equal_calls else 'FAIL'} our whole provider at the recording proxy, {scenarios} scenarios")
    print(f"{'ok  ' if equal_types else 'FAIL'} {types:,} types in {variants} classes")
    print(f"{'FAIL' if wrong else 'ok  '} the facts of the simulated EC2 about {facts} types are moto's", *wrong[:10], sep="\n     ")
    made = table(types, variants)
    print(made, end="")
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    if options.write:
        DOCUMENT.write_text(before + BEGIN + made + END + after)
    elif old != made:
        print("FAIL the table of docs/aws.md is not this one: run just parity-aws --write")
        sound = False
    return 0 if sound and equal and equal_calls and equal_types and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
