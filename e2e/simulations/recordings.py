"""Writes small recordings of every format that `spokeshave simulate` reads, for readers.py: what became of a random cluster, as its recorder would have seen it.

Equal names and seeds give equal files. `mix` is what is done to lists whose order says nothing: a recording with those shuffled has to mean the same.
"""

import collections
import csv
import datetime
import gzip
import json
import pathlib
import random
import re
import struct

import lives
from lives import at

# What a scenario imports; `dumps` are those that it begins with instead. `files` are all that were written.
Recording = collections.namedtuple("Recording", "options files dumps", defaults=((),))

API = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "ReplicaSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1", "Pod": "v1"}
MIDNIGHT = datetime.datetime(2026, 3, 2, tzinfo=datetime.timezone.utc)


def instant(second, digits=None):
    """An instant as Kubernetes writes it, or with fractions of a second."""
    text = (MIDNIGHT + datetime.timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}Z" if digits is None else f"{text}.{0:0{digits}}Z"


def named(kind, namespace, name, owner=None, **more):
    """An object; `owner` is the kind and name of its controller."""
    metadata = {"namespace": namespace, "name": name, "creationTimestamp": more.pop("created", instant(-3_600))}
    if owner:
        version = "apps.kruise.io/v1alpha1" if owner[0] == "CloneSet" else API[owner[0]]
        metadata["ownerReferences"] = [{"apiVersion": version, "kind": owner[0], "name": owner[1], "uid": "u", "controller": True}]
    return {"apiVersion": API[kind], "kind": kind, "metadata": metadata, **more}


def controller(one, replicas, template):
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": one.name}}, "template": template}
    return named(one.kind, one.namespace, one.name, spec=spec)


def job(run, end=None, **more):
    """A Job, which is over once there is an end."""
    status = {"startTime": instant(run.begin), "active": run.pods}
    if end is not None:
        status = {"startTime": instant(run.begin), "completionTime": instant(end), "succeeded": run.pods, "conditions": [{"type": "Complete", "status": "True"}]}
    spec = {"parallelism": run.pods, "completions": run.pods, "template": run.template, **more}
    owner = ("CronJob", run.cron) if run.cron else None
    return named("Job", run.namespace, run.name, owner, created=instant(run.begin), spec=spec, status=status)


def pod(run, name, phase, owner=None, end=None):
    status = {"phase": phase, "startTime": instant(run.begin)}
    if phase != "Pending":
        state = {"running": {"startedAt": instant(run.begin)}}
        if end is not None:
            state = {"terminated": {"exitCode": 0, "startedAt": instant(run.begin), "finishedAt": instant(end)}}
        status["containerStatuses"] = [{"name": one["name"], "state": state} for one in run.template["spec"]["containers"]]
    spec = {**run.template["spec"], "nodeName": "n1"}
    return named("Pod", run.namespace, name, owner, created=instant(run.begin), spec=spec, status=status)


def pods_of(run, end=None):
    """The pods of a run: those of a Job are its own."""
    phase = "Running" if end is None else "Succeeded"
    if run.kind == "Job":
        return [pod(run, f"{run.name}-{index}", phase, ("Job", run.name), end) for index in range(run.pods)]
    return [pod(run, run.name, phase, ("CloneSet", run.owner) if run.owner else None, end)]


def not_counted(second):
    """Objects that are there in every cluster, and of which there is nothing to count: pods of a DaemonSet and of a Deployment, and its ReplicaSet."""
    some = lives.Run("Pod", "shop", "x", {"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "7"}}}]}}, 1, second, None)
    return [
        named("ReplicaSet", "shop", "web-5d4f8c7b9", ("Deployment", "web"), spec={"replicas": 3, "template": some.template}),
        named("DaemonSet", "shop", "agent", spec={"selector": {"matchLabels": {"app": "agent"}}, "template": some.template}),
        pod(some, "web-5d4f8c7b9-abcde", "Running", ("ReplicaSet", "web-5d4f8c7b9")),
        pod(some, "agent-x7k2p", "Running", ("DaemonSet", "agent")),
    ]


PLAIN = re.compile(r"[A-Za-z/][\w./-]*\Z")


def block(value, indent=0):
    """A value as kubectl prints it: YAML in blocks, lists as far to the left as their key."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            is_block = bool(inner) and isinstance(inner, (dict, list))
            yield f"{pad}{key}:" + ("" if is_block else f" {scalar(inner)}")
            if is_block:
                yield from block(inner, indent + (2 if isinstance(inner, dict) else 0))
    elif isinstance(value, list):
        for inner in value:
            lines = list(block(inner, indent + 2)) if inner and isinstance(inner, dict) else [f"{pad}  {scalar(inner)}"]
            yield f"{pad}- {lines[0].lstrip()}"
            yield from lines[1:]


def scalar(value):
    is_plain = isinstance(value, str) and PLAIN.match(value) and value.lower() not in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
    return value if is_plain else json.dumps(value)


def save(draw, path, data, may_be_compressed=True):
    """Writes a file, compressed or not."""
    data = data if isinstance(data, bytes) else data.encode()
    if may_be_compressed and draw.random() < 0.3:
        path, data = path.with_name(path.name + ".gz"), gzip.compress(data, mtime=0)
    path.write_bytes(data)
    return path


def save_list(draw, folder, stem, items):
    """What `kubectl get` prints, as YAML or JSON."""
    whole = {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}
    is_yaml = draw.random() < 0.5
    text = "\n".join(block(whole)) if is_yaml else json.dumps(whole, indent=4)
    return save(draw, folder / f"{stem}.{'yaml' if is_yaml else 'json'}", text + "\n", may_be_compressed=False)


def there(controllers, second):
    """The controllers that are there at a time."""
    found = ((one, at(one, second)) for one in controllers)
    return [controller(one, *state) for one, state in found if state]


def dump(draw, folder, mix):
    """A dump to begin with, whose CronJobs go on as they did."""
    controllers, found = lives.cluster(draw)
    items = [*there(controllers, lives.DAY), *not_counted(0)]
    items.append(controller(lives.scaled(draw, lives.Moments(draw), "ReplicaSet", "shop", "alone", [0]), draw.randrange(1, 4), lives.template(draw, "alone")))
    items += [one for run in found if run.kind == "Pod" for one in pods_of(run, run.end)]
    for index, schedule in enumerate(draw.sample(["17 * * * *", "*/40 * * * *", "52 3 * * *", "7 */6 * * *", "29 1,13 * * 1-5"], 3)):
        name, pods = f"tick-{index}", draw.randrange(1, 4)
        # Half a minute beside the minutes at which others begin.
        last = lives.Run("Job", "batch", f"{name}-1", lives.template(draw, name), pods, -7_200, -7_200 + 60 * draw.randrange(1, 11) + 30, None, name)
        spec = {"parallelism": pods, "completions": pods, "template": last.template}
        items.append(named("CronJob", "batch", name, spec={"schedule": schedule, "concurrencyPolicy": "Allow", "jobTemplate": {"spec": spec}}))
        items += [job(last, last.end), *pods_of(last, last.end)]
    return Recording({}, [], [save_list(draw, folder, "monday", mix(items))])


def dumps(draw, folder, mix):
    """A dump every half an hour."""
    controllers, found = lives.cluster(draw)
    (folder / "dumps").mkdir(exist_ok=True)
    prefix, files = draw.choice(["", "prod-eu1-"]), []
    # Those that are gone before a dump shows that they have ended.
    vanish = [run.name for run in found if draw.random() < 0.15]
    for second in range(0, lives.DAY - 1_800, 1_800):
        items = [*there(controllers, second), *not_counted(0)]
        for run in (run for run in found if run.begin <= second):
            # What has ended is there for an hour.
            end = run.end if run.end is not None and run.end <= second else None
            if end is None or (second < end + 3_600 and run.name not in vanish):
                items += pods_of(run, end) + ([job(run, end)] if run.kind == "Job" else [])
        time = (MIDNIGHT + datetime.timedelta(seconds=second)).strftime("%Y-%m-%dT%H-%M")
        files.append(save_list(draw, folder / "dumps", prefix + time, mix(items)))
    return Recording({"format": "dumps", "file": "dumps"}, files)


def changes(controllers, found):
    """All changes in order of time: of controllers with replicas and template, and of runs."""
    those = [(second, index, one, (replicas, pods)) for index, one in enumerate(controllers) for second, replicas, pods in one.steps]
    for index, run in enumerate(found):
        those += [(second, 1_000 + index, run, what) for second, what in ((run.begin, "begin"), (run.end, "end")) if second is not None]
    return [(second, one, what) for second, _, one, what in sorted(those, key=lambda change: change[:2])]


def resized(draw, run):
    """Now and then a Job is suspended for a while, or changes its parallelism: when, and the Jobs that it is then."""
    middle = [(run.begin + run.end) // 2 + second for second in (0, 120)] if run.end is not None and run.end - run.begin > 900 else []
    what = draw.choice(["", "", "suspended", "resized"]) if middle else ""
    if what == "suspended":
        return [(middle[0], job(run, suspend=True)), (middle[1], job(run))]
    return [(middle[0], job(run._replace(pods=draw.choice([1, 6]))))] if what else []


def record(draw, folder, mix):
    """What `spokeshave record` writes. It is in order of time: of one instant, what makes pods comes before pods."""
    controllers, found = lives.cluster(draw)
    lines = [{"recording": "recording.spokeshave.dev/v1alpha1", "cluster": "https://c", "everySeconds": 15.0}]

    def line(second, what, *objects):
        # It lists every 15 seconds.
        lines.extend({"at": instant(-(-second // 15) * 15), "what": what, "object": one} for one in objects)

    beside, last = [one for one in not_counted(0) if one["kind"] != "DaemonSet"], 0
    for second, one, what in changes(controllers, found):
        if beside and second > 0:
            line(0, "applied", *beside)
            beside = []
        if isinstance(one, lives.Scaled):
            if what[0] is None:
                line(second, "deleted", named(one.kind, one.namespace, one.name))
            else:
                line(second, "applied", controller(one, *what))
        elif what == "begin" and one.kind == "Job":
            line(second, "applied", job(one), *pods_of(one))
            for middle, other in resized(draw, one):
                line(middle, "applied", other)
        elif what == "begin":
            line(second, "applied", {**pods_of(one)[0], "status": {"phase": "Pending"}})
            line(second + 15, "applied", *pods_of(one))
        elif draw.random() < 0.6:
            line(second, "applied", *([job(one, one.end)] if one.kind == "Job" else []), *pods_of(one, one.end))
        else:
            gone = ([job(one)] if one.kind == "Job" else []) + pods_of(one)
            line(second, "deleted", *(named(each["kind"], one.namespace, each["metadata"]["name"]) for each in gone))
        last = second
    for second, what, *objects in nodes(random.Random(json.dumps(lines)), last):
        line(second, what, *objects)
    lines.append({"at": instant(last + 600), "what": "ended"})
    text = "".join(json.dumps(one) + "\n" for one in sorted(lines, key=lambda one: one.get("at", "")))
    path = save(draw, folder / "shop.jsonl", text)
    return Recording({"format": "record", "file": path.name}, [path])


def nodes(draw, last):
    """What is recorded of nodes, in two of three recordings: whole at the beginning, and NodeClaims as they get their instances and go."""
    if draw.random() < 0.3:
        return
    for index in range(draw.randrange(1, 7)):
        begin = draw.choice([0, draw.randrange(15, max(last, 31))])
        end = draw.choice([None, begin + draw.randrange(60, 40_000)])
        labels = {"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": draw.choice(["spot", "on-demand"]),
                  "node.kubernetes.io/instance-type": draw.choice(["c-4x-amd64-linux", "m-8x-amd64-linux"]), "topology.kubernetes.io/zone": "test-zone-a"}
        identity = {"providerID": f"cloud://{index}"}
        claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": f"default-{index}", "labels": labels}, "status": identity}
        if begin == 0:
            spec = {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}, "requirements": []}
            yield 0, "applied", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{index}", "labels": labels}, "spec": identity}
            yield 0, "applied", {**claim, "spec": spec}
        else:
            yield begin - 15, "applied", {**claim, "status": {"providerID": None}}
            yield begin, "applied", claim
        if end is not None and end < last:
            yield end, "deleted", {"kind": "NodeClaim", "metadata": {"namespace": "", "name": f"default-{index}"}}


PLURALS = {"Deployment": "deployments", "StatefulSet": "statefulsets", "Job": "jobs", "Pod": "pods"}


def event(second, verb, one, subresource=None, request=None, response=None, **more):
    """An event of an audit log about an object."""
    kind, metadata = one["kind"], one["metadata"]
    group = API[kind].rpartition("/")[0]
    place = f"/{'apis/' + API[kind] if group else 'api/v1'}/namespaces/{metadata['namespace']}/{PLURALS[kind]}"
    about = {"resource": PLURALS[kind], "namespace": metadata["namespace"], "name": metadata["name"], "apiGroup": group, "apiVersion": "v1", "subresource": subresource}
    if verb == "deletecollection":
        about.pop("name")
    found = {"kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": f"{second}-{verb}", "stage": more.get("stage", "ResponseComplete"),
             "requestURI": place + more.get("query", ""), "verb": verb, "user": {"username": "u"}, "objectRef": {key: value for key, value in about.items() if value},
             "responseStatus": {"code": more.get("code", 200)}, "requestReceivedTimestamp": instant(second, 6), "stageTimestamp": instant(second, 6)}
    return {**found, **{key: value for key, value in (("requestObject", request), ("responseObject", response)) if value is not None}}


def scaling(draw, second, one, replicas, pods):
    """One of the ways in which a controller is scaled."""
    whole = controller(one, replicas, pods)
    way = draw.randrange(3)
    if way == 0:
        return event(second, "update", whole, request=whole, response=whole)
    if way == 1:
        return event(second, "patch", whole, request={"spec": {"replicas": replicas}}, response=whole)
    scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": whole["metadata"], "spec": {"replicas": replicas}, "status": {"replicas": 1}}
    return event(second, "patch", whole, "scale", {"spec": {"replicas": replicas}}, scale)


def without_effect(second, one):
    """Events that change nothing: a stage that says nothing new, a request that was refused, a dry run, an eviction, a question."""
    many = controller(one, 90, one.steps[0][2])
    x = pod(lives.Run("Pod", "shop", "x", one.steps[0][2], 1, second, None), "web-5d4f8c7b9-abcde", "Running", ("ReplicaSet", "web-5d4f8c7b9"))
    eviction = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": x["metadata"]}
    return [event(second, "update", many, request=many, stage="RequestReceived"), event(second, "update", many, request=many, code=409),
            event(second, "update", many, request=many, response=many, query="/web?dryRun=All"), event(second, "create", x, "eviction", eviction, eviction, code=201),
            event(second, "get", many, response=many)]


def ending(draw, second, run):
    """The end of a run, as its controller or whoever deletes it makes it."""
    if draw.random() < 0.4:
        return [event(second, "delete", job(run) if run.kind == "Job" else pods_of(run)[0], response={"kind": "Status", "status": "Success"})]
    if run.kind == "Job":
        return [event(second, "update", job(run), "status", job(run, run.end), job(run, run.end))]
    over = pods_of(run, run.end)[0]
    return [event(second, "patch", over, "status", {"status": over["status"]}, over)]


def audit(draw, folder, mix):
    """An audit log, or two of two servers. Its first event is of something that is counted."""
    controllers, found = lives.cluster(draw)
    events, was_there = [], {}
    for second, one, what in changes(controllers, found):
        if isinstance(one, lives.Scaled):
            replicas, pods = what
            key = (one.kind, one.namespace, one.name)
            before, was_there[key] = was_there.get(key), what
            whole = controller(one, replicas, pods)
            if replicas is None and one.namespace == "review" and second == one.steps[-1][0]:
                events.append(event(second, "deletecollection", whole, response={"kind": "Status", "status": "Success"}))
            elif replicas is None:
                events.append(event(second, "delete", whole, response={"kind": "Status", "status": "Success"}))
            elif before is None or before[0] is None:
                events.append(event(second, "create", whole, request=whole, response=whole, code=201))
            elif before[1] is not pods:
                events.append(event(second, "update", whole, request=whole, response=whole))
            else:
                events.append(scaling(draw, second, one, replicas, pods))
        elif what == "end":
            events += ending(draw, second, one)
        else:
            made = ([job(one)] if one.kind == "Job" else []) + pods_of(one)
            if one.kind == "Job":
                events += [event(middle, "update", other, request=other, response=other) for middle, other in resized(draw, one)]
            events += [event(second, "create", each, request=each, response=each, code=201) for each in made]
        if second > 0 and draw.random() < 0.2:
            events += without_effect(second, controllers[0])
    lines = mix([json.dumps(one) + "\n" for one in events])
    half = len(lines) // 2 if draw.random() < 0.5 else 0
    files = [save(draw, folder / f"audit-{index}.log", "".join(part)) for index, part in enumerate((lines[:half], lines[half:])) if part]
    names = [path.name for path in files]
    return Recording({"format": "audit", **({"file": names[0]} if len(names) == 1 else {"files": names})}, files)


def kubereplay(draw, folder, mix):
    """A capture of Deployments and Jobs; some Jobs say how long they ran, in nanoseconds."""
    controllers, found = lives.cluster(draw)
    events, there_now = [], set()
    for second, one, what in changes([one for one in controllers if one.kind == "Deployment"], [run for run in found if run.kind == "Job"]):
        key = f"{one.namespace}/{one.name}"
        told = {"key": key, "timestamp": instant(second)}
        if isinstance(one, lives.Run):
            if what == "begin":
                length = {"duration": (one.end - one.begin) * 10**9} if one.end is not None and draw.random() < 0.7 else {}
                events.append({"type": "create", "kind": "Job", "job": job(one), **told, **length})
        elif what[0] is None:
            there_now.discard(key)
            events.append({"type": "delete", "kind": "Deployment", **told})
        elif key in there_now:
            events.append({"type": "scale", "kind": "Deployment", "replicas": what[0], **told})
        else:
            there_now.add(key)
            events.append({"type": "create", "kind": "Deployment", "deployment": controller(one, *what), **told})
    text = json.dumps({"cluster": "c", "captured": instant(lives.DAY), "events": mix(events)}, indent=2)
    path = save(draw, folder / "workloads.json", text + "\n")
    return Recording({"format": "kubereplay", "file": path.name}, [path])


def packed(value):
    """A value in MessagePack. Keys may be tuples and numbers."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str):
        data = value.encode()
        return (bytes([0xA0 | len(data)]) if len(data) < 32 else b"\xda" + struct.pack(">H", len(data))) + data
    if isinstance(value, dict):
        head = bytes([0x80 | len(value)]) if len(value) < 16 else b"\xde" + struct.pack(">H", len(value))
        return head + b"".join(packed(part) for entry in value.items() for part in entry)
    head = bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdc" + struct.pack(">H", len(value))
    return head + b"".join(map(packed, value))


def rollout(one, replicas, template):
    whole = controller(one._replace(kind="Deployment"), replicas, template)
    return {**whole, "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}


def lifecycle(run, begin):
    """The lives of a run's pods as its tracer saw them, a second after their object: over, or not."""
    if run.end is None:
        return [{"Running": begin + run.begin + 1}] * run.pods
    # Each pod ends at a moment of its own.
    return [{"Finished": [begin + run.begin + 1, begin + run.end + 3 * index]} for index in range(run.pods)]


def sktrace(draw, folder, mix):
    """A trace of SimKube in which some lives of pods were followed."""
    controllers, found = lives.cluster(draw)
    moments = lives.Moments(draw)
    controllers.append(lives.scaled(draw, moments, "Rollout", "shop", "canary", [0, *[second + 25 for second in moments.next(2)]]))
    begin, followed, by_second = int(MIDNIGHT.timestamp()), {}, {}

    def told(second, what, one):
        by_second.setdefault(second, {"applied_objs": [], "deleted_objs": []})[what].append(one)

    for second, one, what in changes(controllers, [run for run in found if not run.owner]):
        make = rollout if one.kind == "Rollout" else controller
        if isinstance(one, lives.Scaled):
            told(second, "deleted_objs" if what[0] is None else "applied_objs", make(one, *what))
        elif what == "begin":
            told(second, "applied_objs", job(one._replace(cron=None)) if one.kind == "Job" else pods_of(one)[0])
            if one.kind == "Pod" or draw.random() < 0.6:
                followed[f"{API[one.kind]}.{one.kind}", f"{one.namespace}/{one.name}"] = {7: lifecycle(one, begin)}
    for index, schedule in enumerate(draw.sample(["*/40 * * * *", "17 */2 * * *", "52 3 * * *"], 2)):
        name = f"tick-{index}"
        spec = {"schedule": schedule, "jobTemplate": {"spec": {"parallelism": 2, "template": lives.template(draw, name)}}}
        told(60 * draw.randrange(5, 60) + 55, "applied_objs", named("CronJob", "batch", name, spec=spec))
        if draw.random() < 0.5:
            # In turn, and half a minute beside what begins.
            ran = [{"Finished": [begin + 9_000, begin + 9_000 + 60 * draw.randrange(1, 9) + 30]} for _ in range(draw.randrange(1, 4))]
            followed["batch/v1.CronJob", f"batch/{name}"] = {7: ran}
    told(lives.DAY - 3_600 - 5, "applied_objs", named("Pod", "shop", "x", spec={}) | {"kind": "ServiceAccount"})
    events = [{"ts": begin + second, **{key: mix(those) for key, those in by_second[second].items()}} for second in sorted(by_second)]
    tracked = {"argoproj.io/v1alpha1.Rollout": {"podSpecTemplatePaths": ["/spec/template"]}, "v1.Pod": {"podSpecTemplatePaths": [""], "trackLifecycle": True}}
    parts = {"version": 2, "config": {"trackedObjects": tracked}, "events": events, "index": {}, "pod_lifecycles": followed}
    path = save(draw, folder / "shop.sktrace", packed(dict(mix(list(parts.items())))))
    return Recording({"format": "sktrace", "file": path.name}, [path])


def prometheus(draw, folder, mix):
    """Answers to range queries: replica counts, and what pods request."""
    controllers, _ = lives.cluster(draw)
    step = draw.choice([60, 300, 600])
    begin = int(MIDNIGHT.timestamp())
    counts, requests = [], []
    for one in controllers:
        label, name = ("deployment", "kube_deployment_spec_replicas") if one.kind == "Deployment" else ("statefulset", "kube_statefulset_replicas")
        metric = {"__name__": name, "namespace": one.namespace, label: one.name, "job": "kube-state-metrics"}
        states = [(second, at(one, second)) for second in range(0, lives.DAY - 7_200, step)]
        points = [[begin + second, str(state[0])] for second, state in states if state]
        # One point is missed easily; where more are, it was gone.
        if len(points) > 19:
            at_point = draw.randrange(6, len(points) - 10)
            del points[at_point:at_point + draw.choice([1, 1, 5])]
        if not points:
            continue
        counts.append({"metric": metric, "values": points})
        if draw.random() < 0.8:
            pod_name = f"{one.name}-5d4f8c7b9-abcde" if label == "deployment" else f"{one.name}-0"
            for container, resource in [("main", "cpu"), ("proxy", "cpu"), ("main", "memory")]:
                value = draw.choice(["0.25", "0.5", "2"]) if resource == "cpu" else str(draw.randrange(1, 9) << 28)
                metric = {"__name__": "kube_pod_container_resource_requests", "namespace": one.namespace, "pod": pod_name, "container": container, "resource": resource}
                requests.append({"metric": metric, "values": [[second, value] for second, _ in points[:5]]})
    files = []
    for stem, series in (("counts", counts), ("requests", requests)):
        answer = {"status": "success", "data": {"resultType": "matrix", "result": mix(series)}}
        files.append(save(draw, folder / f"{stem}.json", json.dumps(answer, indent=1)))
    return Recording({"format": "prometheus", "files": [path.name for path in mix(files)]}, files)


def table(draw, path, head, rows):
    with open(path, "w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows([head, *rows])
    data = path.read_bytes()
    path.unlink()
    return save(draw, path, data)


def spans(draw, count):
    """When pods begin and end: one of them at the beginning."""
    moments = lives.Moments(draw)
    return [[0, moments.next(1)[0]], *(moments.next(2) for _ in range(count))]


def plain_csv(draw, folder, mix):
    """A table with columns of its own, as seconds or as timestamps; some cells are empty."""
    is_timestamp, unit, origin = draw.random() < 0.5, draw.choice(["B", "MiB", "GiB"]), draw.randrange(0, 5_000)
    time = (lambda second: instant(origin + second)) if is_timestamp else (lambda second: origin + second)
    rows = []
    for index, (begin, end) in enumerate(spans(draw, 40)):
        cpu = draw.choice(["0.5", "1", "2.25", "16", ""])
        memory = draw.choice({"B": ["268435456", "1073741824"], "MiB": ["512", "1024.5"], "GiB": ["0.5", "4"]}[unit])
        began = time(begin) if index == 0 or draw.random() < 0.9 else ""
        rows.append([f"p{index}, of it", draw.choice(["web", "a, \"b\"", "c\nd"]), began, draw.choice([time(end), time(end), ""]), cpu, memory, draw.choice(["0", "0", "1"])])
    path = table(draw, folder / "pods.csv", ["pod", "team", "begin", "finish", "cores", "mem", "gpus"], mix(rows))
    columns = {"start": "begin", "end": "finish", "cpu": "cores", "memory": "mem", "memoryUnit": unit, "gpu": "gpus", "group": "team"}
    return Recording({"format": "csv", "file": path.name, "columns": columns}, [path])


def openb(draw, folder, mix):
    """As Alibaba's `openb_pod_list_*.csv`."""
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time".split(",")
    rows = []
    for index, (begin, end) in enumerate(spans(draw, 40)):
        gpus, share = draw.choice([(0, 0), (1, 220), (1, 1000), (8, 1000)])
        rows.append([f"openb-pod-{index:04}", draw.choice([3200, 12000, 88000]), draw.choice([15258, 32768]), gpus, share, draw.choice(["", "V100M16|V100M32"]),
                     draw.choice(["LS", "BE", "Burstable"]), draw.choice(["Running", "Succeeded", "Failed"]), begin, end, begin])
    path = table(draw, folder / "openb_pod_list_default.csv", head, mix(rows))
    return Recording({"format": "openb", "file": path.name}, [path])


def dlrm(draw, folder, mix):
    """As Alibaba's `disaggregated_DLRM_trace.csv`: seconds from the start of the trace; what was there before has no time, nor has what was there after it."""
    head = ("instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,memory_limit,disk_request,disk_limit,"
            "max_instance_per_node,creation_time,scheduled_time,deletion_time").split(",")
    rows = []
    for index, (begin, end) in enumerate(spans(draw, 40)):
        cpu, gpu, memory = draw.choice([(12, 1, 120.0), (64, 0, 320.0), (8, 0, 32.0)])
        began = draw.choice([f"{begin}.0", f"{begin}.0", "", "NaN"]) if index else ""
        ended = draw.choice([f"{end}.0", f"{end}.0", "", "NaN"])
        rows.append([f"instance_{index}", "HN" if gpu else "CN", f"app_{draw.randrange(4)}", cpu, cpu, gpu, gpu, 1, 1, memory, memory, 1, 1,
                     draw.choice([-1, 1, 8]), began, began, ended])
    path = table(draw, folder / "disaggregated_DLRM_trace.csv", head, mix(rows))
    return Recording({"format": "dlrm", "file": path.name}, [path])


def azure_llm(draw, folder, mix):
    """As Azure's `AzureLLMInferenceTrace_*.csv`: a request a line, the first of them when a minute begins."""
    rows, minute = [], MIDNIGHT + datetime.timedelta(hours=18, minutes=15)
    for index in range(draw.randrange(5, 30)):
        requests = draw.choice([0, 1, 29, 30, 31, 60, 90])
        for request in range(max(requests, index == 0)):
            second = 60 * request // max(requests, 1)
            rows.append([(minute + datetime.timedelta(seconds=second)).strftime(f"%Y-%m-%d %H:%M:%S.{request:07}"), draw.randrange(1, 9_000), draw.randrange(1, 500)])
        minute += datetime.timedelta(minutes=1)
    path = table(draw, folder / "AzureLLMInferenceTrace_conv.csv", ["TIMESTAMP", "ContextTokens", "GeneratedTokens"], mix(rows))
    return Recording({"format": "azure-llm", "file": path.name, "requestsPerReplica": draw.choice([0.25, 0.5, 1.5])}, [path])


FORMATS = {"dump": dump, "dumps": dumps, "record": record, "audit": audit, "kubereplay": kubereplay, "sktrace": sktrace, "prometheus": prometheus,
           "csv": plain_csv, "openb": openb, "dlrm": dlrm, "azure-llm": azure_llm}


def written(name, seed, folder, mix=list):
    """A recording in a folder of its own."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    return FORMATS[name](random.Random(f"{name} {seed}"), folder, mix)
