#!/usr/bin/env bash
# The client `kubernetes` from PyPI against `spokeshave up --bare`: see python_client.py. Needs the release build and Python 3.10 or later;
# each version is installed into an environment of its own unless Python has it.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/up.sh

# The older one writes flags in queries as Python does (`watch=True`), the newer one as Kubernetes does.
versions=(28.1.0 37.0.2)

pythons=()
for version in "${versions[@]}"; do
    if python3 -c "import kubernetes, sys; sys.exit(kubernetes.__version__ != '$version')" 2>/dev/null; then
        pythons+=(python3)
        continue
    fi
    environment=${CARGO_TARGET_DIR:-target}/python-client-$version
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet "kubernetes==$version"
    pythons+=("$environment/bin/python")
done
start_up --bare
for python in "${pythons[@]}"; do
    "$python" -B e2e/python_client.py "$KUBECONFIG"
done
