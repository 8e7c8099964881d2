#!/usr/bin/env bash
# The end-to-end scenario on a genuine kube-apiserver, scheduler and controller manager; see controlplane.sh for where they come from.
# SPOKESHAVE names the program, by default target/release/spokeshave. With --embedded the same scenario on `spokeshave up --bare`, whose
# operator is part of it; with --embedded-apart on `spokeshave up --bare --no-operator`. What follows goes to scenario.py: `--kills SEED`.
set -euo pipefail
cd "$(dirname "$0")/.."
spokeshave=${SPOKESHAVE:-${CARGO_TARGET_DIR:-target}/release/spokeshave}
if ! command -v python3 >/dev/null; then
    echo "skipped: the scenario needs Python 3" >&2
    exit 0
fi
flags=(--kubelets) bare=()
case ${1:-} in
--embedded) flags=(--inside) bare=(--bare) && shift ;;
--embedded-apart) flags=() bare=(--bare --no-operator) && shift ;;
*) . e2e/controlplane.sh ;;
esac
work=$(mktemp -d)
finish() {
    if [ -n "${child:-}" ]; then
        kill "$child" 2>/dev/null || true
        wait "$child" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

if [ ${#bare[@]} -gt 0 ]; then
    "$spokeshave" up "${bare[@]}" --kubeconfig "$work/kubeconfig" >"$work/out" 2>"$work/log" &
    child=$!
    is_ready() { [ -s "$work/kubeconfig" ]; }
else
    "$CONTROLPLANE" --dir "$work/cluster" --kubeconfig "$work/kubeconfig" --scheduler --controller-manager >"$work/out" 2>"$work/log" &
    child=$!
    is_ready() { grep -q ready "$work/out"; }
fi
for _ in $(seq 1200); do
    if is_ready; then
        break
    fi
    if ! kill -0 "$child" 2>/dev/null; then
        echo "the cluster ended before it was ready:" >&2
        tail -n 20 "$work/log" >&2
        exit 1
    fi
    sleep 0.1
done
python3 -B e2e/scenario.py --kubeconfig "$work/kubeconfig" --spokeshave "$spokeshave" --log "$work/operator.log" ${flags[@]+"${flags[@]}"} "$@"
