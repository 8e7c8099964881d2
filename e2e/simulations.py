#!/usr/bin/env python3
"""The scenarios of e2e/simulations as a regression suite: what they cost and disturb against the committed figures.

    e2e/simulations.py [--spokeshave PROGRAM] [--write] [SCENARIO ...]

Each scenario is lived with `spokeshave simulate`. For each policy the mean over the seeds of each figure below is compared with the committed mean: it is worse
when it lies above the committed 95 % interval of that mean over seeds. Seeds are the same luck then and now, so that each is also compared with itself: the figure
is worse, too, when the 95 % interval of these differences lies above one hundredth of the committed mean, as it does when every seed is worse by some per cent. One
that is worse fails the run. `--write` writes the figures, and prints what has
changed. Names of scenarios, such as `day`, live these alone. Equal programs give equal figures, so that a change of nothing but speed changes nothing here.

The table and the digest of `examples/simulate/quick.yaml` are those of `quick.txt`, to the byte (`quick` lives it alone): whoever follows docs/simulate.md sees them.
"""

import argparse
import difflib
import json
import math
import os
import pathlib
import resource
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent / "simulations"
FIGURES = FOLDER / "figures.json"
QUICK = FOLDER.parents[1] / "examples" / "simulate" / "quick.yaml"
GOLDEN = FOLDER / "quick.txt"
# Lower is better for each of them.
METRICS = ["cost", "evictionsPerPodDay", "pendingP99", "unplaced"]
# A scenario takes seconds. What takes longer than so many on any machine hangs.
LONGEST = 900
# A difference that is the same in all seeds and smaller than this share of the committed mean is nothing to fail for.
LEAST = 0.01
# Quantiles of Student's t for 95 %, by degrees of freedom.
T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def interval(values):
    """Mean, and half the length of its 95 % interval."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        sys.exit("a scenario needs at least two seeds, or its figures have no interval")
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    quantile = T[min(count - 1, len(T)) - 1]
    return mean, quantile * math.sqrt(variance / count)


def told(command, **options):
    """What a program prints, which has to end well."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=LONGEST, **options)
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(command)} hangs: it was ended after {LONGEST} s")
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def live(program, scenario):
    """The values of each metric by policy, one for each seed, in order of seeds."""
    found = {}
    for run in json.loads(told([program, "simulate", str(scenario), "-o", "json"]))["runs"]:
        figures = found.setdefault(run["policy"], {metric: [] for metric in METRICS})
        for metric in METRICS:
            figures[metric].append(run["values"][metric])
    return found


def quick(program, is_written):
    """Whether the table of quick.yaml is the committed one; writes it, if that is wanted."""
    # As wide as all columns need.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    table = told([program, "simulate", str(QUICK)], env={**os.environ, "COLUMNS": "160"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Told and not judged: it depends on the machine and on what else that does.
    print(f"quick: {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.1f} s of processor time (16 to 19 on the machine of docs/benchmarks.md)")
    if is_written:
        GOLDEN.write_text(table)
    before = GOLDEN.read_text().splitlines(keepends=True)
    sys.stdout.writelines(difflib.unified_diff(before, table.splitlines(keepends=True), "quick.txt", "now"))
    return table == "".join(before)


def committed(values):
    """What is committed of the values of one metric."""
    mean, half = interval(values)
    return {"mean": round(mean, 6), "upTo": round(mean + half, 6), "seeds": [round(value, 6) for value in values]}


def least_difference(before, values):
    """By how much each seed has become worse, at least; none where the committed values of single seeds are not known, or are of other seeds."""
    seeds = before.get("seeds", [])
    if len(seeds) != len(values):
        return None
    mean, half = interval([value - was for value, was in zip(values, seeds)])
    return mean - half


def compare(name, policy, metric, before, values):
    """A line of the table, and whether it is worse."""
    mean, _ = interval(values)
    if before is None:
        return f"{name:6} {policy:14} {metric:20} {'':>12} {mean:12.4f}  not committed yet", True
    change = mean - before["mean"]
    share = f"{100 * change / before['mean']:+.1f} %" if before["mean"] else f"{change:+.4f}"
    # What was rounded when it was written is not worse.
    is_worse = mean > before["upTo"] + 1e-6
    least = least_difference(before, values)
    is_worse_by_seed = least is not None and least > LEAST * abs(before["mean"]) + 1e-6
    if is_worse:
        word = f"WORSE than {before['upTo']:.4f}"
    elif is_worse_by_seed:
        word = f"WORSE by {least:.4f} and more, seed by seed"
    else:
        word = "" if abs(change) < 1e-6 else share
    is_worse = is_worse or is_worse_by_seed
    return f"{name:6} {policy:14} {metric:20} {before['mean']:12.4f} {mean:12.4f}  {word}", is_worse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spokeshave", default="target/release/spokeshave", help="the program (%(default)s)")
    parser.add_argument("--write", action="store_true", help="write the figures")
    parser.add_argument("scenarios", nargs="*", help="names of scenarios; all of them by default")
    arguments = parser.parse_args()
    known = {path.stem: path for path in sorted(FOLDER.glob("*.yaml")) if path.stem != "pools"}
    names = arguments.scenarios or ["quick", *known]
    for name in names:
        if name not in known and name != "quick":
            parser.error(f"there is no scenario {name!r}; there are quick, {', '.join(known)}")
    figures = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    worse = 0
    is_same = "quick" not in names or quick(arguments.spokeshave, arguments.write)
    print(f"{'':6} {'policy':14} {'metric':20} {'committed':>12} {'now':>12}")
    for name in (name for name in names if name != "quick"):
        lived = live(arguments.spokeshave, known[name])
        before = figures.get(name, {})
        for policy, metrics in lived.items():
            for metric, values in metrics.items():
                line, is_worse = compare(name, policy, metric, before.get(policy, {}).get(metric), values)
                worse += is_worse
                print(line)
        figures[name] = {
            policy: {metric: committed(values) for metric, values in metrics.items()}
            for policy, metrics in lived.items()
        }
    if arguments.write:
        figures = {name: figures[name] for name in known if name in figures}
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
        print(f"written: {FIGURES}")
    elif worse:
        sys.exit(f"{worse} figures are worse than the committed ones beyond their interval; `just simulations --write` writes new ones")
    elif not is_same:
        sys.exit("the table of examples/simulate/quick.yaml is another; `just simulations --write quick` writes it")


if __name__ == "__main__":
    main()
