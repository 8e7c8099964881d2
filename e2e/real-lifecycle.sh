#!/usr/bin/env bash
# Ends of nodes on a genuine kube-apiserver, scheduler and controller manager, with two operators; see controlplane.sh for where they come from.
# SPOKESHAVE names the program, by default target/release/spokeshave; TRANSCRIPTS a file for what `spokeshave explain` says on the way.
set -euo pipefail
cd "$(dirname "$0")/.."
spokeshave=${SPOKESHAVE:-${CARGO_TARGET_DIR:-target}/release/spokeshave}
if ! command -v python3 >/dev/null; then
    echo "skipped: the scenario needs Python 3" >&2
    exit 0
fi
. e2e/controlplane.sh
work=$(mktemp -d)
finish() {
    if [ -n "${child:-}" ]; then
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

"$CONTROLPLANE" --dir "$work/cluster" --kubeconfig "$work/kubeconfig" --scheduler --controller-manager >"$work/out" 2>"$work/log" &
child=$!
for _ in $(seq 1200); do
    if grep -q ready "$work/out"; then
        break
    fi
    if ! kill -0 "$child" 2>/dev/null; then
        echo "the cluster ended before it was ready:" >&2
        tail -n 20 "$work/log" >&2
        exit 1
    fi
    sleep 0.1
done
python3 -B e2e/lifecycle.py --kubeconfig "$work/kubeconfig" --spokeshave "$spokeshave" --logs "$work" ${TRANSCRIPTS:+--transcripts "$TRANSCRIPTS"}
