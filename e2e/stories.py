#!/usr/bin/env python3
"""Pains that users of autoscalers have reported, lived again: does a model of Karpenter show them, and do we?

    e2e/stories.py [--spokeshave PROGRAM] [--write] [STORY ...]

Each scenario of e2e/simulations/stories is lived with `spokeshave simulate`, and figures are taken from its event log. A policy shows a pain when in every seed
each figure lies in the range stated below as reported, and is free of it when in every seed each lies in the other range. The model must show the pains that it
is stated to show, and our policies that are stated to be free of them must be: otherwise the run fails. What is merely known of the other policies is in the
table, and a change of it is told. The table in docs/simulate-engine.md has to be what was measured, as equal programs measure the same on every machine;
`--write` writes it. Names of stories, such as `swaps`, live these alone.
"""

import argparse
import collections
import difflib
import json
import pathlib
import sys
import tempfile

from simulations import told

FOLDER = pathlib.Path(__file__).resolve().parent / "simulations" / "stories"
DOCUMENT = FOLDER.parents[2] / "docs" / "simulate-engine.md"
BEGIN, END = "<!-- stories -->\n", "<!-- end of stories -->\n"
HOUR = 3_600_000
MINUTE = 60_000
ANY = float("inf")

# What is shown of a pain.
PAIN, FREE, BETWEEN = "yes", "no", "in part"

Figure = collections.namedtuple("Figure", "unit measure pain free")
# How a policy is called in the table, what it must show, and what it is known to show where nothing is demanded.
Policy = collections.namedtuple("Policy", "title must known")
Story = collections.namedtuple("Story", "scenario reported figures policies")


def model(must=None, known=None, what=""):
    return Policy(f"model `karpenter-1.14`{what}", must, known)


def ours(title, must=None, known=None):
    return Policy(f"Spokeshave, {title}", must, known)


class Run:
    """The event log of one policy and seed."""

    def __init__(self):
        self.events = []

    def of(self, *whats):
        """The events of these kinds as time, kind, object and rest."""
        return (event for event in self.events if event[1] in whats)

    def moves(self, since=0, until=ANY):
        """The times of evictions that could have waited."""
        evicted = self.of("evicted")
        forced = ("", "Forceful Termination")
        return [at for at, _, _, why in evicted if why not in forced and since <= at < until]

    def nodes_of(self, more):
        """The nodes of a line about a command."""
        fields = dict(field.split("=", 1) for field in more.split() if "=" in field)
        return [name for name in fields["nodes"].split(",") if name]


# Days of the story of swaps: what a day of rest ends brings many moves at once, and a single day may begin or end with it.
SWAP_DAYS = 3


def moves_a_day(run):
    return round(len(run.moves(since=2 * HOUR)) / SWAP_DAYS)


def swaps_a_day(run):
    """Nodes launched within an hour of a command that removed one of their type; each removal counts once."""
    types, removed, count = {}, [], 0
    for at, what, name, more in run.of("launched", "command"):
        if what == "command":
            removed += [(at, types[node]) for node in run.nodes_of(more) if node in types]
            continue
        types[name] = more.split()[0]
        same = [one for one in removed if one[1] == types[name] and at - one[0] < HOUR]
        if same:
            removed.remove(same[0])
            count += at >= 2 * HOUR
    return round(count / SWAP_DAYS)


def restless_hours(run):
    """Of the 14 hours from an hour after the visitors have come, those in which pods were moved."""
    return len({at // HOUR for at in run.moves(since=10 * HOUR, until=24 * HOUR)})


def up(run, until=ANY):
    """The instances there are at a time, with what they were launched as."""
    there = {}
    for at, what, name, more in run.of("launched", "ended"):
        if at > until:
            break
        if what == "launched":
            there[name] = more.split()
        else:
            there.pop(name, None)
    return there


def nodes_at_end(run):
    return len(up(run))


def leaving_at_once(run):
    """The most nodes that were under way to their end at once, whether by force or by a command."""
    leaving, most = set(), 0
    for _, what, name, more in run.of("expired", "command", "gone"):
        if what == "gone":
            leaving.discard(name)
        else:
            leaving.update(run.nodes_of(more) if what == "command" else [name])
        most = max(most, len(leaving))
    return most


def waiting_at_once(run):
    """The most pods without a node at once, once all have had one."""
    waiting, most = set(), 0
    for at, what, name, _ in run.of("born", "bound", "left"):
        (waiting.add if what == "born" else waiting.discard)(name)
        if at >= HOUR:
            most = max(most, len(waiting))
    return most


def failures_in_drought(run):
    return sum(8 * HOUR <= at < 14 * HOUR for at, _, _, _ in run.of("rolled back"))


def hours_until_spot(run):
    """After the drought, until 99 of 100 nodes are spot instances; 12, the rest of the run, where that never comes."""
    there = up(run, 14 * HOUR)
    later = [event for event in run.of("launched", "ended") if event[0] > 14 * HOUR]
    for at, what, name, more in [(14 * HOUR, "", "", ""), *later]:
        if what == "launched":
            there[name] = more.split()
        elif what == "ended":
            there.pop(name, None)
        if there and sum(one[1] == "spot" for one in there.values()) >= 0.99 * len(there):
            return round((at - 14 * HOUR) / HOUR, 1)
    return 12


STORIES = {
    "swaps": Story(
        "swaps",
        "[k#2388](https://github.com/kubernetes-sigs/karpenter/issues/2388): nearly full nodes replaced by the same type; 6,000 evictions a day, some hundreds under cluster-autoscaler",
        [
            Figure("evictions a day", moves_a_day, (1_000, 12_000), (0, 500)),
            Figure("same-type swaps a day", swaps_a_day, (50, 1_000), (0, 10)),
        ],
        {
            "karpenter": model(must=PAIN),
            "autoscaler": Policy("model `cluster-autoscaler`", must=FREE, known=None),
            "now": ours("same NodePool", known=PAIN),
            "minute": ours("`consolidateAfter: 1m`", known=PAIN),
            "converge": ours("`convergence: {}`", must=FREE),
        },
    ),
    "loop": Story(
        "loop",
        "[a#8536](https://github.com/aws/karpenter-provider-aws/issues/8536): large pods came and went, then nodes were replaced for 14 hours",
        [Figure("hours of 14 with evictions", restless_hours, (10, 14), (0, 2))],
        {
            "karpenter": model(known=FREE),
            "autoscaler": Policy("model `cluster-autoscaler`", must=None, known=FREE),
            "now": ours("same NodePool", must=FREE),
            "converge": ours("`convergence: {}`", must=FREE),
        },
    ),
    "growth": Story(
        "growth",
        "[Cast AI](https://docs.cast.ai/docs/rebalancing): a pod of 6 CPUs more each hour leaves 24 nodes of 8 CPUs after a day",
        [Figure("nodes after a day", nodes_at_end, (22, 25), (1, 12))],
        {
            "karpenter": model(must=PAIN, what=", five nodes at once"),
            "now": ours("five nodes at once", must=FREE),
            "karpenter-tenth": model(known=PAIN, what=", 10 % at once"),
            "now-tenth": ours("10 % at once", known=PAIN),
            "karpenter-all": model(known=FREE, what=", all at once"),
            "now-all": ours("all at once", must=FREE),
        },
    ),
    "expiry": Story(
        "expiry",
        "[a#1884](https://github.com/aws/karpenter-provider-aws/issues/1884), [k#1750](https://github.com/kubernetes-sigs/karpenter/issues/1750): 300 nodes of one age expire together",
        [
            Figure("nodes leaving at once", leaving_at_once, (290, 300), (0, 20)),
            Figure("pods waiting at once", waiting_at_once, (290, 300), (0, 20)),
        ],
        {
            "karpenter": model(must=PAIN),
            "now": ours("same NodePool", known=PAIN),
            "soft": ours("`expiry: {softPercent: 50}`, 20 at once", must=FREE),
        },
    ),
    "drought": Story(
        "drought",
        "[k#1293](https://github.com/kubernetes-sigs/karpenter/issues/1293), [a#6984](https://github.com/aws/karpenter-provider-aws/issues/6984): replacements that cannot be had are asked for again and again; here in six hours without spot",
        # One every 15 s is the most: a command waits so long for its second look, and nothing else is decided meanwhile.
        [Figure("commands that failed", failures_in_drought, (60, 1_440), (0, 20))],
        {
            "karpenter": model(must=PAIN),
            "now": ours("same NodePool", known=PAIN),
            "converge": ours("`convergence: {}`", known=PAIN),
            "hold": ours("`hold` after failed launches", must=FREE),
        },
    ),
    "return": Story(
        "drought",
        "[a#3480](https://github.com/aws/karpenter-provider-aws/issues/3480), [a#7832](https://github.com/aws/karpenter-provider-aws/issues/7832): after it, nodes stay on demand",
        [Figure("hours until spot again", hours_until_spot, (11, 12), (0, 4))],
        {
            "karpenter": model(known=FREE),
            "now": ours("same NodePool", must=FREE),
            "converge": ours("`convergence: {}`", must=FREE),
            "hold": ours("`hold` after failed launches", must=FREE),
        },
    ),
}


def live(program, scenario):
    """The runs of each policy, in order of seeds."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "events.jsonl"
        told([program, "simulate", str(FOLDER / f"{scenario}.yaml"), "--jobs", "1", "-o", "json", "--events", str(log)])
        found = collections.defaultdict(lambda: collections.defaultdict(Run))
        with log.open() as lines:
            for event in map(json.loads, lines):
                found[event["policy"]][event["seed"]].events.append((event["atMs"], event["what"], event["of"], event["more"]))
    return {policy: [runs[seed] for seed in sorted(runs)] for policy, runs in found.items()}


def shown(figures, values):
    """Whether a policy shows the pain, by the values of each figure in each seed."""
    pairs = [(figure, value) for figure, all_seeds in zip(figures, values) for value in all_seeds]
    for word, bounds in ((PAIN, "pain"), (FREE, "free")):
        if all(getattr(figure, bounds)[0] <= value <= getattr(figure, bounds)[1] for figure, value in pairs):
            return word
    return BETWEEN


def span(low, high):
    low, high = (f"{number:,}" for number in (low, high))
    return low if low == high else f"{low}–{high}"


def judge(story, runs):
    """The rows of the table, what failed, and what is otherwise than known."""
    rows, failed, news = [], [], []
    for name, policy in story.policies.items():
        values = [[figure.measure(run) for run in runs[name]] for figure in story.figures]
        word = shown(story.figures, values)
        expected = policy.must or policy.known
        if word != expected:
            text = f"{story.scenario}, {policy.title}: shows it: {word}; stated: {expected}; {values}"
            (failed if policy.must else news).append(text)
        measured = "; ".join(f"{figure.unit}: {span(min(each), max(each))}" for figure, each in zip(story.figures, values))
        rows.append([policy.title, measured, word])
    return rows, failed, news


def markdown(tables):
    lines = ["| Story, and what counts as the pain | Policy | Measured, over the seeds | Shows it |", "|---|---|---|---|"]
    for story, rows in tables:
        ranges = "; ".join(f"{figure.unit}: {span(*figure.pain)}, without the pain {span(*figure.free)}" for figure in story.figures)
        about = f"{story.reported}. *{ranges}*"
        for row in rows:
            lines.append(f"| {' | '.join([about, *row])} |")
            about = ""
    return "\n".join(lines) + "\n"


def document():
    """What stands before the table, the table, and what stands behind it."""
    before, rest = DOCUMENT.read_text().split(BEGIN)
    return before, *rest.split(END)


def write(table):
    before, _, after = document()
    DOCUMENT.write_text(before + BEGIN + table + END + after)
    print(f"written: {DOCUMENT}")


def is_committed(tables):
    """Whether the table of the document has these stories as they were measured; shows where it has not."""
    _, committed, _ = document()
    table = markdown(tables)
    if len(tables) < len(STORIES):
        parts = (markdown([one]).split("\n", 2)[2] for one in tables)
        return all(part in committed for part in parts)
    lines = (text.splitlines(keepends=True) for text in (committed, table))
    sys.stdout.writelines(difflib.unified_diff(*lines, DOCUMENT.name, "now", n=0))
    return table == committed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spokeshave", default="target/release/spokeshave", help="the program (%(default)s)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/simulate-engine.md")
    parser.add_argument("stories", nargs="*", help="names of stories; all of them by default")
    arguments = parser.parse_args()
    for name in arguments.stories:
        if name not in STORIES:
            parser.error(f"there is no story {name!r}; there are {', '.join(STORIES)}")
    if arguments.write and arguments.stories:
        parser.error("--write writes the table of all stories")
    lived, tables, failed, news = {}, [], [], []
    for name in arguments.stories or STORIES:
        story = STORIES[name]
        if story.scenario not in lived:
            lived = {story.scenario: live(arguments.spokeshave, story.scenario)}
        rows, wrong, changed = judge(story, lived[story.scenario])
        tables.append((story, rows))
        failed += wrong
        news += changed
    table = markdown(tables)
    print(table, end="")
    for text in news:
        print(f"otherwise than stated in e2e/stories.py, which fails nothing: {text}")
    if failed:
        sys.exit("\n".join(["not as it must be:", *failed]))
    if arguments.write:
        write(table)
    elif not is_committed(tables):
        sys.exit("the table of docs/simulate-engine.md says something else; `just stories --write` writes it")


if __name__ == "__main__":
    main()
