#!/usr/bin/env python3
"""Writes the golden cases: small worlds with what upstream Karpenter decides about them.

`cargo test -p spokeshave --test golden` holds Spokeshave against them without the oracle. A world on which upstream
disagrees with itself over several runs is left out, and so is one that is too large. A node that upstream keeps and ours disrupts needs a row with the reason
there (DISRUPTED_BY_OURS_ALONE).
"""

import json
import sys
import tempfile
from pathlib import Path

import worlds
from disruption import savings, upstream_verdicts
from provisioning import arguments, upstream

MOST_BYTES = 45_000
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "crates/spokeshave/tests/golden"
HAND_WRITTEN = ROOT / "e2e/upstream/cases"


def provisioning(options, path):
    theirs = upstream(options, path, "provision", "--solve-timeout", "0", "--repeat", "3")
    if theirs["distinct_results"] > 1:
        return None
    placed = {p for claim in theirs["new_node_claims"] for p in claim["pods"]}
    placed |= {p for node in theirs["existing_nodes"] for p in node["pods"]}
    price = sum(claim["instance_types"][0]["price"] for claim in theirs["new_node_claims"] if claim["instance_types"])
    return {"placed": sorted(placed), "price": round(price, 9)}


def disruption(options, path):
    theirs = upstream(options, path, "disrupt", "--method", "all", "--each", "--repeat", "3")
    methods = {m["method"]: m for m in theirs["methods"]}
    if any(m["distinct_results"] > 1 for m in methods.values()):
        return None
    verdicts = {node: [decision, round(saved, 9)] for node, (decision, saved, _) in upstream_verdicts(theirs).items()}
    for node in methods["emptiness"]["candidates"]:
        verdicts[node] = ["delete", None]
    for node in methods["drift"]["candidates"]:
        verdicts.pop(node, None)
    saved = {name: round(sum(savings(c) for c in m["commands"]), 9) for name, m in methods.items() if name != "drift"}
    return {"verdicts": dict(sorted(verdicts.items())), "savings": saved}


def write(options, kind, make, judge, wanted):
    """Takes the first worlds that fit, all shapes alike."""
    kept, seed = {}, options.first
    with tempfile.TemporaryDirectory() as directory:
        while sum(kept.values()) < wanted and seed < options.first + options.worlds:
            name, world = make(options.oracle, seed, small=True)
            shape = name.rsplit("-", 1)[0]
            seed += 1
            path = str(Path(directory) / f"{name}.json")
            worlds.write(world, path)
            if Path(path).stat().st_size > MOST_BYTES or kept.get(shape, 0) * len(worlds.SHAPES) > wanted:
                continue
            decided = judge(options, path)
            if decided is None:
                continue
            kept[shape] = kept.get(shape, 0) + 1
            case = {"now": worlds.NOW, "upstream": decided, "state": {"apiVersion": "v1", "kind": "List", "items": world.objects}}
            text = json.dumps(case, sort_keys=True, separators=(",", ":"))
            (GOLDEN / f"{kind}-{name}.json").write_text(text + "\n")
    print(f"{kind}: {kept}")


def written_by_hand(options):
    """The cases that are written by hand."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Times stay text."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for folder in sorted(HAND_WRITTEN.glob("*/")):
        items = [quantities(item) for item in yaml.load_all((folder / "state.yaml").read_text(), Loader=Loader) if item]
        items = [part for item in items for part in (item["items"] if item["kind"] == "List" else [item])]
        kind, name = folder.name.split("-", 1)
        judge = provisioning if kind == "provision" else disruption
        case = {"now": worlds.NOW, "upstream": judge(options, str(folder / "state.yaml")), "state": {"apiVersion": "v1", "kind": "List", "items": items}}
        text = json.dumps(case, sort_keys=True, separators=(",", ":"))
        (GOLDEN / f"{kind}-case-{name}.json").write_text(text + "\n")


def quantities(value):
    """Amounts are text, also where they were written as numbers."""
    if isinstance(value, dict):
        amounts = ("requests", "limits", "capacity", "allocatable")
        return {key: {name: str(one) for name, one in part.items()} if key in amounts else quantities(part) for key, part in value.items()}
    return [quantities(part) for part in value] if isinstance(value, list) else value


def main():
    options = arguments(__doc__)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for old in GOLDEN.glob("*.json"):
        old.unlink()
    write(options, "provision", worlds.provisioning_world, provisioning, 40)
    write(options, "disrupt", worlds.disruption_world, disruption, 40)
    written_by_hand(options)
    size = sum(f.stat().st_size for f in GOLDEN.glob("*"))
    print(f"{size} bytes in {GOLDEN}", file=sys.stderr)


if __name__ == "__main__":
    main()
