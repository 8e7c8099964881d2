#!/usr/bin/env python3
"""Holds the corpus against a running API server that has our CustomResourceDefinitions, with kubectl.

Usage: against_server.py --kubeconfig FILE [CORPUS...]      (needs PyYAML and kubectl; leaves nothing behind)
"""
import argparse
import copy
import glob
import json
import os
import subprocess
import sys

import yaml

PLURALS = {
    "NodePool": "nodepools",
    "NodeClaim": "nodeclaims",
    "NodeOverlay": "nodeoverlays",
    "CapacityBuffer": "capacitybuffers",
    "KWOKNodeClass": "kwoknodeclasses",
    "EC2NodeClass": "ec2nodeclasses",
    "AKSNodeClass": "aksnodeclasses",
}


def expand(value):
    if isinstance(value, dict):
        if "$list" in value:
            return [expand(value["of"]) for _ in range(value["$list"])]
        if "$map" in value:
            return {f"key-{index}": expand(value["of"]) for index in range(value["$map"])}
        if "$text" in value:
            return value["of"] * value["$text"]
        return {key: expand(item) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item) for item in value]
    return value


def change(target, paths):
    target = copy.deepcopy(target)
    for path, value in paths.items():
        *parents, last = path.split(".")
        place = target
        for name in parents:
            place = place.setdefault(name, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = expand(value)
    return target


def at(target, path):
    for name in path.split("."):
        target = target.get(name, {}) if isinstance(target, dict) else {}
    return target


def includes(actual, wanted):
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(includes(actual.get(key), item) for key, item in wanted.items())
    if isinstance(wanted, list):
        return isinstance(actual, list) and len(actual) == len(wanted) and all(map(includes, actual, wanted))
    return actual == wanted


class Server:
    def __init__(self, kubeconfig):
        self.kubectl = ["kubectl", "--kubeconfig", kubeconfig]

    def send(self, verb, path, body=None):
        command = [*self.kubectl, verb, "--raw", path] + (["-f", "-"] if body is not None else [])
        done = subprocess.run(command, input=json.dumps(body) if body is not None else None, capture_output=True, text=True, check=False)
        return (json.loads(done.stdout), None) if done.returncode == 0 else (None, done.stderr)


def run_case(server, base, case):
    """The stored object, or the refusal."""
    path = f"/apis/{base['apiVersion']}/"
    namespace = base["metadata"].get("namespace")
    path += (f"namespaces/{namespace}/" if namespace else "") + PLURALS[base["kind"]]
    here = f"{path}/{base['metadata']['name']}"
    try:
        stored, error = server.send("create", path, change(base, case.get("set", {})))
        if error:
            return None, error
        if "then" in case:
            stored, error = server.send("replace", here, change(stored, case["then"]))
        if "status" in case:
            stored, error = server.send("replace", f"{here}/status", change(stored, case["status"]))
        return stored, error
    finally:
        server.send("delete", here)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("corpus", nargs="*")
    arguments = parser.parse_args()
    files = arguments.corpus or sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(__file__)), "*.yaml")))
    server, count, failures = Server(arguments.kubeconfig), 0, 0
    for file in files:
        with open(file, encoding="utf-8") as text:
            corpus = yaml.safe_load(text)
        for case in corpus["cases"]:
            stored, error = run_case(server, corpus["base"], case)
            wanted = case.get("error")
            fine = (wanted is None) == (error is None) and (wanted is None or wanted in error)
            missing = [path for path, value in case.get("shows", {}).items() if not includes(at(stored or {}, path), value)]
            count += 1
            if not fine or missing:
                failures += 1
                print(f"FAIL {os.path.basename(file)}: {case['name']}\n  wanted: {wanted or 'accepted'}\n  got: {(error or 'accepted').strip()}\n  not shown: {missing}")
    print(f"{count} cases, {failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
