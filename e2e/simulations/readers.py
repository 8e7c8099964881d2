#!/usr/bin/env python3
"""Recordings of every format, as `spokeshave simulate` counts them and as an independent reader does.

    e2e/simulations/readers.py [--spokeshave PROGRAM] [--seeds N] [--first-seed S] [--keep DIR] [FORMAT ...]

recordings.py writes small random recordings by seed, reading.py counts what is in the files, and `simulate --check` has to count the same: pods at the start and
later ones, the most at once, of cores, memory and GPUs, too, and events; also in scenarios that end a second before and after the last change, which is the
span, and around five others. Where order says nothing, shuffled files must give the same; a recording that is not in order of time is refused. A file that is
cut off is refused with its line or byte, and bytes that were changed at random, or nesting without an end, neither break the program nor fill the memory. Of
recordings that tell of nodes, the hours of these and the most at once have to be the same, too. Then
the recordings that examples/simulate reads, where they are.
"""

import argparse
import collections
import csv
import io
import json
import math
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile

import reading
import recordings

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "simulate"
DAY_MS = 86_400_000
# It takes a fraction of a second. What takes longer than so many seconds on any machine hangs.
LONGEST = 120
# A file that cannot be read (docs/simulate.md).
UNREADABLE = 1
MOST_MEMORY = 512 << 20
PLACE = re.compile(r"\bline \d+|\bbyte \d+|:\d+: ")
TABLES = ("csv", "openb", "dlrm", "azure-llm")
POOLS = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: []
"""
SCENARIO = """\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: reader}
spec:
  start: 2026-03-02T00:00:00Z
  duration: %s
  seeds: 1
  cluster:
    manifests: [pools.yaml]
%s
  policies:
  - {name: now}
"""

Answer = collections.namedtuple("Answer", "status counts said")


def asked(program, scenario):
    """What `--check` says of a scenario."""
    try:
        done = subprocess.run([program, "simulate", str(scenario), "--check", "-o", "json"], capture_output=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return Answer(None, None, f"hangs: it was ended after {LONGEST} s")
    return Answer(done.returncode, json.loads(done.stdout) if done.returncode == 0 else None, done.stderr.decode(errors="replace"))


def is_refused(answer):
    """Whether a file could not be read, and it was said where."""
    return answer.status == UNREADABLE and PLACE.search(answer.said)


def scenario(folder, recording, options, duration="1d"):
    """A scenario of nothing but a recording."""
    (folder / "pools.yaml").write_text(POOLS)
    if recording.dumps:
        workloads = f"    snapshot: {recording.dumps[0].name}"
    else:
        workloads = f"  workloads:\n  - name: rec\n    import: {json.dumps(options)}"
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO % (duration, workloads))
    return path


def bent(name, seed, recording):
    """The options of an import, and sometimes how it is bent to size."""
    draw = random.Random(f"bent {name} {seed}")
    return {**recording.options, **draw.choice([{}, {}, {"speed": 2}, {"copies": 2}, {"scaleCpu": 0.5, "scaleMemory": 2}])}


def expected(folder, recording, options, until=DAY_MS):
    """What the independent reader counts in a scenario of so many milliseconds."""
    if recording.dumps:
        start = int(recordings.MIDNIGHT.timestamp()) * 1_000
        return reading.dump(recording.dumps, start, until).counted(until=until)
    return reading.counted(options, folder, until)


def differences(name, counts, ours, days):
    """Where the answer about so many days of a format differs from what was counted."""
    pairs = [
        ("pods at the start", counts["podsAtStart"], ours.at_start, 0),
        ("pods a day", counts["podsPerDay"], ours.births / days, 0.0501),
        ("peak pods", counts["peakPods"], ours.peak_pods, 0),
        ("peak cores", counts["peakCores"], ours.peak_cpu / 1_000, 0.0005),
        ("peak memory in GiB", counts["peakMemoryGib"], ours.peak_memory / 2**30, 0.0501),
        ("peak GPUs", counts.get("peakGpus", 0), ours.peak_gpus, 0),
        # Runs of a dump say at their beginning how long they take.
        ("events", counts["events"], ours.changes - (ours.ends if name == "dump" else 0), 0),
    ]
    return [f"{what}: {theirs}, and {float(own):.3f} by the independent reader" for what, theirs, own, most in pairs if abs(theirs - own) > most]


def nodes_differ(counts, recording, options, folder, until=DAY_MS):
    """Where the answer about the nodes of so many milliseconds differs from what was counted."""
    theirs, ours = counts.get("asRecorded"), None if recording.dumps else reading.nodes(options, folder, until)
    if theirs is None or ours is None:
        return [] if theirs == ours else [f"nodes as recorded: {theirs}, and {ours} by the independent reader"]
    is_same = abs(theirs["nodeHours"] - ours.hours) < 0.0005 and theirs["peakNodes"] == ours.most
    return [] if is_same else [f"nodes as recorded: {theirs}, and {ours} by the independent reader"]


def beginnings_differ(program, name, seed, folder, recording, options, instants):
    """The same of scenarios that end just before and just after a change: the last one, which is the span, and five others, before which other
    peaks are the highest.
    """
    draw, found = random.Random(f"beginnings {name} {seed}"), []
    later = sorted({instant for instant in instants if instant > 0})
    for instant in [*later[-1:], *draw.sample(later, min(5, len(later)))]:
        for seconds in (max(math.ceil(instant / 1_000) - 1, 1), int(instant // 1_000) + 1):
            answer = asked(program, scenario(folder, recording, options, f"{seconds}s"))
            if answer.counts is None:
                found.append(f"{seconds} s of it: status {answer.status}: {answer.said}")
                continue
            ours = expected(folder, recording, options, 1_000 * seconds)
            wrong = differences(name, answer.counts, ours, seconds / 86_400) + nodes_differ(answer.counts, recording, options, folder, 1_000 * seconds)
            found += [f"the first {seconds} s: {text}" for text in wrong]
    return found


def cut(draw, name, path):
    """Cuts a file off where one can see it."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        at = draw.randrange(20, len(data) - 1)
    elif name in TABLES:
        columns = len(data.split(b"\n", 1)[0].split(b","))
        whole = [at for at in range(data.index(b"\n") + 2, len(data)) if data[at:at + 1] == b","]
        # Some commas are within a cell.
        ends = (at for at in draw.sample(whole, len(whole)) if len(list(csv.reader(io.StringIO(data[:at].decode(), newline="")))[-1]) < columns)
        at = next(ends)
    elif name in ("record", "audit"):
        lines = data.splitlines(keepends=True)
        index = draw.randrange(len(lines))
        at = sum(map(len, lines[:index])) + draw.randrange(1, len(lines[index]) - 1)
    elif path.suffix == ".yaml":
        at = draw.randrange(data.index(b"items:") + 10, data.rindex(b"\nkind: List"))
    else:
        at = draw.randrange(1, len(data.rstrip()))
    path.write_bytes(data[:at])
    return f"cut off after {at} of {len(data)} bytes"


def changed(draw, path):
    """Changes some bytes of a file."""
    data = bytearray(path.read_bytes())
    for _ in range(draw.randrange(1, 9)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    path.write_bytes(data)
    return "with some bytes changed"


def nested(draw, name, path):
    path.write_bytes((b"\x91" if name == "sktrace" else draw.choice([b"[", b'{"a":'])) * 100_000)
    return "of nesting without an end"


def damage(program, name, seed, folder):
    """What is wrong with how damaged files are refused."""
    draw, found = random.Random(f"damage {name} {seed}"), []
    for index in range(7):
        place = folder / f"damaged-{index}"
        recording = recordings.written(name, seed, place)
        path = draw.choice([*recording.files, *recording.dumps])
        if index < 4:
            what = cut(draw, name, path)
        else:
            what = changed(draw, path) if index < 6 else nested(draw, name, path)
        answer = asked(program, scenario(place, recording, recording.options))
        if answer.status not in (0, 1, 2) or "panicked" in answer.said:
            found.append(f"{path.name} {what} breaks the program: status {answer.status}: {answer.said[-2_000:]}")
        elif index < 4 and not is_refused(answer):
            found.append(f"{path.name} {what} is not refused with its place: status {answer.status}: {answer.said}")
        elif index == 6 and answer.status == 0:
            found.append(f"{path.name} {what} is taken for a recording")
    return found


def shuffled_differs(program, name, seed, folder, counts):
    """Whether it is another recording when what has no order is shuffled; whether one that has an order is refused out of it."""
    draw = random.Random(f"shuffled {name} {seed}")
    recording = recordings.written(name, seed, folder / "shuffled", lambda items: draw.sample(items, len(items)))
    path = scenario(folder / "shuffled", recording, bent(name, seed, recording))
    if name == "record":
        file = recording.files[0]
        lines = reading.data_of(file).splitlines(keepends=True)
        file.write_bytes(b"".join([lines[0], *reversed(lines[1:])]))
        answer = asked(program, path)
        return [] if is_refused(answer) else [f"out of order, it is not refused with its line: status {answer.status}: {answer.said}"]
    answer = asked(program, path)
    return [] if answer.counts == counts else [f"shuffled, it is something else: status {answer.status}: {answer.counts or answer.said}, and {counts} before"]


def judge(program, name, seed, folder):
    """What was counted in a recording, and where the two readers differ."""
    recording = recordings.written(name, seed, folder / "whole")
    options = bent(name, seed, recording)
    ours = expected(folder / "whole", recording, options)
    answer = asked(program, scenario(folder / "whole", recording, options))
    if answer.counts is None:
        return ours, [f"is refused: status {answer.status}: {answer.said}"]
    found = differences(name, answer.counts, ours, 1) + nodes_differ(answer.counts, recording, options, folder / "whole")
    found += beginnings_differ(program, name, seed, folder / "whole", recording, options, ours.instants)
    found += shuffled_differs(program, name, seed, folder, answer.counts)
    return ours, found + damage(program, name, seed, folder)


def told(name, what, counts, wrong):
    """The line about a format or an example."""
    pods = sum(one.at_start + one.births for one in counts)
    cores, hours = max(one.peak_cpu for one in counts) / 1_000, max(one.instants[-1] for one in counts) / 3_600_000
    verdict = "as the independent reader counts" if not wrong else f"{len(wrong)} DIFFERENCES"
    return f"{name:11} {what}, {pods:,} pods, at most {float(cores):,.1f} cores, {float(hours):,.1f} h: {verdict}"


def format_of(program, name, seeds, folder):
    """Prints a line about a format; what is wrong."""
    counts, wrong = [], []
    for seed in seeds:
        ours, found = judge(program, name, seed, folder / name / str(seed))
        counts.append(ours)
        wrong += [f"{name}, seed {seed}: {text}" for text in found]
    print(told(name, f"{len(seeds)} seed{'s'[:len(seeds) > 1]}", counts, wrong), flush=True)
    return wrong


def examples(program):
    """The recordings of the committed examples; what is wrong with them."""
    wrong = []
    for path in sorted(EXAMPLES.glob("*.yaml")):
        for line in re.findall(r"^ *import: \{(.*)\}", path.read_text(), re.M):
            options = dict(part.split(": ", 1) for part in line.split(", "))
            if not (EXAMPLES / options["file"]).exists():
                print(f"{path.name:11} SKIPPED: {options['file']} is not beside it; its first lines say where it is")
                continue
            ours, answer = reading.counted(options, EXAMPLES), asked(program, path)
            found = [f"is refused: {answer.said}"] if answer.counts is None else differences(options["format"], answer.counts, ours, answer.counts["days"])
            wrong += [f"{path.name}: {text}" for text in found]
            print(told(path.name, options["format"], [ours], found))
    return wrong


def memory():
    """How much memory the largest of the runs took, in bytes."""
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return most if sys.platform == "darwin" else most * 1_024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spokeshave", default="target/release/spokeshave", help="the program (%(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="how many recordings of each format (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="the first of them (%(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="write the recordings there, into a new folder, and keep them")
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help="names of formats; all of them, and the examples, by default")
    arguments = parser.parse_args()
    for name in arguments.formats:
        if name not in recordings.FORMATS:
            parser.error(f"there is no format {name!r}; there are {', '.join(recordings.FORMATS)}")
    if arguments.seeds < 1:
        parser.error("--seeds is at least 1")
    if arguments.keep and os.path.exists(arguments.keep):
        parser.error(f"{arguments.keep} is there already; --keep names a folder that is not")
    program = os.path.abspath(arguments.spokeshave)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.keep or temporary)
        for name in arguments.formats or recordings.FORMATS:
            wrong += format_of(program, name, seeds, folder)
    if not arguments.formats:
        wrong += examples(program)
    if memory() > MOST_MEMORY:
        wrong.append(f"a run took {memory() >> 20} MiB of memory; expected at most {MOST_MEMORY >> 20}")
    if wrong:
        sys.exit("\n".join(["counted otherwise, or read otherwise than it must be (`--keep DIR` keeps the recordings):", *wrong]))


if __name__ == "__main__":
    main()
