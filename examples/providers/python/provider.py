"""A provider for Spokeshave whose instances are processes on this machine (docs/providers.md).

What exists is what the folder says and the kernel confirms: nothing is lost when the provider restarts. It needs `grpcio`, and the
code that `grpc_tools.protoc` makes of crates/provider-grpc/proto/provider.proto.

    provider.py --socket /run/provider.sock --state /var/lib/provider [--machine PROGRAM]

An instance is the process of PROGRAM (by default one that only sleeps), which is told in its environment what it joins as: NODE_NAME, NODE_LABELS and NODE_TAINTS.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import grpc
import provider_pb2 as pb
import provider_pb2_grpc

VERSION = "v1alpha1"
PREFIX = "process:///"
# Name, CPUs, memory, price in billionths of a dollar per hour.
SIZES = [("small", "1", "2Gi", 10_000_000), ("medium", "2", "4Gi", 20_000_000), ("large", "4", "8Gi", 40_000_000)]
ZONES = ["rack-1", "rack-2"]


def requirement(key, *values):
    return pb.Requirement(key=key, operator=pb.OPERATOR_IN, values=values)


def offering(zone, price):
    where = [requirement("topology.kubernetes.io/zone", zone), requirement("karpenter.sh/capacity-type", "on-demand")]
    return pb.Offering(id=f"on-demand/{zone}", requirements=where, price_nano_per_hour=price, available=True)


def instance_type(name, cpu, memory, price):
    return pb.InstanceType(
        name=name,
        requirements=[
            requirement("node.kubernetes.io/instance-type", name),
            requirement("kubernetes.io/arch", "amd64"),
            requirement("kubernetes.io/os", "linux"),
            requirement("topology.kubernetes.io/zone", *ZONES),
            requirement("karpenter.sh/capacity-type", "on-demand"),
        ],
        capacity={"cpu": cpu, "memory": memory, "pods": "30"},
        kube_reserved={"cpu": "100m", "memory": "256Mi"},
        offerings=[offering(zone, price) for zone in ZONES],
    )


class Machines:
    """Processes, and a file for each."""

    def __init__(self, folder, program=None):
        self.command = [program] if program else ["sleep", "infinity"]
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        self.children = {}

    def path(self, uid):
        return self.folder / f"{uid.replace('/', '_')}.json"

    def launch(self, request, candidate):
        with self.lock:
            path = self.path(request.nodeclaim_uid)
            if path.exists():
                return json.loads(path.read_text())  # The same NodeClaim again: the same machine.
            child = subprocess.Popen(self.command, env={**os.environ, **surroundings(request)}, start_new_session=True)
            self.children[child.pid] = child
            record = {
                "pid": child.pid,
                "started": start_of(child.pid),
                "uid": request.nodeclaim_uid,
                "name": request.nodeclaim_name,
                "type": candidate.type,
                "offering": candidate.offering_id,
                "created": int(time.time()),
            }
            hidden = path.with_suffix(".new")
            hidden.write_text(json.dumps(record))
            hidden.rename(path)
            return record

    def all(self):
        with self.lock:
            records = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]
            return [record for record in records if self.lives(record)]

    def lives(self, record):
        """Whether the process exists; the file of one that has ended goes."""
        child = self.children.get(record["pid"])
        if child is not None and child.poll() is not None:
            del self.children[record["pid"]]
        if start_of(record["pid"]) == record["started"]:
            return True
        if start_of(record["pid"]) is None:
            end(record)  # What the instance has started may outlive it.
        self.path(record["uid"]).unlink(missing_ok=True)
        return False

    def find(self, provider_id):
        return next((record for record in self.all() if provider_id == id_of(record)), None)


def surroundings(request):
    """What an instance joins as."""
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in request.taints]
    return {"NODE_NAME": request.nodeclaim_name, "NODE_LABELS": json.dumps(dict(request.labels)), "NODE_TAINTS": json.dumps(taints)}


def start_of(pid):
    """When the process was started, in the kernel's ticks: the number of a process is used again, together with this never."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else fields[19]


def end(record):
    """Ends the instance with all that it has started: each is the leader of a group of its own."""
    try:
        os.killpg(record["pid"], signal.SIGTERM)
    except ProcessLookupError:
        pass


def id_of(record):
    return f"{PREFIX}{record['pid']}-{record['started']}"


def instance(record):
    state = pb.INSTANCE_STATE_TERMINATING if record.get("ending") else pb.INSTANCE_STATE_RUNNING
    answer = pb.Instance(
        provider_id=id_of(record),
        nodeclaim_name=record["name"],
        nodeclaim_uid=record["uid"],
        state=state,
        type=record["type"],
        offering_id=record["offering"],
        image_id="sleep",
    )
    answer.created_at.FromSeconds(record["created"])
    return answer


class Provider(provider_pb2_grpc.ProviderServicer):
    def __init__(self, machines):
        self.machines = machines
        self.cluster = None
        self.term = 0

    def refuse_old_leaders(self, term, context):
        if term < self.term:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"leader_term {term} is older than {self.term}")
        self.term = term

    def Handshake(self, request, context):
        if VERSION not in request.supported_versions:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this provider speaks {VERSION}")
        if self.cluster not in (None, request.cluster_uid):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this provider serves the cluster {self.cluster}")
        self.cluster = request.cluster_uid or None
        self.term = max(self.term, request.leader_term)
        kind = pb.NodeClassKind(group="process.example", version="v1", kind="ProcessNodeClass", plural="processnodeclasses")
        return pb.HandshakeResponse(
            chosen_version=VERSION, provider_name="process", provider_version="1", node_classes=[kind], leader_term=self.term
        )

    def WatchCatalog(self, request, context):
        yield pb.CatalogChunk(generation=1, snapshot_complete=True, types=[instance_type(*size) for size in SIZES])
        ended = threading.Event()
        context.add_callback(ended.set)
        ended.wait()  # Nothing ever changes.

    def Launch(self, request, context):
        self.refuse_old_leaders(request.leader_term, context)
        if not request.candidates:
            kind = pb.FAILURE_KIND_INSUFFICIENT_CAPACITY
            return pb.LaunchReply(failure=pb.LaunchFailure(kind=kind, message="nothing suits the NodeClaim"))
        return pb.LaunchReply(instance=instance(self.machines.launch(request, request.candidates[0])))

    def GetInstance(self, request, context):
        record = self.machines.find(request.provider_id)
        if record is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no {request.provider_id}")
        return instance(record)

    def ListInstances(self, request, context):
        yield pb.InstanceChunk(instances=[instance(record) for record in self.machines.all()], complete=True)

    def Terminate(self, request, context):
        self.refuse_old_leaders(request.leader_term, context)
        if request.provider_id:
            record = self.machines.find(request.provider_id)
        else:  # Nobody has stored what its launch was answered.
            record = next((one for one in self.machines.all() if one["uid"] == request.nodeclaim_uid), None)
        if record is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no {request.provider_id or request.nodeclaim_uid}")
        end(record)
        return pb.TerminateReply(state=pb.INSTANCE_STATE_TERMINATING)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--machine", help="program whose processes are the instances")
    arguments = parser.parse_args()
    machines = Machines(arguments.state, arguments.machine)
    pathlib.Path(arguments.socket).unlink(missing_ok=True)
    # Each open catalog holds a thread.
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=64))
    provider_pb2_grpc.add_ProviderServicer_to_server(Provider(machines), server)
    before = os.umask(0o177)  # Only this user opens the socket; instances get the mask of before.
    server.add_insecure_port(f"unix:{os.path.abspath(arguments.socket)}")
    os.umask(before)
    server.start()
    print("serving", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    stop.wait()
    server.stop(2).wait()


if __name__ == "__main__":
    main()
