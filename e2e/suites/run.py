#!/usr/bin/env python3
"""Runs upstream's end-to-end suites against Spokeshave (or upstream's own operator) on the embedded API server, and prints a table of specs.

Ends with 1 when a spec fails that is not in known-failures.md. A spec that fails is run once more by itself, because the specs wait by the wall clock;
what fails twice counts. Specs that an earlier failure of their container left out are run by themselves as well.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
NAME = re.compile(r"^\| `(?P<spec>[^`]+)` \| (?P<operator>[a-z]+) \| (?P<reason>[^|]+) \|", re.M)

# How build.sh ends where Go or its modules are missing.
UNAVAILABLE = 3
# A cluster is not begun with less time than this, in seconds.
LEAST_SECONDS = 60


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", help="regular expressions of the specs' names; by default all")
    parser.add_argument("--suite", default="regression", choices=["regression", "performance"])
    parser.add_argument("--operator", default="spokeshave", choices=["spokeshave", "upstream", "embedded"])
    parser.add_argument("--file", help="only the specs of this file, such as drift_test.go")
    parser.add_argument("--selection", type=Path, help="a file with a regular expression a line, in place of SPECS")
    parser.add_argument("--seconds", type=int, default=3 * 3600, help="time for everything; specs that it does not suffice for are listed and not judged")
    parser.add_argument("--port", type=int, default=18080, help="metrics of the operator; its probes are on the next port")
    parser.add_argument("--name", default="suites", help="folder below target/suites/run")
    return parser.parse_args()


def build(instrument, **environment):
    done = subprocess.run([HERE.parent / "build.sh", instrument], env={**os.environ, **environment})
    if done.returncode == UNAVAILABLE and os.environ.get("SKIP_WITHOUT_GO") == "1":
        print(f"skipped: {instrument} cannot be built here", file=sys.stderr)
        sys.exit(0)
    if done.returncode:
        sys.exit(f"{instrument} cannot be built here; SKIP_WITHOUT_GO=1 leaves out what needs Go")


def known_failures(operator):
    text = (HERE / "known-failures.md").read_text()
    return {row["spec"]: row["reason"] for row in NAME.finditer(text) if row["operator"] == operator}


def focus_of(options):
    if not options.selection:
        return options.specs
    lines = options.selection.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def program(options, focus, report, *more):
    """The command that runs the suite's specs of these names, with its report in a file."""
    command = [str(TARGET / f"suites/bin/{options.suite}.test"), "-ginkgo.no-color", "-ginkgo.v", "-ginkgo.json-report", str(report), *more]
    command += [f"-ginkgo.focus={one}" for one in focus]
    return command + ([f"-ginkgo.focus-file={options.file}"] if options.file else [])


def reported(path):
    """Ginkgo's reports of the specs that were meant, by name."""
    specs = {}
    for spec in (one for suite in json.loads(path.read_text()) for one in suite.get("SpecReports") or []):
        if spec.get("LeafNodeType") == "It" and spec["State"] != "pending":
            text = " ".join([*(spec.get("ContainerHierarchyTexts") or []), spec.get("LeafNodeText", "")])
            specs[text] = spec
    return specs


def listed(options, focus):
    """The names of the specs that are meant."""
    folder = TARGET / "suites/run"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{options.name}-list.json"
    done = subprocess.run(program(options, focus, report, "-ginkgo.dry-run"), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the specs cannot be listed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return sorted(name for name, spec in reported(report).items() if spec["State"] == "passed")


def run(options, name, focus, seconds):
    """Runs specs on a cluster of their own; gives their reports."""
    folder = TARGET / "suites/run" / name
    started = subprocess.run([HERE / "cluster.sh", name, options.operator, str(options.port)])
    if started.returncode:
        sys.exit("the cluster did not come up")
    report = folder / "report.json"
    limits = ["-test.timeout", "4h", "-ginkgo.grace-period", "20s", "-ginkgo.timeout", f"{max(int(seconds), LEAST_SECONDS)}s"]
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "OUTPUT_DIR": str(folder)}
    try:
        with open(folder / "suite.log", "wb") as log:
            subprocess.run(program(options, focus, report, *limits), env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, timeout=seconds + 120)
    except subprocess.TimeoutExpired:
        pass
    finally:
        subprocess.run([HERE / "down.sh", name])
    if not report.exists():
        print(f"the suite wrote no report; see {folder}/suite.log", file=sys.stderr)
        return {}
    return reported(report)


def passed(spec):
    return spec["State"] == "passed"


def unjudged(spec):
    """Not run, or not to its end because the time for everything was over."""
    return spec is None or spec["State"] == "skipped" or "suite timeout" in spec.get("Failure", {}).get("Message", "").lower()


def main():
    options = arguments()
    if options.operator == "upstream":
        build("operator")
    build("suites", SUITES=options.suite)
    known = known_failures(options.operator)
    begun = time.monotonic()

    def left():
        return options.seconds - (time.monotonic() - begun)

    focus = focus_of(options)
    names = listed(options, focus)
    if not names:
        sys.exit("no spec has such a name")
    print(f"{len(names)} specs", flush=True)
    specs = run(options, options.name, focus, left())
    again = {}
    for index, name in enumerate(names):
        spec = specs.get(name)
        if left() < LEAST_SECONDS:
            break
        if spec is None or (not passed(spec) and (name not in known or spec["State"] == "skipped")):
            alone = run(options, f"{options.name}-again-{index}", [f"{re.escape(name)}$"], left())
            again[name] = alone.get(name, spec)
    failed, late, count = [], [], 0
    for name in names:
        spec = again.get(name) or specs.get(name)
        seconds, note = (spec or {}).get("RunTime", 0) / 1e9, ""
        if unjudged(spec):
            verdict, note = "not run", "no time left"
            late.append(name)
        elif passed(spec):
            verdict = "passed"
            count += 1
            if name in known:
                note = "take it off known-failures.md"
            elif name in again and not unjudged(specs.get(name)):
                note = "at the second try"
        elif name in known:
            verdict, note = "failed", f"known: {known[name]}"
        else:
            verdict, note = "FAILED", (spec.get("Failure", {}).get("Message", "").strip().splitlines() or [spec["State"]])[0][:160]
            failed.append(name)
        print(f"{verdict:8} {seconds:6.0f} s  {name}{'  (' + note + ')' if note else ''}")
    print(f"\n{count} of {len(names)} specs passed with {options.operator}; {len(late)} not run; {len(failed)} failed that are not known to")
    if failed:
        print(f"logs: {TARGET}/suites/run/{options.name}*", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
