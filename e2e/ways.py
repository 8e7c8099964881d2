#!/usr/bin/env python3
"""Draws docs/images/way-of-a-*.svg: the way of a pod and of a node. `ways.py --check` compares with what is committed. Needs nothing but Python 3.9 or later."""

import os
import sys
import textwrap
from xml.sax.saxutils import escape

IMAGES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/images")
WIDTH, BOX, LINE, GAP = 760, 330, 17, 34

# Steps in order: what happens, who does it, and what may happen instead (to the right).
WAYS = {
    "pod": [
        ("A pod is created and fits nowhere", "kube-scheduler", "It fits: it is bound, without the operator"),
        ("Pods are batched until none has arrived for 1 s, for 10 s at most", "provisioner", ""),
        ("A Snapshot is taken: nodes, pods, NodePools, prices, budgets", "operator", ""),
        ("It is placed: on an existing node, on a planned NodeClaim, or on a new one", "plan", "It fits nowhere: event FailedScheduling has the reason for each NodePool; retried when something changes"),
        ("An independent audit checks the plan", "audit", "It violates a rule: nothing is created, and a metric is increased"),
        ("The NodeClaim is created; the pod gets the event Nominated", "execute", ""),
        ("The cheapest available offering is launched", "provider", "No capacity: the NodeClaim is deleted, the pod is planned again without that offering"),
        ("The Node joins, registers, is initialised", "kubelet, operator", "It never joins: after 15 minutes the NodeClaim is deleted, and another zone is preferred"),
        ("The pod is bound and runs", "kube-scheduler", ""),
    ],
    "node": [
        ("A NodeClaim is created", "provisioner, static pools, replacements", ""),
        ("Launched: an instance, a provider ID, a price", "provider", "Rejected: the NodeClaim is deleted and its pods are planned again"),
        ("Registered: its Node has joined; labels and taints are set", "lifecycle", "Not within 15 minutes: deleted"),
        ("Initialized: ready, startup taints removed, resources registered", "lifecycle", ""),
        ("It runs pods. Consolidatable after consolidateAfter, Drifted when it no longer matches its NodePool", "conditions", "Interruption, expiry, repair, manual deletion: straight to the drain, without budgets"),
        ("A command: empty, drifted or underutilized, within budgets; validated after 15 s", "plan, audit", "It fails validation: the node is kept, and a verdict names the blocker"),
        ("A Disruption is created; the node is tainted karpenter.sh/disrupted; replacements are initialized first", "commands", "A replacement fails: the command is rolled back"),
        ("Drained: ordinary pods, DaemonSets', critical ones, through the Eviction API", "termination", "A PodDisruptionBudget allows no eviction: it waits, until terminationGracePeriod if set"),
        ("Volumes are detached, the instance is terminated, finalizers are removed", "termination, provider", ""),
    ],
}
TITLES = {"pod": "The lifecycle of a pod", "node": "The lifecycle of a node"}


def lines(text, width):
    return textwrap.wrap(text, width) or [""]


def draw(name):
    parts, top = [], 20
    for index, (what, who, otherwise) in enumerate(WAYS[name]):
        text, side = lines(what, 44), lines(otherwise, 42) if otherwise else []
        height = 24 + LINE * (len(text) + 1)
        if index:
            parts.append(f'<path class="arrow" d="M{20 + BOX / 2} {top - GAP} v{GAP - 6}" marker-end="url(#tip)"/>')
        parts.append(f'<rect class="step" x="20" y="{top}" width="{BOX}" height="{height}" rx="8"/>')
        for row, line in enumerate(text):
            parts.append(f'<text x="34" y="{top + 24 + LINE * row}">{escape(line)}</text>')
        parts.append(f'<text class="who" x="34" y="{top + 24 + LINE * len(text)}">{escape(who)}</text>')
        if side:
            middle = top + height / 2
            parts.append(f'<path class="else" d="M{20 + BOX} {middle} h34" marker-end="url(#tip)"/>')
            first = middle - LINE * (len(side) - 1) / 2 + 5
            for row, line in enumerate(side):
                parts.append(f'<text class="otherwise" x="{20 + BOX + 46}" y="{first + LINE * row:g}">{escape(line)}</text>')
        top += height + GAP
    height = top - GAP + 20
    style = ("text{font:13px system-ui,sans-serif;fill:#1f2328}.who{fill:#57606a;font-size:11px}.otherwise{fill:#57606a}.step{fill:#fff;stroke:#57606a}"
             ".arrow,.else{stroke:#57606a;fill:none}.else{stroke-dasharray:4 3}.page{fill:#f6f8fa}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="title"><title id="title">{TITLES[name]}</title>\n'
            f'<style>{style}</style><defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#57606a"/></marker></defs>\n'
            f'<rect class="page" width="{WIDTH}" height="{height:g}"/>\n' + "\n".join(parts) + "\n</svg>\n")


def main():
    wrong = 0
    for name in WAYS:
        path, fresh = os.path.join(IMAGES, f"way-of-a-{name}.svg"), draw(name)
        if "--check" in sys.argv:
            if not os.path.exists(path) or open(path, encoding="utf-8").read() != fresh:
                print(f"FAIL {os.path.relpath(path)} is not what e2e/ways.py draws")
                wrong = 1
        else:
            with open(path, "w", encoding="utf-8") as out:
                out.write(fresh)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
