"""Small random clusters: what workloads they have, and what becomes of these in a day. For readers.py, whose recordings tell of them.

Every change has a minute of its own, so that no two readers can differ about what comes first within an instant. What is drawn depends on the seed alone.
"""

import collections

# A controller with a scale: `steps` are (second, replicas, pod template); replicas are None where it is deleted.
Scaled = collections.namedtuple("Scaled", "kind namespace name steps")
# Pods that end: of a Job, of the controller `owner` (a CloneSet), or bare. `end` is None for one that does not; `cron` is the CronJob that a Job is of.
Run = collections.namedtuple("Run", "kind namespace name template pods begin end owner cron", defaults=(None, None))

DAY = 86_400
# The last change is an hour and more before the end of the day, so that a scenario of a day has all of it.
MINUTES = range(3, 1_300)
CPU = ["100m", "250m", "0.5", "1", "1500m", "2", "4"]
MEMORY = ["128Mi", "0.5Gi", "1Gi", "1G", "1536Mi", "1073741824"]


class Moments:
    """Seconds of a day, each of which is given away once."""

    def __init__(self, draw):
        minutes = list(MINUTES)
        draw.shuffle(minutes)
        self.minutes, self.draw = minutes, draw

    def next(self, count):
        """So many seconds, in order."""
        return sorted(60 * self.minutes.pop() + self.draw.randrange(1, 50) for _ in range(count))

    def begin(self, count):
        """The same, of which the first is often the beginning."""
        return [0, *self.next(count - 1)] if self.draw.random() < 0.5 else self.next(count)


def container(draw, name, requests=None):
    requests = requests or {"cpu": draw.choice(CPU), "memory": draw.choice(MEMORY)}
    return {"name": name, "image": "registry.example/app:1", "env": [{"name": "WORD", "value": "a, \"b\"\nc"}], "resources": {"requests": requests}}


def template(draw, name):
    """A pod template of one container, or with what a scheduler adds to it: sidecars, init containers, an overhead."""
    spec = {"containers": [container(draw, "main")]}
    if draw.random() < 0.3:
        spec["containers"].append(container(draw, "proxy"))
    if draw.random() < 0.3:
        spec["initContainers"] = [container(draw, "prepare", {"cpu": draw.choice(["50m", "3", "8"]), "memory": "64Mi"})]
    if draw.random() < 0.2:
        sidecar = {**container(draw, "sidecar"), "restartPolicy": "Always"}
        spec.setdefault("initContainers", []).insert(draw.randrange(2), sidecar)
    if draw.random() < 0.2:
        spec["overhead"] = {"cpu": "50m", "memory": "64Mi"}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def scaled(draw, moments, kind, namespace, name, seconds=None, stays=False):
    """A controller that is scaled a few times; it may change what its pods request and, unless it stays, be deleted and made again."""
    seconds = seconds or moments.begin(draw.randrange(1, 6))
    pods = template(draw, name)
    steps, count = [], 0
    for index, second in enumerate(seconds):
        if index and not stays and steps[-1][1] is not None and draw.random() < 0.15:
            steps.append((second, None, pods))
            continue
        if index and draw.random() < 0.15:
            pods = template(draw, name)
        count = draw.choice([number for number in range(0, 13) if number != count])
        steps.append((second, count, pods))
    return Scaled(kind, namespace, name, steps)


def emptied(draw, moments):
    """Deployments of a namespace that is emptied at one moment."""
    seconds = moments.next(5)
    found = [scaled(draw, moments, "Deployment", "review", name, part) for name, part in (("old-web", seconds[:2]), ("old-api", seconds[2:4]))]
    end = seconds[4]
    return [one if one.steps[-1][1] is None else one._replace(steps=[*one.steps, (end, None, one.steps[-1][2])]) for one in found]


def runs(draw, moments, kind, count, owner=None, cron=None):
    """Runs of one name after another, some of which do not end."""
    found = []
    for index in range(count):
        begin, end = moments.begin(2)
        name = f"{cron or owner or kind.lower()}-{index}"
        pods = template(draw, name)
        end = end if draw.random() < 0.8 else None
        found.append(Run(kind, "batch", name, pods, draw.randrange(1, 5) if kind == "Job" else 1, begin, end, owner, cron))
    return found


def of_one_template(found):
    """Runs of one owner are of one template."""
    return [run._replace(template=found[0].template) for run in found]


def cluster(draw):
    """Controllers with a scale, and runs. One Deployment is there from the beginning to the end."""
    moments = Moments(draw)
    first = scaled(draw, moments, "Deployment", "shop", "web", [0, *moments.next(4)], stays=True)
    controllers = [first, *emptied(draw, moments)]
    controllers += [scaled(draw, moments, "Deployment", "shop", f"api-{index}") for index in range(draw.randrange(1, 4))]
    controllers += [scaled(draw, moments, "StatefulSet", "data", f"db-{index}") for index in range(draw.randrange(1, 3))]
    found = runs(draw, moments, "Job", draw.randrange(1, 4))
    found += of_one_template(runs(draw, moments, "Job", 3, cron="nightly"))
    found += runs(draw, moments, "Pod", draw.randrange(2, 5))
    found += of_one_template(runs(draw, moments, "Pod", 3, owner="clones"))
    return controllers, found


def at(controller, second):
    """How many replicas there are, and the template; None before and after."""
    found = [step for step in controller.steps if step[0] <= second]
    return found[-1][1:] if found and found[-1][1] is not None else None
