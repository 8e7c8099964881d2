#!/usr/bin/env bash
# One list of requests to our API server and to a genuine one; every difference must be listed in conformance/differences.md.
# Arguments go to conformance/run.py. Needs bash and Python 3; see controlplane.sh for the genuine server.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/controlplane.sh
need_program python3 "the comparison needs Python 3.9 or later"
${CARGO:-cargo} build --quiet -p spokeshave-apiserver --example serve
start_controlplane
"${CARGO_TARGET_DIR:-target}/debug/examples/serve" "$work/ours" >"$work/ours.log" 2>&1 &
children+=($!)
for _ in $(seq $((100 * ${PATIENCE:-1}))); do
    [ -s "$work/ours" ] && break
    if ! kill -0 $! 2>/dev/null; then
        echo "our server ended before it was ready:" >&2
        tail -n 20 "$work/ours.log" >&2
        exit 1
    fi
    sleep 0.1
done
python3 -B e2e/conformance/run.py "$@" "$work/ours" "$work/kubeconfig"
