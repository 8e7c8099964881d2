#!/usr/bin/env bash
# Ends of nodes on a genuine kube-apiserver, scheduler and controller manager, with two operators; see controlplane.sh for where they come from.
# SPOKESHAVE names the program, by default target/release/spokeshave; TRANSCRIPTS a file for what `spokeshave explain` says on the way.
set -euo pipefail
cd "$(dirname "$0")/.."
spokeshave=${SPOKESHAVE:-${CARGO_TARGET_DIR:-target}/release/spokeshave}
. e2e/controlplane.sh
need_program python3 "the scenario needs Python 3.9 or later"
start_controlplane --scheduler --controller-manager
python3 -B e2e/lifecycle.py --kubeconfig "$work/kubeconfig" --spokeshave "$spokeshave" --logs "$work" ${TRANSCRIPTS:+--transcripts "$TRANSCRIPTS"}
