"""Reads recordings of workloads and counts pods, an independent second opinion on what `spokeshave simulate --check` prints.

Written from docs/simulate.md and from what is public of each format (Kubernetes' API and its audit log, SimKube's docs/ref/trace-files.md, kubereplay's
pkg/format, Prometheus' HTTP API, the descriptions of Alibaba's and Azure's tables). It shares nothing with the program, nor with recordings.py, which writes
what it reads.
"""

import collections
import csv
import datetime
import gzip
import io
import json
import math
import re
import struct
from fractions import Fraction

TEN_MINUTES = 600_000
# What a Deployment requests of which Prometheus does not know it, and one of Azure's replicas: millicores and bytes.
UNKNOWN = (250, 256 << 20, 0)
REPLICA = (4_000, 16 << 30, 0)
GPU = "nvidia.com/gpu"

# What is counted; CPU in thousandths of a core, memory in bytes. `ends` are those changes that
# are ends of pods, and `instants` when each change is, in milliseconds from the first.
Counted = collections.namedtuple("Counted", "at_start births peak_pods peak_cpu peak_memory peak_gpus changes ends instants")


class Book:
    """Who has how many pods from when on. Times are milliseconds, of any origin."""

    def __init__(self):
        # `first` and `last`: what the pods of an owner request by its first template, and by the one of which it was told last.
        self.changes, self.first, self.last, self.wants, self.alive = [], {}, {}, {}, {}

    def note(self, at, owner, change, requests):
        self.changes.append((at, len(self.changes), owner, change, requests))

    def tell(self, owner, requests):
        """What the pods of an owner request from now on. Whether that is something else than before."""
        if requests is None:
            return False
        self.first.setdefault(owner, requests)
        before, self.last[owner] = self.last.get(owner, requests), requests
        return before != requests

    def replicas(self, at, owner, count, requests):
        # Another template is rolled out to all pods that there are.
        if self.tell(owner, requests):
            self.note(at, owner, "rollout", requests)
        if self.wants.get(owner, 0) != count:
            self.wants[owner] = count
            self.note(at, owner, count, self.last[owner])

    def singly(self, at, owner, count, requests):
        """The same of pods that begin and end one by one: those that began last end first, and each stays what it was."""
        self.tell(owner, requests)
        there = self.ends(owner)
        for pod in range(len(there), count):
            self.begin(at, owner, pod, requests)
        for pod in there[count:]:
            self.end(at, owner, pod)

    def begin(self, at, owner, pod, requests):
        if (owner, pod) not in self.alive:
            self.alive[owner, pod] = at
            self.tell(owner, requests)
            self.note(at, owner, ("begin", pod), requests)

    def end(self, at, owner, pod):
        if self.alive.pop((owner, pod), None) is not None:
            self.note(at, owner, ("end", pod), None)

    def ends(self, owner):
        """The pods of an owner that have no end yet."""
        return [pod for one, pod in self.alive if one == owner]

    def counted(self, speed=1, copies=1, scale_cpu=1, scale_memory=1, until=math.inf):
        """What all of it comes to, or its beginning, until so many milliseconds have passed. Of one instant only the outcome counts, for peaks."""
        scales = (Fraction(scale_cpu), Fraction(scale_memory), 1)
        changes = sorted(self.changes, key=lambda change: change[:2])
        first = changes[0][0]
        changes = [change for change in changes if (change[0] - first) / speed < until]
        counts, total, births, peaks = collections.Counter(), [0, 0, 0, 0], [0, 0], [0, 0, 0, 0]
        # By which template an owner makes pods at this moment, what single pods request, and when something happens.
        made, begun, instants, ends = dict(self.first), {}, [], 0
        for index, (at, _, owner, change, requests) in enumerate(changes):
            if change == "rollout":
                # All are made anew, at once where nothing has to wait.
                steps = [(-counts[owner], made[owner]), (counts[owner], requests)]
                made[owner] = requests
            elif isinstance(change, int):
                steps = [(change - counts[owner], requests)]
                counts[owner] = change
            elif change[0] == "begin":
                steps = [(1, requests)]
                begun[owner, change[1]] = requests
                if made[owner] != requests:
                    # That it is of another template is a change of its own.
                    made[owner] = requests
                    instants.append(at)
            else:
                steps = [(-1, begun.pop((owner, change[1])))]
                ends += 1
            instants.append(at)
            for more, wanted in steps:
                births[at > first] += max(more, 0)
                amounts = (1, *(amount * scale for amount, scale in zip(wanted, scales)))
                total = [there + more * amount for there, amount in zip(total, amounts)]
            if index + 1 == len(changes) or changes[index + 1][0] > at:
                peaks = [max(pair) for pair in zip(peaks, total)]
        return Counted(*(copies * count for count in [*births, *peaks, len(instants), ends]), [(at - first) / speed for at in instants])


def data_of(path):
    """What is in a file, decompressed."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def milliseconds(text):
    """An instant, as Kubernetes and Prometheus write it, in milliseconds since 1970."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)?", text)
    whole = datetime.datetime.fromisoformat(f"{match[1]}T{match[2]}+00:00")
    return int(whole.timestamp()) * 1_000 + int(float(match[3] or 0) * 1_000)


UNITS = {"": 1, "m": Fraction(1, 1_000), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text):
    """A quantity of Kubernetes."""
    number, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
    return Fraction(number) * UNITS[unit]


def requests_of(spec):
    """What the pods of a specification request, as kube-scheduler counts: sidecars run beside the containers and beside the init containers after them."""
    def amounts(requests):
        return [quantity(requests.get("cpu", 0)) * 1_000, quantity(requests.get("memory", 0)), quantity(requests.get(GPU, 0))]

    def of(container):
        return amounts((container.get("resources") or {}).get("requests") or {})

    def plus(one, other):
        return [sum(pair) for pair in zip(one, other)]

    sidecars, most = [0, 0, 0], [0, 0, 0]
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars = plus(sidecars, of(container))
            most = [max(pair) for pair in zip(most, sidecars)]
        else:
            most = [max(pair) for pair in zip(most, plus(sidecars, of(container)))]
    running = sidecars
    for container in spec.get("containers") or []:
        running = plus(running, of(container))
    most = [max(pair) for pair in zip(most, running)]
    return tuple(plus(most, amounts(spec.get("overhead") or {})))


def group_of(version):
    return version.rpartition("/")[0]


def key_of(one):
    metadata = one.get("metadata") or {}
    return one["kind"], metadata.get("namespace", ""), metadata.get("name", "")


def owner_of(one):
    """Kind, name and group of an object's controller."""
    for owner in (one.get("metadata") or {}).get("ownerReferences") or []:
        if owner.get("controller"):
            return owner["kind"], owner["name"], group_of(owner.get("apiVersion", ""))
    return None


def is_over(one):
    """Whether a Job or a pod has ended."""
    status = one.get("status") or {}
    conditions = status.get("conditions") or []
    has_ended = any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)
    return status.get("phase") in ("Succeeded", "Failed") or "completionTime" in status or (one["kind"] == "Job" and has_ended)


# Their pods are counted by themselves.
COUNTED = {("Deployment", "apps"), ("StatefulSet", "apps"), ("ReplicaSet", "apps"), ("DaemonSet", "apps"), ("Job", "batch"), ("ReplicationController", "")}


def is_alone(pod):
    """Whether a pod is counted as itself: it is bare, or of a controller of another group."""
    owner = owner_of(pod)
    return not owner or (owner[0], owner[2]) not in COUNTED


class Cluster:
    """Objects that are applied and deleted one after the other."""

    def __init__(self, book):
        self.book = book

    def apply(self, at, one):
        key, spec = key_of(one), one.get("spec") or {}
        group = group_of(one.get("apiVersion", ""))
        if (key[0], group) in (("Deployment", "apps"), ("StatefulSet", "apps")):
            self.book.replicas(at, key, spec.get("replicas", 1), requests_of(spec["template"]["spec"]))
        elif (key[0], group) == ("Job", "batch"):
            self.job(at, key, one, spec)
        elif (key[0], group) == ("Pod", "") and is_alone(one):
            if is_over(one):
                self.book.end(at, key, 0)
            elif not spec.get("schedulingGates"):
                self.book.begin(at, key, 0, requests_of(spec))

    def job(self, at, key, one, spec):
        wanted = 0 if is_over(one) or spec.get("suspend") else spec.get("parallelism", 1)
        for pod in range(wanted):
            self.book.begin(at, key, pod, requests_of(spec["template"]["spec"]))
        for pod in [pod for pod in self.book.ends(key) if pod >= wanted]:
            self.book.end(at, key, pod)

    def delete(self, at, key):
        if key in self.book.wants:
            self.book.replicas(at, key, 0, None)
        for pod in self.book.ends(key):
            self.book.end(at, key, pod)


def record(paths, _):
    book = Book()
    cluster = Cluster(book)
    lines = [json.loads(line) for line in data_of(paths[0]).decode().splitlines()]
    for line in lines[1:]:
        if line["what"] == "applied":
            cluster.apply(milliseconds(line["at"]), line["object"])
        elif line["what"] == "deleted":
            cluster.delete(milliseconds(line["at"]), key_of(line["object"]))
    return book


# Hours of nodes, the most at once.
Nodes = collections.namedtuple("Nodes", "hours most")


def nodes(options, folder, until):
    """What really was of nodes in the first `until` milliseconds of a recording; None where it does not tell, or is not simulated as it was."""
    is_bent = any(options.get(name, 1) != 1 for name in ("speed", "copies", "scaleCpu", "scaleMemory"))
    if options["format"] != "record" or is_bent:
        return None
    lines = [json.loads(line) for line in data_of(folder / options["file"]).decode().splitlines()][1:]
    first, last = milliseconds(lines[0]["at"]), milliseconds(lines[-1]["at"])
    began, lives = {}, []
    for line in lines:
        one = line.get("object") or {}
        if one.get("kind") != "NodeClaim":
            continue
        at, name = milliseconds(line["at"]) - first, one["metadata"]["name"]
        if line["what"] == "deleted" and name in began:
            lives.append((began.pop(name), at))
        elif line["what"] == "applied" and (one.get("status") or {}).get("providerID"):
            began.setdefault(name, at)
    lives += [(begin, until) for begin in began.values()]
    if not lives or 100 * (last - first) < 99 * until:
        return None
    lives = [(begin, min(end, until)) for begin, end in lives if begin < min(end, until)]
    changes = collections.Counter()
    for begin, end in lives:
        changes[begin] += 1
        changes[end] -= 1
    there = most = 0
    for at in sorted(changes):
        there += changes[at]
        most = max(most, there)
    return Nodes(sum(end - begin for begin, end in lives) / 3_600_000, most)


KINDS = {"deployments": ("Deployment", "apps/v1"), "statefulsets": ("StatefulSet", "apps/v1"), "jobs": ("Job", "batch/v1"), "pods": ("Pod", "v1")}


def audit(paths, _):
    events = [json.loads(line) for path in paths for line in data_of(path).decode().splitlines()]
    book, specs = Book(), {}
    cluster = Cluster(book)
    for event in sorted(events, key=lambda event: event["stageTimestamp"]):
        about = event["objectRef"]
        if event["stage"] != "ResponseComplete" or event["responseStatus"]["code"] >= 300 or "dryRun=" in event["requestURI"] or about["resource"] not in KINDS:
            continue
        kind, version = KINDS[about["resource"]]
        at, key = milliseconds(event["stageTimestamp"]), (kind, about["namespace"], about.get("name", ""))
        subresource = about.get("subresource", "")
        if event["verb"] == "deletecollection":
            for other in [other for other in specs if other[:2] == key[:2]]:
                cluster.delete(at, other)
        elif event["verb"] == "delete" and not subresource:
            cluster.delete(at, key)
        elif event["verb"] in ("create", "update", "patch") and subresource in ("", "status"):
            one = {**event["responseObject"], "kind": kind, "apiVersion": version}
            specs[key_of(one)] = one
            cluster.apply(at, one)
        elif event["verb"] in ("update", "patch") and subresource == "scale" and key in specs:
            specs[key]["spec"]["replicas"] = event["responseObject"]["spec"]["replicas"]
            cluster.apply(at, specs[key])
    return book


def kubereplay(paths, _):
    log, book = json.loads(data_of(paths[0])), Book()
    for event in sorted(log["events"], key=lambda event: milliseconds(event["timestamp"])):
        at, key = milliseconds(event["timestamp"]), (event["kind"], event["key"])
        if event["kind"] == "Job":
            spec = event["job"]["spec"]
            length = event["duration"] // 10**6 if event.get("duration") else TEN_MINUTES
            for pod in range(spec.get("parallelism", 1)):
                book.begin(at, key, pod, requests_of(spec["template"]["spec"]))
                book.end(at + length, key, pod)
        elif event["type"] == "create":
            spec = event["deployment"]["spec"]
            book.replicas(at, key, spec.get("replicas", 1), requests_of(spec["template"]["spec"]))
        else:
            book.replicas(at, key, event["replicas"] if event["type"] == "scale" else 0, None)
    return book


def unpacked(data):
    """A value of MessagePack (github.com/msgpack/msgpack/blob/master/spec.md). Keys may be arrays, which become tuples."""
    stream = io.BytesIO(data)

    def number(layout):
        return struct.unpack(">" + layout, stream.read(struct.calcsize(layout)))[0]

    def items(count):
        return [value() for _ in range(count)]

    def mapping(count):
        pairs = (items(2) for _ in range(count))
        return {tuple(key) if isinstance(key, list) else key: inner for key, inner in pairs}

    def value():
        head = number("B")
        if head < 0x80 or head >= 0xE0:
            return head if head < 0x80 else head - 256
        if head < 0xC0:
            low = head & (0x1F if head >= 0xA0 else 0x0F)
            return stream.read(low).decode() if head >= 0xA0 else items(low) if head >= 0x90 else mapping(low)
        if head in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[head]
        if 0xCA <= head <= 0xD3:
            return number("fdBHIQbhiq"[head - 0xCA])
        if 0xD9 <= head <= 0xDB:
            return stream.read(number("BHI"[head - 0xD9])).decode()
        if head >= 0xDC:
            return (items if head < 0xDE else mapping)(number("HI"[head % 2]))
        return stream.read(number("BHI"[head - 0xC4]))

    return value()


def cron_times(schedule, first, last):
    """The times of a schedule between two instants in milliseconds, without the first and with the last: numbers, `*`, `*/N`, ranges and lists, in UTC."""
    def numbers(field, low, high):
        found = set()
        for part in field.split(","):
            span, _, step = part.partition("/")
            begin, _, end = (f"{low}-{high}" if span == "*" else span).partition("-")
            found.update(range(int(begin), int(end or begin) + 1, int(step or 1)))
        return found

    fields = [numbers(field, *bounds) for field, bounds in zip(schedule.split(), [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)])]
    for at in range((first // 60_000 + 1) * 60_000, last + 1, 60_000):
        time = datetime.datetime.fromtimestamp(at // 1_000, datetime.timezone.utc)
        if all(part in field for part, field in zip((time.minute, time.hour, time.day, time.month, time.isoweekday() % 7), fields)):
            yield at


def at_pointer(one, pointer):
    for part in pointer.strip("/").split("/") if pointer.strip("/") else []:
        one = one[part]
    return one


def sktrace(paths, _):
    trace, book = unpacked(data_of(paths[0])), Book()
    events = [{**event, "ts": event["ts"] * 1_000} for event in trace["events"]]
    tracked, begun = trace["config"]["trackedObjects"], {}
    lives = {key: next(iter(by_hash.values())) for key, by_hash in trace["pod_lifecycles"].items() if by_hash}
    cluster, over = Cluster(book), []

    def apply(at, one, kind, key):
        followed = lives.get((kind, f"{key[1]}/{key[2]}"))
        if kind in ("batch/v1.Job", "v1.Pod"):
            if key not in begun and (kind != "v1.Pod" or is_alone(one)):
                begun[key] = at
                cluster.apply(at, {**one, "status": {}})
                end = end_of(kind, at, followed)
                over.extend((end, key, pod) for pod in book.ends(key) if end < math.inf)
        elif kind == "batch/v1.CronJob":
            begun.setdefault(key, (at, one, followed))
        elif kind in ("apps/v1.Deployment", "apps/v1.StatefulSet"):
            cluster.apply(at, one)
        elif (tracked.get(kind) or {}).get("podSpecTemplatePaths"):
            path = tracked[kind]["podSpecTemplatePaths"][0]
            beside = at_pointer(one, path.rpartition("/")[0])
            count = beside.get("replicas", beside.get("parallelism", 1))
            # Nothing is known of its scale: its pods come and go one by one.
            book.singly(at, key, count, requests_of(at_pointer(one, path)["spec"]))

    for event in events:
        # What ended by itself has done so before.
        for one in [one for one in over if one[0] <= event["ts"]]:
            over.remove(one)
            book.end(*one)
        for one in event["applied_objs"]:
            apply(event["ts"], one, f"{one['apiVersion']}.{one['kind']}", key_of(one))
        for one in event["deleted_objs"]:
            cluster.delete(event["ts"], key_of(one))
    for one in over:
        book.end(*one)
    for key, (at, one, followed) in [(key, found) for key, found in begun.items() if key[0] == "CronJob"]:
        cron_runs(book, key, one, at, events[-1]["ts"], lambda index, found=followed: length_in_turn(found, index))
    return book


def end_of(kind, at, followed):
    """When a Job or a bare pod that begins then is over: a Job when the last of its pods was, and a pod with the first life that was not over before."""
    ends = [life["Finished"][1] * 1_000 if "Finished" in life else math.inf for life in followed or []]
    if not ends:
        return at + TEN_MINUTES if kind == "batch/v1.Job" else math.inf
    return max(ends) if kind == "batch/v1.Job" else next(end for end in ends if end >= at)


def length_in_turn(lives, index):
    """How long the pod with this number takes: as long as those that were followed, in turn."""
    lengths = [(life["Finished"][1] - life["Finished"][0]) * 1_000 for life in lives or [] if "Finished" in life]
    return lengths[index % len(lengths)] if lengths else TEN_MINUTES


def cron_runs(book, key, one, first, last, length):
    """The Jobs of a CronJob; `length` is how long a pod takes, by its number. A run takes as long as the longest of its pods."""
    spec, begun = one["spec"]["jobTemplate"]["spec"], 0
    for at in cron_times(one["spec"]["schedule"], first, last):
        pods = range(begun, begun + spec.get("parallelism", 1))
        for pod in pods:
            book.begin(at, key, pod, requests_of(spec["template"]["spec"]))
            book.end(at + max(map(length, pods)), key, pod)
        begun = pods.stop


def yaml_value(text):
    """A document as kubectl prints it: blocks, and scalars on one line."""
    lines = [(len(line) - len(line.lstrip(" ")), line.strip()) for line in text.splitlines() if line.strip() and not line.startswith("---")]

    def scalar(text):
        if text[:1] in ("\"", "{", "["):
            return json.loads(text)
        return {"null": None, "true": True, "false": False}.get(text, int(text) if re.fullmatch(r"-?\d+", text) else text)

    def value(indent):
        """The block whose lines begin here."""
        if lines[0][1].startswith("- "):
            found = []
            while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
                rest = lines[0][1][2:]
                lines[0] = (indent + 2, rest)
                found.append(value(indent + 2) if re.match(r"[\w./-]+:( |$)", rest) else scalar(lines.pop(0)[1]))
            return found
        found = {}
        while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
            key, _, rest = lines.pop(0)[1].partition(":")
            is_inner = not rest and lines and (lines[0][0] > indent or (lines[0][0] == indent and lines[0][1].startswith("- ")))
            found[key] = value(lines[0][0]) if is_inner else scalar(rest.strip() or "null")
        return found

    return value(0)


def items_of(path):
    text = data_of(path).decode()
    return (json.loads(text) if text.startswith("{") else yaml_value(text))["items"]


def replicas_in(items):
    """The controllers with a scale in a dump: what they are called, how many they want, what their pods request."""
    for one in items:
        if (one["kind"], group_of(one["apiVersion"])) in (("Deployment", "apps"), ("StatefulSet", "apps"), ("ReplicaSet", "apps")) and not owner_of(one):
            yield key_of(one), one["spec"]["replicas"], requests_of(one["spec"]["template"]["spec"])


def dump(paths, start, length):
    """A dump whose workloads run from the start, for so long, both in milliseconds."""
    book, items = Book(), items_of(paths[0])
    for key, count, requests in [*replicas_in(items), *replicas_by_pods(items)]:
        book.replicas(start, key, count, requests)
    for one in items:
        if one["kind"] == "Pod" and not owner_of(one) and not is_over(one):
            book.begin(start, key_of(one), 0, requests_of(one["spec"]))
    for one in (one for one in items if one["kind"] == "CronJob"):
        ended = [job["status"] for job in items if job["kind"] == "Job" and owner_of(job)[:2] == ("CronJob", one["metadata"]["name"]) and is_over(job)]
        took = milliseconds(ended[0]["completionTime"]) - milliseconds(ended[0]["startTime"])
        # It was there before, so that it runs at the very start, too.
        cron_runs(book, key_of(one), one, start - 1, start + length - 1, lambda _, took=took: took)
    return book


def replicas_by_pods(items):
    """Controllers of other groups, which are not in a dump: as many replicas as it has pods of them."""
    pods = [one for one in items if one["kind"] == "Pod" and owner_of(one) and is_alone(one) and not is_over(one)]
    counts = collections.Counter((*owner_of(one)[:2], one["metadata"]["namespace"]) for one in pods)
    for one in pods:
        key = (*owner_of(one)[:2], one["metadata"]["namespace"])
        yield key, counts[key], requests_of(one["spec"])


def pod_times(pod):
    """When a pod of a dump began and ended, by its status."""
    status = pod["status"]
    ends = [container["state"].get("terminated", {}).get("finishedAt") for container in status.get("containerStatuses") or []]
    return milliseconds(status["startTime"]), max(map(milliseconds, ends)) if ends and all(ends) else None


def dumps(paths, _):
    book, pods, seen = Book(), {}, {}
    files = sorted((path for folder in paths for path in folder.iterdir()), key=lambda path: re.search(r"\d{4}-.*", path.name)[0])
    for path in files:
        digits = re.search(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)", path.name)
        at = milliseconds(f"{digits[1]}T{digits[2]}:{digits[3]}:00Z")
        first = at if path is files[0] else first
        items = items_of(path)
        there = {key: (count, requests) for key, count, requests in [*replicas_in(items), *replicas_by_pods(items)]}
        for key, (count, requests) in there.items():
            book.replicas(at, key, count, requests)
        for key in seen.keys() - there.keys():
            book.replicas(at, key, 0, None)
        seen = there
        for one in items:
            owner = owner_of(one)
            if one["kind"] == "Pod" and (not owner or owner[0] == "Job"):
                pods[key_of(one)] = one
        # What is not there any more ended, at the latest, when a dump shows it.
        for key in pods.keys() - {key_of(one) for one in items}:
            pods[key].setdefault("gone", at)
    for key, one in pods.items():
        begin, end = pod_times(one)
        end = end or one.get("gone")
        if end is None or end > first:
            book.begin(max(begin, first), key, 0, requests_of(one["spec"]))
            if end is not None:
                book.end(end, key, 0)
    return book


SERIES = {"kube_deployment_spec_replicas": "deployment", "kube_statefulset_replicas": "statefulset"}


def prometheus(paths, _):
    series = [one for path in paths for one in json.loads(data_of(path))["data"]["result"]]
    counts = [one for one in series if one["metric"]["__name__"] in SERIES]
    times = sorted({at for one in counts for at, _ in one["values"]})
    step = min(later - earlier for earlier, later in zip(times, times[1:]))
    book = Book()
    for one in counts:
        label = SERIES[one["metric"]["__name__"]]
        key = (label, one["metric"]["namespace"], one["metric"][label])
        requests = requests_in_series(series, key)
        points = [(at, int(count)) for at, count in one["values"]]
        for (at, count), (later, _) in zip(points, [*points[1:], (math.inf, None)]):
            book.replicas(at * 1_000, key, count, requests)
            # A point stands for one step; that one or two are missed says nothing.
            if later - at > 3 * step and at + step <= times[-1]:
                book.replicas((at + step) * 1_000, key, 0, requests)
    return book


def requests_in_series(series, key):
    """What the pods of a workload request: that of its first pod, by container and resource."""
    label, namespace, name = key
    pattern = re.escape(name) + (r"-[0-9a-z]+-[0-9a-z]{5}" if label == "deployment" else r"-\d+")
    found = collections.defaultdict(dict)
    for one in series:
        metric = one["metric"]
        if metric["__name__"] == "kube_pod_container_resource_requests" and metric["namespace"] == namespace and re.fullmatch(pattern, metric["pod"]):
            found[metric["resource"]][metric["pod"], metric["container"]] = Fraction(one["values"][0][1])
    if not found:
        return UNKNOWN
    return (sum(found["cpu"].values()) * 1_000 if found["cpu"] else UNKNOWN[0], sum(found["memory"].values()) if found["memory"] else UNKNOWN[1], 0)


def rows_of(path):
    return list(csv.DictReader(io.StringIO(data_of(path).decode(), newline="")))


def is_there(text):
    return text.strip() not in ("", "NaN", "nan")


def table(rows, start, end, requests, time=lambda text: int(Fraction(text) * 1_000)):
    """A pod for each row; without a start it is there from the beginning, without an end until the end."""
    book = Book()
    begins = [time(row[start]) if is_there(row[start]) else None for row in rows]
    first = min((begin for begin in begins if begin is not None), default=0)
    for index, (row, begin) in enumerate(zip(rows, begins)):
        book.begin(first if begin is None else begin, index, 0, requests(row))
        if is_there(row[end]):
            book.end(time(row[end]), index, 0)
    return book


def plain_csv(paths, options):
    columns, unit = options["columns"], {"B": 1, "MiB": 2**20, "GiB": 2**30}[options["columns"].get("memoryUnit", "B")]

    def number(row, name):
        return Fraction(row[columns[name]].strip() or 0)

    rows = rows_of(paths[0])
    has_seconds = all(re.fullmatch(r"[0-9.]*", row[columns["start"]]) for row in rows)
    time = {} if has_seconds else {"time": milliseconds}
    return table(rows, columns["start"], columns["end"], lambda row: (number(row, "cpu") * 1_000, number(row, "memory") * unit, number(row, "gpu")), **time)


def openb(paths, _):
    return table(rows_of(paths[0]), "creation_time", "deletion_time", lambda row: (int(row["cpu_milli"]), int(row["memory_mib"]) << 20, int(row["num_gpu"])))


def dlrm(paths, _):
    """Times are of the start of the trace: what was there before has none."""
    def requests(row):
        return Fraction(row["cpu_request"]) * 1_000, Fraction(row["memory_request"]) * 2**30, Fraction(row["gpu_request"])

    rows = rows_of(paths[0])
    return table([{**row, "creation_time": row["creation_time"] if is_there(row["creation_time"]) else "0"} for row in rows], "creation_time", "deletion_time", requests)


def azure_llm(paths, options):
    """The rate of each minute as replicas."""
    minutes = collections.Counter(milliseconds(row["TIMESTAMP"]) // 60_000 for row in rows_of(paths[0]))
    book = Book()
    for minute in range(min(minutes), max(minutes) + 1):
        rate = Fraction(minutes[minute], 60)
        book.replicas(minute * 60_000, "azure-llm", math.ceil(rate / Fraction(options["requestsPerReplica"])), REPLICA)
    return book


FORMATS = {"dumps": dumps, "record": record, "audit": audit, "kubereplay": kubereplay, "sktrace": sktrace, "prometheus": prometheus,
           "csv": plain_csv, "openb": openb, "dlrm": dlrm, "azure-llm": azure_llm}


def counted(options, folder, until=math.inf):
    """What a recording comes to, or its beginning, that a scenario imports with these options, from the files in a folder."""
    names = options["files"] if "files" in options else [options["file"]]
    book = FORMATS[options["format"]]([folder / name for name in names], options)
    return book.counted(options.get("speed", 1), options.get("copies", 1), options.get("scaleCpu", 1), options.get("scaleMemory", 1), until=until)
