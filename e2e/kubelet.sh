#!/usr/bin/env bash
# A genuine kubelet joins through a provider in a process of its own: the operator launches a machine, which is a kubelet, at a genuine control plane; pods land on
# it; the NodePool goes, the Node is drained and the process ends. SPOKESHAVE names the program, by default target/release/spokeshave.
#
# Containers are records (e2e/kubelet): all else is the kubelet's own. Skipped by name, with 3, where there is no root, or no gRPC for Python.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "skipped: a kubelet runs as root only" >&2; exit 3; }
. e2e/controlplane.sh
need_program python3 "the provider and the story are in Python"
need_spokeshave
if [ -z "${KUBELET_BINARY:-}" ]; then
    need kubelet
    KUBELET_BINARY=$target/tools/kubelet
fi
. e2e/grpc/python.sh
# What a kubelet that was killed has left mounted goes first: below it nothing can be removed.
end_machines() {
    local place
    cut -d' ' -f2 /proc/mounts | grep -F "$work/" | sort -r | while read -r place; do umount --lazy "$place"; done || true
    end_children
}
trap end_machines EXIT
mkdir -p "$work/python"
proto=crates/provider-grpc/proto
"$venv/bin/python" -m grpc_tools.protoc -I "$proto" --python_out="$work/python" --grpc_python_out="$work/python" provider.proto
start_controlplane --scheduler --controller-manager --user "machines=$work/machines.kubeconfig"
KUBELET_BINARY=$KUBELET_BINARY python3 -B e2e/kubelet/scenario.py --spokeshave "$SPOKESHAVE" --work "$work" --venv "$venv"
