#!/usr/bin/env bash
# at_scale.py on a genuine kube-apiserver, scheduler and controller manager; see controlplane.sh for where they come from. What follows goes to it.
# SPOKESHAVE and KUBELETS name the programs, by default target/release/spokeshave and target/release/examples/kubelets.
set -euo pipefail
cd "$(dirname "$0")/.."
release=${CARGO_TARGET_DIR:-target}/release
spokeshave=${SPOKESHAVE:-$release/spokeshave}
kubelets=${KUBELETS:-$release/examples/kubelets}
. e2e/instruments.sh
need_program python3 "the measurement needs Python 3.9 or later"
. e2e/controlplane.sh
start_controlplane --scheduler --controller-manager
python3 -B e2e/at_scale.py --kubeconfig "$work/kubeconfig" --spokeshave "$spokeshave" --kubelets "$kubelets" --log "$work/operator.log" "$@" || {
    tail -n 20 "$work/operator.log" >&2
    exit 1
}
