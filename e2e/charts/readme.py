#!/usr/bin/env python3
"""README's "Install", line by line, then the operator that it installed.

    readme.py --kubeconfig FILE --spokeshave PROGRAM --helm PROGRAM --audit-log FILE --folder DIR

Runs the shell lines below README's heading "Install" with kubectl and Helm, and the program as the Deployment's container: nodes must come, and the pods run on them.
No request of the operator may be denied. Needs kubectl, and nothing else but Python 3.9 or later.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from install import Pod, judge, pods, wait_running  # noqa: E402
from scenario import NODES, Cluster, Story, Wrong  # noqa: E402

ROOT = os.path.join(HERE, "../..")


def lines():
    """What README tells to type."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        section = file.read().split("\n## Install\n", 1)[1].split("\n## ", 1)[0]
    return re.search(r"^```sh\n(.*?)^```$", section, re.M | re.S).group(1)


def run(arguments, typed):
    programs = os.path.join(arguments.folder, "programs")
    os.mkdir(programs)
    os.symlink(os.path.abspath(arguments.helm), os.path.join(programs, "helm"))
    environment = dict(os.environ, KUBECONFIG=arguments.kubeconfig, PATH=f"{programs}:{os.environ['PATH']}")
    for key in ("CACHE", "CONFIG", "DATA"):
        environment[f"HELM_{key}_HOME"] = f"{arguments.folder}/helm"
    done = subprocess.run(["bash", "-euc", typed], cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Wrong(f"README's lines ended with status {done.returncode}: {done.stdout[-500:]}{done.stderr[-800:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("kubeconfig", "spokeshave", "helm", "audit-log", "folder"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    if not shutil.which("kubectl"):
        sys.exit("no kubectl: README's lines need it")
    cluster, story = Cluster(arguments.kubeconfig), Story()
    pod = Pod(cluster, arguments)
    log = os.path.join(arguments.folder, "operator.log")
    try:
        typed = lines()
        run(arguments, typed)
        story.say(f"{len([line for line in typed.splitlines() if re.match(r'(helm|kubectl) ', line)])} commands of README's Install went through")
        pod.start(log)
        wanted = int(re.search(r"--replicas=(\d+)", typed).group(1))
        wait_running(cluster, story, "web", wanted)
        nodes = {one["spec"]["nodeName"] for one in pods(cluster, "web")}
        there = {node["metadata"]["name"] for node in cluster.items(NODES)}
        if not nodes <= there:
            raise Wrong(f"pods on nodes that are not there: {sorted(nodes - there)}")
        story.say(f"{wanted} pods of `kubectl create deployment` run on {len(nodes)} node(s) that the operator launched")
        pod.stop()
        judge(cluster, arguments, story, every_rule=False)
        story.say("no request of the operator was denied")
    except Wrong as wrong:
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                print("".join(file.readlines()[-15:]), file=sys.stderr)
        sys.exit(f"FAILED: {wrong}")
    finally:
        if pod.process and pod.process.poll() is None:
            pod.process.kill()


if __name__ == "__main__":
    main()
