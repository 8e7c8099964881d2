#!/usr/bin/env python3
"""Runs upstream's end-to-end suites against Spokeshave (or upstream's own operator) on the embedded API server, and prints a table of specs.

Ends with 1 when a spec fails that is not in known-failures.md. A spec that fails is run once more by itself, because the specs wait by the wall clock;
what fails twice counts. Specs that an earlier failure of their container left out are run by themselves as well; one without a report then has failed, too.
What surrounds the specs (BeforeSuite, AfterSuite) may fail in none of these runs, and none may crash, whatever its specs have come to.
Only what the time did not suffice for is not judged, and a run that has judged no spec at all ends with 1.
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
# No spec takes as long by itself, in seconds: what is not through by then hangs.
HANG_SECONDS = 3600
# After so many runs in a row that were broken as a whole, the others would be, too.
MOST_BROKEN = 3
# What ginkgo says of a spec that it has ended because the time for everything was over.
TIME_IS_OVER = "suite timeout"


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


def nodes(path):
    """Ginkgo's reports: of specs, and of what surrounds them all."""
    return [one for suite in json.loads(path.read_text()) for one in suite.get("SpecReports") or []]


def reported(path):
    """Ginkgo's reports of the specs that were meant, by name."""
    specs = {}
    for spec in nodes(path):
        if spec.get("LeafNodeType") == "It" and spec["State"] != "pending":
            text = " ".join([*(spec.get("ContainerHierarchyTexts") or []), spec.get("LeafNodeText", "")])
            specs[text] = spec
    return specs


def broken_by(path):
    """Which of the nodes that surround all specs (BeforeSuite, AfterSuite) has failed, and why."""
    for node in nodes(path):
        if node.get("LeafNodeType") != "It" and node["State"] not in ("passed", "skipped", "pending"):
            return f"{node['LeafNodeType']}: {reason(node)}"
    return None


def listed(options, focus):
    """The names of the specs that are meant."""
    folder = TARGET / "suites/run"
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{options.name}-list.json"
    done = subprocess.run(program(options, focus, report, "-ginkgo.dry-run"), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the specs cannot be listed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return sorted(name for name, spec in reported(report).items() if spec["State"] == "passed")


class Ran:
    """How a run went: the reports of specs by name, whether its time was over before it was through, and what broke it as a whole, if something has."""

    def __init__(self, specs, is_late=False, broken=None):
        self.specs, self.broken = specs, broken
        self.is_late = is_late or TIME_IS_OVER in (broken or "").lower() or any(is_late_report(spec) for spec in specs.values())


def run(options, name, focus, seconds):
    """Runs specs on a cluster of their own."""
    folder = TARGET / "suites/run" / name
    started = subprocess.run([HERE / "cluster.sh", name, options.operator, str(options.port)])
    if started.returncode:
        sys.exit("the cluster did not come up")
    report, log = folder / "report.json", folder / "suite.log"
    limits = ["-test.timeout", "4h", "-ginkgo.grace-period", "20s", "-ginkgo.timeout", f"{max(int(seconds), LEAST_SECONDS)}s"]
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "OUTPUT_DIR": str(folder)}
    try:
        with open(log, "wb") as output:
            subprocess.run(program(options, focus, report, *limits), env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT, timeout=seconds + 120)
        return Ran(reported(report), broken=broken_by(report))
    except subprocess.TimeoutExpired:
        return Ran({}, is_late=True)
    except (OSError, ValueError):
        # It crashed, before the report or in the middle of it.
        said = log.read_text(errors="replace").strip().splitlines()[-5:] if log.exists() else []
        print(f"the suite wrote no report; see {log}", *said, sep="\n  ", file=sys.stderr)
        return Ran({}, broken=f"the suite wrote no report: {said[-1] if said else 'it said nothing'}")
    finally:
        subprocess.run([HERE / "down.sh", name])


def alone(options, index, name, seconds):
    """The report of a spec that is run by itself, and what broke that run before its time was over. One that there is no report of has failed; it is None where the time was over."""
    seconds = min(seconds, HANG_SECONDS)
    ran = run(options, f"{options.name}-again-{index}", [f"{re.escape(name)}$"], seconds)
    spec = ran.specs.get(name)
    if not unjudged(spec):
        return spec, None if ran.is_late else ran.broken
    if ran.is_late:
        return failure(f"not through by itself after {seconds:.0f} s") if seconds == HANG_SECONDS else None, None
    return failure(ran.broken or "it was left out when it was run by itself"), ran.broken


def failure(text):
    """A report of ours, of a spec that ginkgo has none of."""
    return {"State": "failed", "Failure": {"Message": text}}


def reason(spec):
    """Why a node has failed, in a line."""
    return ((spec.get("Failure") or {}).get("Message", "").strip().splitlines() or [spec["State"]])[0][:160]


def passed(spec):
    return spec is not None and spec["State"] == "passed"


def is_late_report(spec):
    """Ended because the time for everything was over."""
    return TIME_IS_OVER in (spec.get("Failure") or {}).get("Message", "").lower()


def unjudged(spec):
    """Not run, or not to its end because the time for everything was over."""
    return spec is None or spec["State"] == "skipped" or is_late_report(spec)


def judge(name, first, second, known, why_not):
    """(verdict, note) of a spec by its reports of the first run and of the one by itself, None where there is none; `why_not` is why none was tried any more."""
    spec = second or first
    if unjudged(spec):
        return "not run", "ended with the time for everything" if spec and is_late_report(spec) else why_not
    if passed(spec):
        if name in known:
            return "passed", "take it off known-failures.md"
        return "passed", "at the second try" if second and not unjudged(first) else ""
    if name in known:
        return "failed", f"known: {known[name]}"
    return "FAILED", reason(spec)


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
    ran = run(options, options.name, focus, left())
    if ran.broken:
        print(f"the run of all of them was broken: {ran.broken}", flush=True)
    again, in_a_row, breaks = {}, 0, []
    # What its end has come too early for is not judged.
    if ran.broken and not ran.is_late:
        breaks.append(ran.broken)
    for index, name in enumerate(names):
        spec = ran.specs.get(name)
        if left() < LEAST_SECONDS or in_a_row == MOST_BROKEN:
            break
        if spec is None or (not passed(spec) and (name not in known or spec["State"] == "skipped")):
            again[name], broken = alone(options, index, name, left())
            in_a_row = in_a_row + 1 if broken else 0
            if broken:
                breaks.append(f"{broken} ({name} by itself)")
    is_hopeless = in_a_row == MOST_BROKEN
    verdicts = {}
    for name in names:
        first, second = ran.specs.get(name), again.get(name)
        verdicts[name], note = judge(name, first, second, known, "not tried" if is_hopeless else "no time left")
        seconds = (second or first or {}).get("RunTime", 0) / 1e9
        print(f"{verdicts[name]:8} {seconds:6.0f} s  {name}{'  (' + note + ')' if note else ''}")
    if is_hopeless:
        breaks = [f"{MOST_BROKEN} runs in a row, and no further spec was tried"]
    sys.exit(conclude(options, list(verdicts.values()), breaks))


def conclude(options, verdicts, breaks):
    """Prints the last line, and what it does not tell; gives the status."""
    count = {verdict: verdicts.count(verdict) for verdict in ("passed", "failed", "FAILED", "not run")}
    print(f"\n{count['passed']} of {len(verdicts)} specs passed with {options.operator}; {count['not run']} not run; {count['FAILED']} failed that are not known to")
    wrong = count["FAILED"] > 0
    if count["not run"] == len(verdicts):
        print(f"no spec was judged in {options.seconds} s, so that nothing is said about {options.operator}")
        wrong = True
    for broken in breaks:
        print(f"broken as a whole: {broken}")
        wrong = True
    if wrong:
        print(f"logs: {TARGET}/suites/run/{options.name}*", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    main()
