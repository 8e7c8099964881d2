#!/usr/bin/env bash
# One list of requests to our API server and to a genuine one; every difference must be listed in conformance/differences.md.
# Arguments go to conformance/run.py. Needs bash and Python 3; see controlplane.sh for the genuine server.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/controlplane.sh

if ! command -v python3 >/dev/null; then
    echo "skipped: the comparison needs Python 3" >&2
    exit 0
fi
${CARGO:-cargo} build --quiet -p spokeshave-apiserver --example serve
work=$(mktemp -d)
children=()
finish() {
    for child in "${children[@]}"; do
        kill "$child" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

target=${CARGO_TARGET_DIR:-target}
"$target/debug/examples/serve" "$work/ours" >"$work/ours.log" 2>&1 &
children+=($!)
"$CONTROLPLANE" --dir "$work/real" --kubeconfig "$work/real.kubeconfig" >"$work/real.out" 2>"$work/real.log" &
children+=($!)
for _ in $(seq 600); do
    if [ -s "$work/ours" ] && grep -q ready "$work/real.out"; then
        break
    fi
    for child in "${children[@]}"; do
        if ! kill -0 "$child" 2>/dev/null; then
            echo "a server ended before it was ready:" >&2
            tail -n 20 "$work/ours.log" "$work/real.log" >&2
            exit 1
        fi
    done
    sleep 0.1
done
python3 -B e2e/conformance/run.py "$@" "$work/ours" "$work/real.kubeconfig"
