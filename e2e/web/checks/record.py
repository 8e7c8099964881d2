"""The time line is the record: each command from its decision to its end, and below the curve what the machines have cost."""

import re
from datetime import datetime

from browser import SHOP, Browser, check, equal, number
from checks.looks import stands_out
from cluster import PATIENCE, Running

ENDED = ("Succeeded", "RolledBack")
LEDGER = "/apis/spokeshave.dev/v1alpha1/disruptions"
INSTANCES = "/apis/kwok.spokeshave.dev/v1alpha1/kwokinstances"
# Where the axis has its ends, and the shortest bar.
LEFT, RIGHT, SHORTEST = 52, 1000, 4
# What a sample of an hour stands for, in seconds.
STEP = 5
DRAWN = """() => {
  const svg = document.querySelector('#time svg'), value = (one, name) => Number(one.getAttribute(name));
  const prices = [...svg.querySelectorAll('text.axis')].filter((one) => one.textContent.startsWith('$'));
  return {
    revision: document.documentElement.dataset.revision,
    bars: [...svg.querySelectorAll('rect.bar')].map((one) => ({ x: value(one, 'x'), width: value(one, 'width'), title: one.querySelector('title').textContent })),
    line: svg.querySelector('path.line').getAttribute('d'),
    top: prices.at(-1).textContent,
    ends: [0, -1].map((at) => Number(svg.querySelectorAll('path.grid')[at === 0 ? 0 : 2].getAttribute('d').match(/M[\\d.]+ ([\\d.]+)/)[1])),
    note: document.querySelector('#time .note').textContent,
  };
}"""


def instant(text):
    """Seconds since 1970; more than microseconds are cut."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d*", r"\1", text).replace("Z", "+00:00")).timestamp()


class Machines:
    """The instances of the simulated cloud, looked at again and again."""

    def __init__(self, running):
        self.running, self.known, self.looked = running, {}, None

    def look(self, view):
        now = instant(view["header"]["now"])
        there = {item["metadata"]["uid"]: item for item in self.running.api("GET", INSTANCES)["items"]}
        for uid, item in there.items():
            one = self.known.setdefault(uid, {"price": float(item["spec"]["price"]), "from": instant(item["metadata"]["creationTimestamp"]), "gone": None})
            one["last"] = now
        for uid, one in self.known.items():
            if uid not in there and one["gone"] is None:
                one["gone"] = now

    def cost(self, begin, end):
        """Dollar seconds per hour, and how much of it is not known: between two looks a machine ends at any time, and a sample stands for a few seconds."""
        cost = unknown = 0
        for one in self.known.values():
            last, gone = (end, end) if one["gone"] is None else (one["last"], one["gone"])
            cost += one["price"] * max(0, min((last + gone) / 2, end) - max(one["from"], begin))
            unknown += one["price"] * ((gone - last) / 2 + 2 * STEP)
        return cost, unknown


def corners(path):
    """The corners of a line in steps."""
    first, *steps = re.fullmatch(r"M(.*)", path)[1].split("H")
    points = [tuple(float(one) for one in first.split(" "))]
    return points + [tuple(float(one) for one in step.split("V")) for step in steps]


def area(points):
    """What is below steps, each of which holds until the next begins."""
    return sum(value * (after - at) for (at, value), (after, _) in zip(points, points[1:]))


def check_bars(drawn, view, begin, end):
    """Where they begin and end. The axis begins within the second that the view says."""
    x = lambda at, first: LEFT + (RIGHT - LEFT) * (at - first) / (end - first)
    equal(len(drawn["bars"]), len(view["commands"]), "bars, and commands of the view")
    for bar, command in zip(drawn["bars"], view["commands"]):
        froms = [min(x(instant(command["decided"]), first), RIGHT - SHORTEST) for first in (begin, begin + 1)]
        ends = [max(x(instant(command["ended"]), first), left + SHORTEST) for first, left in zip((begin, begin + 1), froms)]
        for at, (late, early) in [(bar["x"], froms), (bar["x"] + bar["width"], ends)]:
            assert early - 1 < at < late + 1, (bar, froms, ends, command)
        assert f"{command['reason'].lower()}," in bar["title"].lower(), (bar, command)


def check_ledger(drawn, view, ledger):
    """The Disruption objects, and what bars and sums say of them."""
    commands = {one["name"]: one for one in view["commands"]}
    for one in ledger:
        command = commands[one["metadata"]["name"]]
        equal(instant(command["decided"]), instant(one["spec"]["decidedAt"]), "when it was decided")
        equal(instant(command["ended"]), instant(one["status"]["finishedAt"]), "when it has ended")
    told = [re.search(r"([−+]?)<?\$([\d.]+)/h predicted", bar["title"]) for bar in drawn["bars"]]
    told = sum(float(found[2]) * (1 if found[1] == "−" else -1) for found in told)
    predicted = sum(float(one["spec"]["savings"]) for one in ledger)
    # Each bar rounds to a tenth of a cent, or to a cent.
    assert abs(told - predicted) <= 0.0051 * len(ledger), (told, predicted)
    ended = [one for one in ledger if one["status"]["phase"] == "Succeeded"]
    predicted = sum(float(one["spec"]["savings"]) for one in ended)
    realised = sum(float(one["status"]["realisedSavings"]) for one in ended)
    for word, sum_of in [("saved", realised), ("predicted", predicted)]:
        found = re.search(rf"{word} \$([\d.]+)/h", drawn["note"])
        # What was predicted is told where something else came of it.
        assert found or (word == "predicted" and round(predicted - realised, 6) == 0), drawn["note"]
        assert found is None or abs(float(found[1]) - sum_of) < 0.0051, (drawn["note"], word, sum_of)


def check_curve(drawn, view, machines, begin, end):
    """The line read back from the drawing, the history of the view, and the bill of the machines."""
    bottom, upper = drawn["ends"]
    seconds = lambda x: begin + (x - LEFT) / (RIGHT - LEFT) * (end - begin)
    price = lambda y: number(drawn["top"]) * (bottom - y) / (bottom - upper)
    line = area([(seconds(x), price(y)) for x, y in corners(drawn["line"])])
    hour = view["history"]["hour"]
    known = area([*zip(hour["at"], hour["price"]), (end, view["header"]["price"])])
    # The axis begins within a second, and what is drawn is to a tenth of a unit.
    assert abs(line - known) <= 0.001 * known + 2 * max(hour["price"]), (line, known)
    cost, unknown = machines.cost(hour["at"][0], end)
    print(f"    below the curve {line / 3600:.4f} $, of the view {known / 3600:.4f} $, of the machines {cost / 3600:.4f} ± {unknown / 3600:.4f} $")
    assert abs(line - cost) <= 0.001 * cost + unknown, (line, cost, unknown)


@check
def the_time_line_is_the_record(playwright):
    """A shop shrinks: bars, sums and curve beside the Disruption objects and the machines of the cloud."""
    with Running("up", "-f", SHOP, "--speed", "20") as running, Browser(playwright) as browser:
        page, machines = browser.page, Machines(running)

        def looked(view, holds):
            machines.look(view)
            return holds

        running.wait("pods of the web", lambda view: looked(view, view["header"]["pods"] > 40 and view["header"]["pending"] == 0))
        running.api("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web", {"spec": {"replicas": 6}})
        have_ended = lambda view: len(view["commands"]) > 1 and all(one["phase"] in ENDED for one in view["commands"])
        running.wait("commands that have ended", lambda view: looked(view, have_ended(view)))
        page.goto(running.url)
        # The cluster goes on: until a look at all of it is of the same moment.
        for _ in range(int(200 * PATIENCE)):
            drawn, view, ledger = page.evaluate(DRAWN), running.view(), running.api("GET", LEDGER)["items"]
            machines.look(view)
            if drawn["revision"] == str(view["revision"]) and len(ledger) == len(view["commands"]) and have_ended(view):
                break
            page.wait_for_timeout(100)
        equal(drawn["revision"], str(view["revision"]), "the revision that is drawn")
        begin = min([view["history"]["hour"]["at"][0], *(instant(one["decided"]) for one in view["commands"])])
        end = instant(view["header"]["now"])
        check_bars(drawn, view, begin, end)
        check_ledger(drawn, view, ledger)
        check_curve(drawn, view, machines, begin, end)
        for scheme in ["light", "dark"]:
            page.emulate_media(color_scheme=scheme)
            stands_out(page, scheme)
