#!/usr/bin/env bash
# The end-to-end scenario on a genuine kube-apiserver, scheduler and controller manager; see controlplane.sh for where they come from.
# SPOKESHAVE names the program, by default target/release/spokeshave. With --embedded the same scenario on `spokeshave up --bare`, whose
# operator is part of it; with --embedded-apart on `spokeshave up --bare --no-operator`. What follows goes to scenario.py: `--kills SEED`.
set -euo pipefail
cd "$(dirname "$0")/.."
spokeshave=${SPOKESHAVE:-${CARGO_TARGET_DIR:-target}/release/spokeshave}
. e2e/instruments.sh
need_program python3 "the scenario needs Python 3.9 or later"
case ${1:-} in
--embedded | --embedded-apart)
    SPOKESHAVE=$spokeshave
    . e2e/up.sh
    if [ "$1" = --embedded ]; then
        flags=(--inside)
        start_up --bare
    else
        flags=()
        start_up --bare --no-operator
    fi
    shift
    ;;
*)
    . e2e/controlplane.sh
    flags=(--kubelets)
    start_controlplane --scheduler --controller-manager
    ;;
esac
python3 -B e2e/scenario.py --kubeconfig "$work/kubeconfig" --spokeshave "$spokeshave" --log "$work/operator.log" ${flags[@]+"${flags[@]}"} "$@"
