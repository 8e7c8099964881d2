#!/usr/bin/env python3
"""Runs the scenarios of upstream's performance suite with Spokeshave and with upstream's own operator, and prints what each cost, as one table.

Every run has an API server, simulated kubelets and an operator of its own. What happens is taken from watches beside the suite: a phase begins when a
Deployment or the NodePool is changed, and is at rest with the last node that came, went or was chosen to go, and the last pod that was bound. *Moved* are pods
that were created although no Deployment had grown; *moved at upstream's price* is how many of them it took to come down to where upstream's runs rest. Runs take
turns, so that a busy machine is as busy for the one as for the other.

The figures of each run are written into performance.json beside this script, with the version of the operator (ours: the commit that is checked out): all of them
take hours, and need not be taken in one go. Runs that are there are not repeated (--again does). --table only prints what is there.
"""

import argparse
import concurrent.futures
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import run
from bench import Bench

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "performance.json"
WRITES = threading.Lock()
# The suite's specs by a part of their name.
SCENARIOS = {
    "basic": "Basic Deployment",
    "do-not-disrupt": "Do Not Disrupt Performance Test",
    "drift": "Drift Performance",
    "host-name-spreading": "Host Name Spreading Deployment Reg",
    "host-name-spreading-xl": "Host Name Spreading Deployment XL",
    "interference": "Self Anti-Affinity Deployment Interference",
    "wide-deployments": "Wide Deployments",
}
OPERATORS = ["upstream", "spokeshave"]
# Changes that come within so many seconds of each other begin one phase.
ONE_CHANGE_SECONDS = 10
LONGEST_SECONDS = 3600
SAMPLE_SECONDS = 5
# Of the way to rest, the next point is kept when the price has fallen by so much of it: enough to say what the same number of moves has saved each operator.
POINT_PRICE_PERCENT = 0.2
# A run may fail in its first phase: the suite allows an operator half a core, which upstream's takes more than where it gets it.
MOST_TRIES = 5
# Where a spec failed that had lived all of its phases.
CLEANING_UP = "failed while cleaning up"
# How long a suite is left to clean up. Nothing is measured any more, and upstream's operator takes a quarter of an hour for hundreds of nodes.
CLEANING_SECONDS = 60
LEFT_CLEANING_UP = "passed, and was ended while cleaning up"
# What was ended after LONGEST_SECONDS: its figures are those of that moment, and the time to rest is at least what is said.
NOT_THROUGH = f"not through in {LONGEST_SECONDS} s"
GONE, NONE = "DELETED", "<none>"


def columns(*paths):
    """What kubectl prints of a watch's event: its type, and of its object these."""
    return ",".join(["EVENT:.type", *(f"C{number}:.object{path}" for number, path in enumerate(paths))])


NODE = columns(
    ".metadata.name", ".metadata.labels.node\\.kubernetes\\.io/instance-type", ".metadata.labels.topology\\.kubernetes\\.io/zone",
    ".metadata.labels.karpenter\\.sh/capacity-type", ".metadata.deletionTimestamp", ".spec.taints[*].key",
)
POD = columns(".metadata.uid", ".spec.nodeName")
DEPLOYMENT = columns(".metadata.name", ".spec.replicas")
NODE_POOL = columns(".metadata.name", ".metadata.generation", ".metadata.deletionTimestamp")


class Watch:
    """The changes of one kind, with the time at which each was seen."""

    def __init__(self, environment, columns, *what):
        self.changes, self.broke_off_at, self.is_ended = [], None, False
        command = ["kubectl", "get", *what, "--watch", "--output-watch-events", "--no-headers", "-o", f"custom-columns={columns}"]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.changes.append((time.monotonic(), *line.split()))
        if not self.is_ended:
            self.broke_off_at = time.monotonic()

    def end(self):
        self.is_ended = True
        self.process.terminate()
        self.process.wait()


class Observed(Bench):
    """A run of one scenario, beside the suite."""

    def __init__(self, folder):
        super().__init__(folder)
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig")}
        self.nodes_seen = Watch(environment, NODE, "nodes", "-l", "karpenter.sh/nodepool")
        self.pods_seen = Watch(environment, POD, "pods", "-A", "-l", "testing/cluster")
        self.deployments_seen = Watch(environment, DEPLOYMENT, "deployments", "-A", "-l", "testing/cluster")
        self.pools_seen = Watch(environment, NODE_POOL, "nodepools")
        self.cpu, self.mib = 0.0, 0

    def sample(self):
        try:
            self.cpu, self.mib = self.cpu_seconds(), max(self.mib, self.peak_mib())
        except (OSError, StopIteration):
            pass

    def end(self):
        """Ends the watches. One that broke off before the suite cleaned up has not seen everything: its figures would flatter whoever was slow. API servers end
        watches after half an hour to an hour, which some operators need to clean up."""
        watches = (self.nodes_seen, self.pods_seen, self.deployments_seen, self.pools_seen)
        for watch in watches:
            watch.end()
        _, cleans_up_at = self.turns()
        breaks = [watch.broke_off_at for watch in watches if watch.broke_off_at is not None]
        if any(cleans_up_at is None or moment < cleans_up_at for moment in breaks):
            raise RuntimeError(f"{self.folder.name}: a watch broke off before the suite had ended")

    def turns(self):
        """When phases begin, with the replicas wanted from then on and those by which Deployments have grown; and when the suite begins to clean up."""
        wanted, turns, end, generation = {}, [], None, None
        changes = [(at, "deployment", rest) for at, *rest in self.deployments_seen.changes] + [(at, "pool", rest) for at, *rest in self.pools_seen.changes]
        for at, kind, (event, name, value, *leaves) in sorted(changes):
            if event == GONE or (leaves and leaves[0] != NONE):
                end = at
                break
            before, grown = wanted.get(name) if kind == "deployment" else generation, 0
            if kind == "deployment":
                wanted[name] = int(value)
                grown = max(0, wanted[name] - (before or 0))
            else:
                generation = value
            if before == (wanted[name] if kind == "deployment" else value) or (kind == "pool" and before is None):
                continue
            if turns and at - turns[-1][0] < ONE_CHANGE_SECONDS:
                turns[-1] = (turns[-1][0], sum(wanted.values()), turns[-1][2] + grown)
            else:
                turns.append((at, sum(wanted.values()), grown))
        return turns, end

    def nodes_at(self, end):
        """The places of nodes that stand at a time."""
        nodes = {}
        for at, event, name, *place, _leaves, _taints in self.nodes_seen.changes:
            if at > end:
                break
            nodes[name] = tuple(place)
            if event == GONE:
                del nodes[name]
        return nodes

    def last_change(self, begin, end):
        """When the last node came, went or was chosen to go, or the last pod was bound."""
        last, states, bound = begin, {}, set()
        for at, event, name, *_place, leaves, taints in self.nodes_seen.changes:
            state = (event == GONE, leaves != NONE, "karpenter.sh/disrupted" in taints)
            if states.get(name) != state and begin <= at <= end:
                last = max(last, at)
            states[name] = state
        for at, _event, uid, node in self.pods_seen.changes:
            if node != NONE and uid not in bound:
                bound.add(uid)
                if begin <= at <= end:
                    last = max(last, at)
        return last

    def way(self, begin, until, created, grown):
        """How price and moves went down and up in a phase in which there are no more pods than before: pods moved so far, and the lowest price until then."""
        nodes, points, lowest = self.nodes_at(begin), [], None
        for at, event, name, *place, _leaves, _taints in self.nodes_seen.changes:
            if not begin < at <= until:
                continue
            nodes[name] = tuple(place)
            if event == GONE:
                del nodes[name]
            price = sum(self.prices[place] for place in nodes.values())
            if lowest is None or price <= lowest * (1 - POINT_PRICE_PERCENT / 100):
                lowest = price
                points.append([max(0, sum(moment <= at for moment in created) - grown), round(price, 3)])
        return points

    def phases(self):
        turns, end = self.turns()
        end = end or time.monotonic()
        first = {}
        for at, _event, uid, _node in self.pods_seen.changes:
            first.setdefault(uid, at)
        phases, before = [], 0
        for (begin, wanted, grown), (until, *_) in zip(turns, [*turns[1:], (end,)]):
            nodes = self.nodes_at(until)
            created = [at for at in first.values() if begin <= at < until]
            phase = {
                "pods": wanted, "nodes": len(nodes), "price": round(sum(self.prices[place] for place in nodes.values()), 3),
                "moved": max(0, len(created) - grown), "seconds": round(self.last_change(begin, until) - begin, 1),
            }
            if wanted <= before:
                phase["way"] = self.way(begin, until, created, grown)
            phases.append(phase)
            before = wanted
        return phases


def end_of(spec):
    """How a spec has ended. One that fails after its last phase, when the suite waits for NodePools to go, has lived them all."""
    is_over = spec["State"] == "failed" and spec["Failure"].get("FailureNodeType") == "AfterEach"
    return CLEANING_UP if is_over else spec["State"]


def lives(suite, observed):
    """Waits until a suite has ended, for LONGEST_SECONDS at most and CLEANING_SECONDS of cleaning up: whether it has by itself. What the operator takes is counted
    until the suite cleans up."""
    deadline, cleans_up = time.monotonic() + LONGEST_SECONDS, False
    while suite.poll() is None and time.monotonic() < deadline:
        if not cleans_up and observed.turns()[1]:
            cleans_up, deadline = True, min(deadline, time.monotonic() + CLEANING_SECONDS)
        if not cleans_up:
            observed.sample()
        time.sleep(SAMPLE_SECONDS)
    is_through = suite.poll() is not None
    if not is_through:
        suite.terminate()
        suite.wait()
    return is_through


def one_run(scenario, operator, repeat, port):
    """Runs one scenario with one operator; gives its figures."""
    name = f"performance-{scenario}-{operator}-{repeat}"
    folder = run.TARGET / "suites/run" / name
    settings = {**os.environ, "LOG_LEVEL": "info", "CPU_REQUESTS": "1000", "FEATURE_GATES": ""}
    if subprocess.run([HERE / "cluster.sh", name, operator, str(port)], env=settings).returncode:
        raise RuntimeError(f"{name}: the cluster did not come up")
    try:
        (folder / "catalog.json").write_bytes(subprocess.run([run.TARGET / "upstream/oracle", "catalog"], stdout=subprocess.PIPE, check=True).stdout)
        observed = Observed(folder)
        report = folder / "report.json"
        command = [str(run.TARGET / "suites/bin/performance.test"), "-ginkgo.no-color", "-ginkgo.v", "-ginkgo.json-report", str(report)]
        command += [f"-ginkgo.focus=Performance {SCENARIOS[scenario]} should", "-test.timeout", "2h"]
        environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "OUTPUT_DIR": str(folder)}
        with open(folder / "suite.log", "wb") as log:
            suite = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            is_through = lives(suite, observed)
        observed.end()
        if is_through:
            ends = [end_of(spec) for spec in run.reported(report).values() if spec["State"] != "skipped"] if report.exists() else []
        elif not observed.turns()[1]:
            ends = [NOT_THROUGH]
        else:
            # It says so at once when an expectation is not met, and then cleans up.
            ends = ["failed" if b"[FAILED]" in (folder / "suite.log").read_bytes() else LEFT_CLEANING_UP]
        return {
            "scenario": scenario, "operator": operator, "version": version(operator), "repeat": repeat, "end": ends[0] if len(ends) == 1 else "no report", "phases": observed.phases(),
            "cpu_seconds": round(observed.cpu, 1), "peak_mib": observed.mib,
        }
    finally:
        subprocess.run([HERE / "down.sh", name])


def kept():
    """The figures of the runs that there are."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def keep(name, result):
    """Writes a run's figures, one run a line, by renaming: an interrupt loses none."""
    with WRITES:
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in sorted({**kept(), name: result}.items()))
        written = FIGURES.with_suffix(".new")
        written.write_text(f"{{\n{lines}\n}}\n")
        written.replace(FIGURES)


def version(operator):
    """What ran, as its figures say it."""
    if operator == "upstream":
        return re.search(r"sigs\.k8s\.io/karpenter (v\S+)", (HERE / "go.mod").read_text())[1]
    return subprocess.run(["git", "-C", HERE, "rev-parse", "--short=8", "HEAD"], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def figures(scenario, operator, repeat, port, again):
    name = f"{scenario}-{operator}-{repeat}"
    if again or name not in kept():
        for failed in range(MOST_TRIES):
            result = one_run(scenario, operator, repeat, port)
            if result["end"] in ("passed", CLEANING_UP, LEFT_CLEANING_UP, NOT_THROUGH):
                break
            print(f"{name} failed: {json.dumps(result)}; its log is {run.TARGET}/suites/run/performance-{name}/suite.log", file=sys.stderr, flush=True)
        else:
            raise RuntimeError(f"{name}: the suite failed {MOST_TRIES} times")
        keep(name, {**result, "failed_before": failed})
        print(f"{name}: {json.dumps(result)}", file=sys.stderr, flush=True)
    return kept()[name]


def spread(values, digits=0, sign=""):
    """The middle one, and in brackets the least and the largest where they differ."""
    low, middle, high = min(values), statistics.median(values), max(values)
    text = f"{sign}{middle:.{digits}f}"
    return text if low == high else f"{text} ({low:.{digits}f} to {high:.{digits}f})"


def at_rest(results, scenario, number):
    """The middle price at which upstream's runs of a scenario came to rest in a phase; none where there is no run."""
    runs = [one for one in results if one["scenario"] == scenario and one["operator"] == "upstream" and len(one["phases"]) > number]
    return statistics.median(one["phases"][number]["price"] for one in runs) if runs else None


def moved_at(phases, price):
    """How many pods had been moved when the price first was so low: what the same saving has cost. Of runs whose way to rest was kept, that began above it, and
    that came so far."""
    ways = [phase["way"] for phase in phases if phase.get("way")] if price is not None else []
    reached = [next((moved for moved, cost in way if cost <= price), None) for way in ways if way[0][1] > price]
    return spread(reached) if reached and None not in reached else ""


def table(results):
    lines = [
        "| Scenario, pods | Operator | Runs | Nodes | Price at rest | Moved | Moved at upstream's price | Seconds to rest | CPU seconds | Peak MiB |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for scenario in SCENARIOS:
        for operator in OPERATORS:
            runs = [one for one in results if one["scenario"] == scenario and one["operator"] == operator and one["phases"]]
            if not runs:
                continue
            phases = min(len(one["phases"]) for one in runs)
            cut_off = sum(one["end"] == NOT_THROUGH for one in runs)
            for number in range(phases):
                of = [one["phases"][number] for one in runs]
                last = number == phases - 1
                whole = [spread([one["cpu_seconds"] for one in runs], 1), spread([one["peak_mib"] for one in runs])] if last else ["", ""]
                pods = " → ".join(str(phase["pods"]) for phase in runs[0]["phases"][: number + 1][-2:])
                cells = [
                    f"{scenario}, {pods}", operator, f"{len(runs)}, {cut_off} not through" if cut_off and last else len(runs), spread([one["nodes"] for one in of]), spread([one["price"] for one in of], 2, "$"),
                    spread([one["moved"] for one in of]), moved_at(of, at_rest(results, scenario, number)) if operator != "upstream" else "", spread([one["seconds"] for one in of]), *whole,
                ]
                lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"by default all: {', '.join(SCENARIOS)}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--operator", choices=OPERATORS, help="only this one; by default both")
    parser.add_argument("--port", type=int, default=19080, help="metrics of the first operator; each run takes two ports")
    parser.add_argument("--again", action="store_true", help="repeat runs whose figures are there")
    parser.add_argument("--table", action="store_true", help="run nothing: the table of the figures that are there")
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    if options.table:
        print(table(list(kept().values())))
        return
    operators = [options.operator] if options.operator else OPERATORS
    if "upstream" in operators:
        run.build("operator")
    run.build("oracle")
    run.build("suites", SUITES="performance")
    wanted = [(scenario, operator, repeat) for repeat in range(1, options.repeats + 1) for scenario in options.scenarios or SCENARIOS for operator in operators]
    results, failed = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(figures, *one, options.port + 2 * index, options.again) for index, one in enumerate(wanted)]
        for done in runs:
            try:
                results.append(done.result())
            except KeyboardInterrupt:
                # What runs is finished; nothing else is begun.
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            except Exception as error:  # One run that fails does not end the others.
                print(f"a run failed: {error!r}", file=sys.stderr)
                failed += 1
    print(table(results))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
