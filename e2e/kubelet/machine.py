#!/usr/bin/env python3
"""A machine: a genuine kubelet that joins as its environment says, beside a container runtime that runs nothing. Ends, with both, when it is told to.

    NODE_NAME, NODE_LABELS, NODE_TAINTS   what it joins as (examples/providers/python/provider.py)
    MACHINES                              folder for what machines keep
    MACHINE_KUBECONFIG                    who it joins as
    KUBELET_BINARY                        the program of `e2e/build.sh kubelet`
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

# Labels of these domains are the operator's to give.
RESTRICTED = ("kubernetes.io", "k8s.io")
# The container runtime listens within this.
RUNTIME_SECONDS = 60


def own_id():
    """As the provider calls this process: its number, and when it was started."""
    fields = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    return f"process:///{os.getpid()}-{fields[19]}"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def release(folder):
    """Unmounts what the kubelet has mounted below the folder: its own root, and volumes of pods."""
    mounted = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((one for one in mounted if one.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)


def configuration(folder, taints):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{folder}/runtime.sock",
        "providerID": own_id(),
        "registerWithTaints": taints,
        "nodeStatusUpdateFrequency": "5s",
        # A kubelet among others on one machine: its own ports and folders, and nothing of the host's.
        "address": "127.0.0.1",
        "port": free_port(),
        "readOnlyPort": 0,
        "healthzPort": 0,
        "podLogsDir": f"{folder}/logs",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}, "x509": {}},
        "authorization": {"mode": "AlwaysAllow"},
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "1Mi"},
    }


def main():
    name, kubelet = os.environ["NODE_NAME"], os.environ["KUBELET_BINARY"]
    folder = pathlib.Path(os.environ["MACHINES"]) / name
    for part in ("root", "certificates", "logs"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    taints = json.loads(os.environ["NODE_TAINTS"])
    (folder / "configuration.json").write_text(json.dumps(configuration(folder, taints)))
    labels = {
        key: value
        for key, value in json.loads(os.environ["NODE_LABELS"]).items()
        if not key.split("/")[0].endswith(RESTRICTED)
    }
    log = open(folder / "kubelet.log", "ab")
    children, stopping = [], []

    def stop(*_):
        stopping.append(True)
        for child in children:
            child.terminate()

    # Before the first child: whoever ends the machine meanwhile ends them, too.
    signal.signal(signal.SIGTERM, stop)
    runtime = subprocess.Popen([kubelet, "runtime", "--listen", f"{folder}/runtime.sock"], stdout=log, stderr=log)
    children.append(runtime)
    limit = time.monotonic() + RUNTIME_SECONDS
    while not (folder / "runtime.sock").exists() and runtime.poll() is None and not stopping:
        if time.monotonic() > limit:
            log.write(b"the container runtime does not listen\n")
            stop()
        time.sleep(0.05)
    if stopping or runtime.poll() is not None:
        stop()
        runtime.wait()
        sys.exit(1)
    command = [kubelet, "kubelet", "--kubeconfig", os.environ["MACHINE_KUBECONFIG"], "--config", f"{folder}/configuration.json"]
    command += ["--root-dir", f"{folder}/root", "--cert-dir", f"{folder}/certificates", "--hostname-override", name, "--v", "2"]
    command += ["--node-labels", ",".join(f"{key}={value}" for key, value in sorted(labels.items()))]
    node = subprocess.Popen(command, stdout=log, stderr=log)
    children.append(node)
    if stopping:
        stop()
    # The machine lives as long as its kubelet does.
    status = node.wait()
    stop()
    runtime.wait()
    release(folder)
    sys.exit(0 if status in (0, -signal.SIGTERM) else 1)


main()
