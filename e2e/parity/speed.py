#!/usr/bin/env python3
"""Runs Spokeshave and upstream Karpenter on the same dumps, one after the other, and prints two tables of ratios.

Provisioning: pods a second while deciding (upstream: building its scheduler and solving; ours: `provisionNs`). Making the
state from objects is a column of its own. Disruption: the whole decision about one candidate (upstream: its ComputeCommands for
that candidate; ours: the one that single-node consolidation makes, the share of what all candidates have in common included), and
the whole scan. Upstream's scan is sampled, and extrapolated from the mean where --sample is smaller than the number of nodes: such
figures are marked with ~.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import worlds
from oracle import oracle

ROOT = Path(__file__).resolve().parents[2]


def run(command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def dump(options, directory, shape, nodes, pods):
    path = Path(directory) / f"{shape}-{nodes}-{pods}.json"
    command = [options.oracle, "generate", "--shape", shape, "--nodes", str(nodes), "--pods", str(pods), "--seed", "1", "-o", "json"]
    with open(path, "wb") as file:
        subprocess.run(command, check=True, stdout=file)
    return str(path)


def ours(options, path, catalog, *more):
    """The statistics of the run with the median decision time."""
    runs = [
        run([options.spokeshave, "plan", "-f", path, *catalog, "--now", worlds.NOW, "-o", "json", "--stats", *more])["stats"]
        for _ in range(options.repeat)
    ]
    return sorted(runs, key=lambda stats: stats["provisionNs"] + stats["disruptNs"])[len(runs) // 2]


def provisioning(options, directory):
    benchmark = Path(directory) / "benchmark.json"
    with open(benchmark, "wb") as file:
        subprocess.run([options.oracle, "catalog", "--benchmark", "400"], check=True, stdout=file)
    catalog = ["--catalog", str(benchmark)]
    print("| Pods | Upstream pods/s | Ours pods/s | Ratio | Upstream state ms | Ours lower ms | Upstream MiB | Ours MiB |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for pods in options.pods:
        path = dump(options, directory, "pending", 0, pods)
        command = [options.oracle, "provision", "--state", path, *catalog, "--now", worlds.NOW, "--solve-timeout", "0"]
        theirs = run(command + ["--karpenter-args", "--cpu-requests=1000"], GOMAXPROCS=str(options.threads))
        timing = theirs["timing"][0]
        mine = ours(options, path, catalog, "--methods", "emptiness")
        rate = pods / (mine["provisionNs"] / 1e9)
        print(
            f"| {pods} | {timing['pods_per_second']:.0f} | {rate:.0f} | {rate / timing['pods_per_second']:.0f} × "
            f"| {timing['state_build_ns'] / 1e6:.0f} | {mine['lowerNs'] / 1e6:.1f} "
            f"| {theirs['machine']['peak_rss_bytes'] >> 20} | {mine['peakRssBytes'] >> 20} |",
            flush=True,
        )
    print()


def disruption(options, directory):
    print("| Nodes | Shape | Upstream decision ms | Ours µs (p99) | Ours with what is shared µs | Ratio | Upstream scan s | Ours pass s | Ratio |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    for nodes in options.nodes:
        for shape in options.shapes:
            path = dump(options, directory, shape, nodes, 0)
            sample = min(options.sample, nodes)
            command = [options.oracle, "disrupt", "--state", path, "--now", worlds.NOW, "--method", "none", "--each", "--sample", str(sample)]
            theirs = run(command, GOMAXPROCS=str(options.threads))["each"]["summary"]
            mine = ours(options, path, [])
            each = mine["whatIfNs"]
            scan = theirs["total_micros"] / theirs["evaluated"] * nodes / 1e6
            about = "~" if theirs["evaluated"] < nodes else ""
            shared, whole = each["total"] / max(each["count"], 1) / 1e3, mine["disruptNs"] / 1e9
            print(
                f"| {nodes} | {shape} | {theirs['median_micros'] / 1e3:.1f} | {each['median'] / 1e3:.0f} ({each['p99'] / 1e3:.0f}) | {shared:.0f} "
                f"| {theirs['median_micros'] / max(shared, 0.001):.0f} × | {about}{scan:.1f} | {whole:.3f} | {about}{scan / max(whole, 1e-9):.0f} × |",
                flush=True,
            )
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", default=os.environ.get("UPSTREAM_ORACLE"), help="the upstream oracle; by default it is built from e2e/upstream [env: UPSTREAM_ORACLE]")
    parser.add_argument("--spokeshave", default=os.environ.get("SPOKESHAVE", str(ROOT / "target/release/spokeshave")))
    parser.add_argument("--pods", type=int, nargs="*", default=[500, 1000, 5000, 10000])
    parser.add_argument("--nodes", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--shapes", nargs="*", default=["plain", "hostname-anti-affinity", "spread", "full"])
    parser.add_argument("--sample", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours; the median counts")
    parser.add_argument("--threads", type=int, default=2, help="GOMAXPROCS of upstream")
    options = parser.parse_args()
    options.oracle = oracle(options.oracle)
    with tempfile.TemporaryDirectory() as directory:
        if options.pods:
            provisioning(options, directory)
        if options.nodes:
            disruption(options, directory)


if __name__ == "__main__":
    main()
