#!/usr/bin/env bash
# Every query of our boards and of Karpenter's, over what a living operator's /metrics has said: see boards_live.py. What follows goes to it: `--picture FILE`.
# SPOKESHAVE names the program, by default target/release/spokeshave.
set -euo pipefail
cd "$(dirname "$0")/../.."
. e2e/instruments.sh
need boards
need_spokeshave
. e2e/up.sh
start_up --bare --no-operator
python3 -B e2e/charts/boards_live.py --kubeconfig "$work/kubeconfig" --spokeshave "$SPOKESHAVE" --boards "$target/tools/boards" --log "$work/operator.log" "$@"
