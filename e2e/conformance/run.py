#!/usr/bin/env python3
"""Sends one list of requests to two API servers and compares the answers.

    run.py [--only GLOB] [--show] [--write] OURS-KUBECONFIG REAL-KUBECONFIG

Requests are data: requests.jsonl, one JSON object a line (its header explains the fields). Status codes and normalised bodies
are compared place by place. A difference is allowed when differences.md names the request and the place, with a reason; a row
there that no longer matches anything is an error too. Two servers that fail alike are not equal: the genuine one must answer each
request with the status of requests.statuses (--write writes it), a request that waits for a status must get it, and what is saved
must be there. Needs nothing but Python 3.9 or later. PATIENCE multiplies waits, for machines that are busy with something else.
"""

import argparse
import fnmatch
import json
import os
import re
import sys
import threading
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
STATUSES = os.path.join(HERE, "requests.statuses")
sys.path.insert(0, os.path.dirname(HERE))
from apiserver import PATIENCE, Server  # noqa: E402

USER_AGENT = "conformance/1"
VARIABLE = re.compile(r"\$\{(\w+)\}")
CONTENT_TYPES = {
    "json": "application/json",
    "yaml": "application/yaml",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "jsonpatch": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
    "none": None,
}
ACCEPT = {
    "json": "application/json",
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "partial": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "partiallist": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "aggregated": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    # As clients send them.
    "kubectl-get": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    "kubectl-openapi": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "kubectl-discovery": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
    "client-go": "application/json, */*",
    "client-go-metadata": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    "client-go-metadata-list": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    "python": "application/json",
}


def substitute(value, variables):
    """Replaces ${name} everywhere in a request."""
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: variables[found.group(1)], value)
    if isinstance(value, list):
        return [substitute(item, variables) for item in value]
    if isinstance(value, dict):
        return {key: substitute(item, variables) for key, item in value.items()}
    return value


def pick(value, pointer):
    for part in pointer.strip("/").split("/"):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError):
            return None
    return value


TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")


def normalise(value, key=None, generated=()):
    """Takes out what no two servers can share: identities, versions, times, tokens."""
    if isinstance(value, dict):
        result = {name: normalise(item, name, generated) for name, item in value.items()}
        if isinstance(result.get("managedFields"), list):
            result["managedFields"].sort(key=lambda entry: json.dumps(entry, sort_keys=True))
        # The genuine server collects conflicts from a map of managers, in no order.
        if isinstance(result.get("causes"), list) and all(cause.get("reason") == "FieldManagerConflict" for cause in result["causes"]):
            result["causes"].sort(key=lambda cause: (cause["field"], cause["message"]))
        return result
    if isinstance(value, list):
        return [normalise(item, None, generated) for item in value]
    if key in ("resourceVersion", "continue", "uid") and value:
        return f"<{key}>"
    if isinstance(value, str):
        for name in generated:
            value = value.replace(name, "<generated>")
        value = TIME.sub("<time>", value)
        value = UID.sub("<uid>", value)
        value = re.sub(r"in record \(\d+\)", "in record (<resourceVersion>)", value)
        # Ages in tables.
        if re.fullmatch(r"(\d+[smhd]){1,2}|<invalid>|<unknown>", value) and key is None:
            return "<age>"
    return value


def differences(ours, real, place):
    """Yields (place, ours, real) for every leaf that differs."""
    if isinstance(ours, dict) and isinstance(real, dict):
        for key in sorted(set(ours) | set(real)):
            inner = f"{place}.{key}"
            if key not in ours:
                yield inner, "(absent)", real[key]
            elif key not in real:
                yield inner, ours[key], "(absent)"
            else:
                yield from differences(ours[key], real[key], inner)
    elif isinstance(ours, list) and isinstance(real, list):
        if len(ours) != len(real):
            yield f"{place}.length", len(ours), len(real)
        for index, (left, right) in enumerate(zip(ours, real)):
            yield from differences(left, right, f"{place}[{index}]")
    elif ours != real or isinstance(ours, bool) != isinstance(real, bool):
        yield place, ours, real


def identity(entry):
    if isinstance(entry, dict):
        for key in ("name", "resource", "subresource", "groupVersion", "version"):
            if isinstance(entry.get(key), str):
                return entry[key]
        return (entry.get("metadata") or {}).get("name")
    return entry if isinstance(entry, str) else None


def only_ours(ours, real):
    """The real value without list entries that ours does not have: for discovery, where a real server serves more."""
    if isinstance(ours, dict) and isinstance(real, dict):
        return {key: only_ours(ours[key], item) if key in ours else item for key, item in real.items()}
    if isinstance(ours, list) and isinstance(real, list):
        theirs = {identity(entry): entry for entry in real}
        if all(identity(entry) is not None for entry in ours):
            return [only_ours(entry, theirs[identity(entry)]) for entry in ours if identity(entry) in theirs]
    return real


def sort_causes(status):
    """Go walks maps in random order, so what is wrong with several fields comes in any order."""
    causes = pick(status, "/details/causes") or []
    order = lambda cause: (cause.get("field") == "<nil>", cause.get("field"), cause.get("message"))  # noqa: E731
    sentences = [f"{cause.get('field')}: {cause.get('message')}" for cause in causes]
    in_order = sorted(causes, key=order)
    if causes:
        status["details"]["causes"] = in_order
        status["message"] = status["message"].replace(
            ", ".join(sentences), ", ".join(f"{cause.get('field')}: {cause.get('message')}" for cause in in_order)
        )


class Run:
    """One server's way through the list."""

    def __init__(self, name, server):
        self.name, self.server, self.variables, self.generated = name, server, {}, []
        # What is wrong with this server's answers, whatever the other one says.
        self.complaints = []

    def request(self, step, answered=None):
        step = substitute(step, self.variables)
        body = step.get("raw")
        if body is None and "b" in step:
            body = json.dumps(step["b"])
        if "fill" in step:
            body = body.replace("@FILL@", "x" * step["fill"])
        if isinstance(body, str):
            body = body.encode()
        kind = step.get("ct", "json" if body is not None else "none")
        content_type = CONTENT_TYPES.get(kind, kind)
        accept = ACCEPT.get(step.get("accept", "json"), step.get("accept"))
        path = urllib.parse.quote(step["p"], safe="/?&=%,:!()+~*@$;")
        return self.server.send(step["m"], path, body, content_type, accept, step.get("h"), step.get("anonymous"), answered)

    def perform(self, step):
        """The answer, as comparable JSON."""
        seconds, until = 15 * PATIENCE, step.get("until")
        deadline = time.monotonic() + seconds
        while True:
            if step.get("during"):
                status, headers, raw = self.watch(step)
            else:
                status, headers, raw = self.request(step)
            if until is None or status == until or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if until not in (None, status):
            self.complaints.append(f"{self.name} answers {status}, and not {until} within {seconds:.0f} s")
        text = raw.decode("utf-8", "replace")
        answer = {"status": status}
        if step.get("type"):
            answer["type"] = headers.get("Content-Type")
        warning = headers.get("Warning")
        if warning:
            answer["warning"] = warning
        if step.get("watch"):
            try:
                events = [json.loads(line) for line in text.splitlines() if line.strip()]
                answer["body"] = [event for event in events if self.is_telling(event)]
            except (ValueError, AttributeError):
                answer["body"] = text
        else:
            try:
                answer["body"] = json.loads(text)
            except ValueError:
                answer["body"] = text
        for name, pointer in step.get("save", {}).items():
            value = pick(answer["body"], pointer)
            if not value:
                self.complaints.append(f"{self.name} has no {pointer} to save")
            self.variables[name] = "" if value is None else str(value)
            if pointer == "/metadata/name" and value:
                self.generated.append(str(value))
        if step.get("anyorder"):
            sort_causes(answer["body"])
        if "pick" in step:
            answer["body"] = pick(answer["body"], step["pick"])
        if step.get("body") is False:
            del answer["body"]
        return normalise(answer, None, self.generated)

    @staticmethod
    def is_telling(event):
        """Bookmarks come when a server likes, except the one that ends the initial events."""
        annotations = pick(event, "/object/metadata/annotations") or {}
        return event.get("type") != "BOOKMARK" or "k8s.io/initial-events-end" in annotations

    def watch(self, step):
        """Sends the requests of `during` while the watch is open."""
        answer, is_open = [], threading.Event()
        reader = threading.Thread(target=lambda: answer.append(self.request(step, is_open)))
        reader.start()
        is_open.wait(15 * PATIENCE)
        for inner in step["during"]:
            self.request(inner)
        reader.join()
        if not answer:
            sys.exit(f"{step['id']}: {self.name} gives no answer")
        return answer[0]


def load_steps():
    steps = []
    with open(os.path.join(HERE, "requests.jsonl"), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                try:
                    steps.append(json.loads(line))
                except ValueError as error:
                    sys.exit(f"requests.jsonl:{number}: {error}")
    names = [step["id"] for step in steps]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        sys.exit(f"requests.jsonl: ids used twice: {', '.join(sorted(doubled))}")
    saved = set()
    for step in steps:
        unknown = set(VARIABLE.findall(json.dumps(step))) - saved
        if unknown:
            sys.exit(f"requests.jsonl: {step['id']}: no earlier request saves {', '.join(sorted(unknown))}")
        saved.update(step.get("save", {}))
    return steps


def load_statuses():
    """What the genuine server answers, by request."""
    if not os.path.exists(STATUSES):
        return {}
    with open(STATUSES, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {name: int(status) for name, status in rows}


def write_statuses(statuses):
    with open(STATUSES, "w", encoding="utf-8") as file:
        file.write("# The status with which a genuine API server answers each request (run.py --write): a request that has come to nothing is seen by it.\n")
        file.writelines(f"{name} {status}\n" for name, status in statuses.items())


def expected_statuses(seen, known):
    """Sentences about requests that the genuine server answers with another status than the committed one."""
    wrong = [f"{name}: the genuine server answers {status}, and requests.statuses has {known.get(name, 'none')}" for name, status in seen.items() if known.get(name) != status]
    return wrong + [f"{name}: is in requests.statuses and not in requests.jsonl" for name in known if name not in seen]


def load_allowed():
    rows = []
    with open(os.path.join(HERE, "differences.md"), encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if line.startswith("| `") and len(cells) == 3:
                if not cells[2]:
                    sys.exit(f"differences.md: no reason given for {cells[0]} {cells[1]}")
                rows.append((cells[0].strip("`"), cells[1].strip("`"), cells[2]))
    return rows


def matches(glob, text):
    """fnmatch, but brackets are literal: places contain them."""
    return fnmatch.fnmatchcase(text, glob.replace("[", "[[]"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ours")
    parser.add_argument("real")
    parser.add_argument("--only", default="*", help="compare only requests whose id matches (all are sent)")
    parser.add_argument("--all", action="store_true", help="show the listed differences too")
    parser.add_argument("--show", action="store_true", help="print both answers of every compared request")
    parser.add_argument("--write", action="store_true", help="write the statuses of the genuine server into requests.statuses")
    arguments = parser.parse_args()
    steps, allowed = load_steps(), load_allowed()
    ours, real = (Run(name, Server(kubeconfig, USER_AGENT)) for name, kubeconfig in (("ours", arguments.ours), ("the genuine server", arguments.real)))
    started, used, failed, listed, equal, statuses = time.monotonic(), set(), 0, 0, 0, {}
    for step in steps:
        left, right = ours.perform(step), real.perform(step)
        statuses[step["id"]] = right["status"]
        complaints = ours.complaints + real.complaints
        ours.complaints, real.complaints = [], []
        if complaints:
            failed += 1
            print(f"FAIL {step['id']}: {step['m']} {step['p']}", *complaints, sep="\n     ")
        if not fnmatch.fnmatchcase(step["id"], arguments.only):
            continue
        if arguments.show:
            print(f"--- {step['id']}\nours: {json.dumps(left, indent=1)}\nreal: {json.dumps(right, indent=1)}")
        if step.get("compare") == "ours":
            right = only_ours(left, right)
        found = list(differences(left, right, ""))
        unlisted = []
        for place, mine, theirs in found:
            row = next((row for row in allowed if matches(row[0], step["id"]) and matches(row[1], place.lstrip("."))), None)
            if row:
                used.add(row)
            else:
                unlisted.append((place.lstrip("."), mine, theirs))
        if arguments.all:
            for place, mine, theirs in found:
                print(f"DIFF {step['id']} {place.lstrip('.')}\n       ours: {json.dumps(mine)[:900]}\n       real: {json.dumps(theirs)[:900]}")
        equal, listed = equal + (not found and not complaints), listed + bool(found and not unlisted and not complaints)
        if unlisted:
            failed += not complaints
            print(f"FAIL {step['id']}: {step['m']} {step['p']}")
            for place, mine, theirs in unlisted[:12]:
                print(f"     {place}\n       ours: {json.dumps(mine)[:400]}\n       real: {json.dumps(theirs)[:900]}")
            if len(unlisted) > 12:
                print(f"     … and {len(unlisted) - 12} more places")
    stale = [row for row in allowed if row not in used] if arguments.only == "*" else []
    for row in stale:
        print(f"STALE differences.md: {row[0]} {row[1]} matches no difference any more; remove the row")
    if arguments.write:
        write_statuses(statuses)
    vacuous = expected_statuses(statuses, load_statuses())
    for sentence in vacuous:
        print(f"STATUS {sentence}; run with --write where it is meant to be so")
    seconds = time.monotonic() - started
    print(f"{len(steps)} requests in {seconds:.0f} s: {equal} equal, {listed} with listed differences, {failed} with unlisted ones")
    return 1 if failed or stale or vacuous else 0


if __name__ == "__main__":
    sys.exit(main())
