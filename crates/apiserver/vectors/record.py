#!/usr/bin/env python3
"""Asks a genuine kube-apiserver what it makes of the cases in the files of this folder and writes its answers into them.

    record.py KUBECONFIG [FILE]…

The tests of the crate compare our answers with these. A new case needs only its input: record.py adds the rest. Needs nothing but Python 3.9
or later, and a server whose objects may be thrown away.
"""

import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "e2e"))
from apiserver import Server  # noqa: E402

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OBJECTS = "/apis/vectors.example.com/v1/vectors"


class Recorder:
    def __init__(self, server):
        self.server = server

    def send(self, method, path, body=None, content_type="application/json"):
        data = None if body is None else json.dumps(body).encode()
        status, _, raw = self.server.send(method, path, data, content_type if data else None)
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode()

    def must(self, *request):
        status, answer = self.send(*request)
        if status >= 300:
            sys.exit(f"{request[:2]}: {json.dumps(answer)[:600]}")
        return answer

    def until(self, wanted, *request):
        for _ in range(100):
            status, answer = self.send(*request)
            if status == wanted:
                return answer
            time.sleep(0.1)
        sys.exit(f"{request}: still {status}, not {wanted}")

    def remove_definition(self):
        self.send("DELETE", f"{DEFINITIONS}/vectors.vectors.example.com")
        self.until(404, "GET", OBJECTS)
        self.until(404, "GET", f"{DEFINITIONS}/vectors.vectors.example.com")


def definition(schema):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "vectors.vectors.example.com"},
        "spec": {
            "group": "vectors.example.com",
            "scope": "Cluster",
            "names": {"plural": "vectors", "kind": "Vector"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def custom_object(content, name):
    return {"apiVersion": "vectors.example.com/v1", "kind": "Vector", "metadata": {"name": name}, **content}


def outcome(case, status, answer):
    """Stores the causes of a refusal, or the content of what was accepted."""
    for key in ("causes", "result", "refused"):
        case.pop(key, None)
    if status == 422:
        causes = (answer.get("details") or {}).get("causes", [])
        case["causes"] = sorted([cause["reason"], cause["field"], cause["message"]] for cause in causes)
    elif status >= 400:
        case["refused"] = [status, answer["message"]]
    else:
        case["result"] = {key: value for key, value in answer.items() if key not in ("apiVersion", "kind", "metadata")}


def record_objects(recorder, vectors):
    """Custom objects under one schema; with `old`, replacements of stored objects; with `before`, stored under a laxer schema."""
    recorder.remove_definition()
    recorder.must("POST", DEFINITIONS, definition(vectors.get("before", vectors["schema"])))
    recorder.until(200, "GET", OBJECTS)
    for index, case in enumerate(vectors["cases"]):
        if "old" in case:
            recorder.must("POST", OBJECTS, custom_object(case["old"], f"x{index}"))
    if "before" in vectors:
        versions = definition(vectors["schema"])["spec"]["versions"]
        recorder.must("PATCH", f"{DEFINITIONS}/vectors.vectors.example.com", {"spec": {"versions": versions}}, "application/merge-patch+json")
        recorder.until(422, "POST", f"{OBJECTS}?dryRun=All", custom_object(vectors["refused_after"], "probe"))
    for index, case in enumerate(vectors["cases"]):
        if "old" in case:
            live = recorder.must("GET", f"{OBJECTS}/x{index}")
            new = custom_object(case["new"], f"x{index}")
            new["metadata"] = live["metadata"]
            outcome(case, *recorder.send("PUT", f"{OBJECTS}/x{index}?dryRun=All", new))
        else:
            outcome(case, *recorder.send("POST", f"{OBJECTS}?dryRun=All", custom_object(case["new"], "x")))
    recorder.remove_definition()


def record_definitions(recorder, vectors):
    for case in vectors["cases"]:
        body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": case["name"]}, "spec": case["spec"]}
        status, answer = recorder.send("POST", f"{DEFINITIONS}?dryRun=All", body)
        outcome(case, status, answer)
        if "result" in case:
            case["result"] = {}


KINDS = {"custom objects": record_objects, "definitions": record_definitions}


def write(path, vectors):
    """One line a case, so that a change shows as one."""
    head = json.dumps({key: value for key, value in vectors.items() if key != "cases"}, ensure_ascii=False)
    cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in vectors["cases"])
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'{head[:-1]}, "cases": [\n{cases}\n]}}\n')


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    recorder = Recorder(Server(sys.argv[1], "vectors/1"))
    paths = sys.argv[2:] or sorted(os.path.join(HERE, name) for name in os.listdir(HERE) if name.endswith(".json"))
    for path in paths:
        with open(path, encoding="utf-8") as file:
            vectors = json.load(file)
        KINDS[vectors["kind"]](recorder, vectors)
        write(path, vectors)
        print(f"{path}: {len(vectors['cases'])} cases")


if __name__ == "__main__":
    main()
