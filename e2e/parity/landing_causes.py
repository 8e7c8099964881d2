"""Watches the pods and nodes of a run, reads the log of the kube-scheduler, and says of each pod that is not where it was planned what came in between."""

import http.client
import json
import re
import threading
import time
from collections import Counter, defaultdict

PLANNED = "spokeshave.dev/NodePlanned"
ON_NODE = "planned on node "
DAY = 24 * 3600
# How the log of the kube-scheduler names what matters here; --v=4 has it all.
VERBOSE = "--scheduler-arg=--v=4"
LINE = re.compile(r'^[IWE]\d{4} (\d\d):(\d\d):(\d\d\.\d+) .*?\] "([^"]*)".*? pod="default/([^"]+)"(?:.*? node="([^"]+)")?')
TRIED, REFUSED, BINDS = "Attempting to schedule pod", "node had untolerated taints", "Attempting to bind pod to node"

# What may come between a pod and its node, in the order in which it is told.
CAUSES = {
    "early": "went elsewhere before their node took pods",
    "taken back": "had their name taken back by the operator",
    "lost": "had lost their name to the scheduler when it tried them",
    "late": "were named after the scheduler had tried them",
    "refused": "were refused by their node, which took pods, and named it",
}


def condition(thing, kind):
    return next((one for one in (thing.get("status") or {}).get("conditions", []) if one["type"] == kind), {})


def said_node(pod):
    """The node that our condition names or has named, and whether it stands."""
    own = condition(pod, PLANNED)
    message = own.get("message", "")
    return (message[len(ON_NODE) :].split(" ")[0] if message.startswith(ON_NODE) else None), own.get("status") == "True"


def amount(quantity):
    """A quantity as a number; of memory in mebibytes, of processors in thousandths."""
    units = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
    for unit, factor in units.items():
        if quantity.endswith(unit):
            return float(quantity[: -len(unit)]) * factor
    return float(quantity[:-1]) if quantity.endswith("m") else float(quantity) * 1000


def requests(pod):
    """What a pod asks for: containers and sidecars, or a larger one that comes first."""
    asked = lambda container: {name: amount(value) for name, value in container.get("resources", {}).get("requests", {}).items() if name in ("cpu", "memory")}
    total, first = Counter(), Counter()
    for container in pod["spec"]["containers"]:
        total.update(asked(container))
    for container in pod["spec"].get("initContainers", []):
        if container.get("restartPolicy") == "Always":
            total.update(asked(container))
        else:
            first = Counter({name: max(first[name], value) for name, value in asked(container).items()})
    total = Counter({name: max(total[name], first[name]) for name in {*total, *first}})
    total.update({name: amount(value) for name, value in pod["spec"].get("overhead", {}).items() if name in ("cpu", "memory")})
    return total


def shape(pod):
    """What makes no difference between two pods but their names."""
    spec = {name: value for name, value in pod["spec"].items() if name not in ("nodeName", "volumes")}
    for container in spec["containers"] + spec.get("initContainers", []):
        container.pop("volumeMounts", None)
    return json.dumps([spec, pod["metadata"].get("labels")], sort_keys=True)


def seconds_of_day():
    """As the log of the kube-scheduler, which is in local time, tells it."""
    now = time.time()
    return (now + time.localtime(now).tm_gmtoff) % DAY


class Witness:
    """Sees every version of pods and nodes, with the time of day."""

    def __init__(self, server):
        self.server, self.lock = server, threading.Lock()
        self.pods, self.nodes = defaultdict(list), defaultdict(list)
        for path, note in (("/api/v1/namespaces/default/pods", self.saw_pod), ("/api/v1/nodes", self.saw_node)):
            threading.Thread(target=self.watch, args=(path, note), daemon=True).start()

    def watch(self, path, note):
        version = ""
        while True:
            try:
                connection = http.client.HTTPSConnection(self.server.host, self.server.port, context=self.server.context, timeout=3600)
                headers = {"User-Agent": "witness", **({"Authorization": f"Bearer {self.server.token}"} if self.server.token else {})}
                connection.request("GET", f"{path}?watch=1" + (f"&resourceVersion={version}" if version else ""), headers=headers)
                for line in connection.getresponse():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        version = ""
                        break
                    version = event["object"]["metadata"]["resourceVersion"]
                    with self.lock:
                        note(event["type"], event["object"])
            except (OSError, http.client.HTTPException, ValueError):
                # The control plane ends before its witness does.
                time.sleep(0.2)

    def saw_pod(self, what, pod):
        node, stands = said_node(pod)
        named = (pod.get("status") or {}).get("nominatedNodeName")
        self.pods[pod["metadata"]["uid"]].append((seconds_of_day(), named, node, stands, pod["spec"].get("nodeName")))

    def saw_node(self, what, node):
        closed = any(taint["effect"] != "PreferNoSchedule" for taint in node["spec"].get("taints", []))
        self.nodes[node["metadata"]["name"]].append((seconds_of_day(), closed or what == "DELETED"))

    def planned(self, pod):
        """The node on which a pod was planned last before it was bound, whether its name was taken back since or not."""
        with self.lock:
            seen = list(self.pods[pod["metadata"]["uid"]])
        named = [node for _, _, node, stands, bound in seen if node and stands and not bound]
        return named[-1] if named else None

    def cause(self, pod, attempt):
        """Why a pod is not on the node that it was planned on."""
        node, (tried, closed) = self.planned(pod), attempt
        with self.lock:
            seen, of_node = list(self.pods[pod["metadata"]["uid"]]), list(self.nodes[node])
        before = [one for one in seen if one[0] <= tried] or seen[:1]
        is_open = any(at <= tried for at, _ in of_node) and not [shut for at, shut in of_node if at <= tried][-1]
        if not said_node(pod)[1]:
            return "taken back"
        if node in closed or not is_open:
            return "early"
        if before[-1][1] == node:
            return "refused"
        return "lost" if any(named == node for _, named, *_ in before) else "late"


class SchedulerLog:
    """What the kube-scheduler's log says, read on from where it was left."""

    def __init__(self, path):
        self.path, self.read = path, 0

    def attempts(self):
        """By pod, of the try that led to its binding: when it began, and which nodes took no pods then. Of the lines since the last call."""
        tries, found = {}, {}
        with open(self.path, encoding="utf-8", errors="replace") as log:
            log.seek(self.read)
            for line in iter(log.readline, ""):
                match = LINE.match(line)
                if not match:
                    continue
                hours, minutes, seconds, what, pod, node = match.groups()
                if what == TRIED:
                    tries[pod] = (int(hours) * 3600 + int(minutes) * 60 + float(seconds), set())
                elif what == REFUSED and pod in tries:
                    tries[pod][1].add(node)
                elif what == BINDS and pod in tries:
                    found[pod] = tries[pod]
            self.read = log.tell()
        return found


def in_room_to_spare(pods, planned, nodes):
    """How many of the pods that are neither where they were planned nor where one just like them was are in room that their node's own pods have left: whoever was
    planned there would still fit beside them."""
    there, wanted, used = Counter(), Counter(), defaultdict(Counter)
    sizes = {}
    for pod in pods:
        name, kind, node = pod["metadata"]["name"], shape(pod), pod["spec"]["nodeName"]
        sizes[kind] = requests(pod)
        used[node].update(sizes[kind])
        if planned.get(name):
            there[kind, node] += 1
            wanted[kind, planned[name]] += 1
    missing = defaultdict(Counter)
    for (kind, node), count in (wanted - there).items():
        missing[node].update({name: value * count for name, value in sizes[kind].items()})
    room = {node["metadata"]["name"]: {name: amount(node["status"]["allocatable"][name]) for name in ("cpu", "memory")} for node in nodes}
    fits = lambda node: node in room and all(used[node][name] + missing[node][name] <= room[node][name] + 1e-6 for name in ("cpu", "memory"))
    guests = there - wanted
    return sum(count for (_, node), count in guests.items() if fits(node)), sum(guests.values())
