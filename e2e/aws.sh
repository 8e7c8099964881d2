#!/usr/bin/env bash
# The shipped operator against an emulated AWS: aws.py on `spokeshave up --bare --no-operator`, with moto from the package index. SPOKESHAVE names the
# program, by default target/release/spokeshave. `--apart`: with the provider in a process of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
spokeshave=${SPOKESHAVE:-$target/release/spokeshave}
. e2e/instruments.sh
need_program kubectl "the scenario installs definitions with kubectl"
SPOKESHAVE=$spokeshave
. e2e/up.sh
start_up --bare --no-operator
e2e/moto.sh "$target/moto-venv/bin/python" -B e2e/aws.py --kubeconfig "$work/kubeconfig" --spokeshave "$spokeshave" --log "$target/e2e-aws-operator.log" "$@"
