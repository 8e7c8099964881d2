#!/usr/bin/env bash
# Microsoft's Python SDK against our Azure over HTTP (azure_sdk.py). Installs the SDK from the package index into target/.
#
# Ends with 3, and says why, where Python or the packages cannot be had; otherwise as the check ends.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/azure-venv
compute=39.0.0
network=33.1.0
containerservice=41.9.0b1

unavailable() {
    echo "$1" >&2
    exit 3
}

command -v python3 >/dev/null || unavailable "no Python: the SDK needs Python 3.9 or later"
installed='import azure.mgmt.compute as c, azure.mgmt.network as n, azure.mgmt.containerservice as s, sys; sys.exit((c.__version__, n.__version__, s.__version__) != tuple(sys.argv[1:]))'
if ! "$venv/bin/python" -c "$installed" "$compute" "$network" "$containerservice" 2>/dev/null; then
    echo "installing azure-mgmt-compute $compute, azure-mgmt-network $network and azure-mgmt-containerservice $containerservice" >&2
    python3 -m venv "$venv" || unavailable "no virtual environment can be made: install python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "azure-mgmt-compute==$compute" "azure-mgmt-network==$network" "azure-mgmt-containerservice==$containerservice" ||
        unavailable "the SDK cannot be installed"
fi
"$venv/bin/python" e2e/azure_sdk.py "$target/debug/examples/arm"
