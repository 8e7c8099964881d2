#!/usr/bin/env bash
# The client `kubernetes` from PyPI against `spokeshave up --bare`: see python_client.py. Needs the release build and Python 3.9 or later;
# the client is installed into an environment of its own unless Python has it.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/up.sh

python=python3
if ! $python -c 'import kubernetes' 2>/dev/null; then
    environment=${CARGO_TARGET_DIR:-target}/python-client
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet kubernetes
    python=$environment/bin/python
fi
start_up --bare
$python -B e2e/python_client.py "$KUBECONFIG"
