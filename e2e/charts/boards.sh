#!/usr/bin/env bash
# The boards by Grafana's own schema: see boards_schema.py. The schema is the package grafana-foundation-sdk from the package index, in an environment of its own.
# Ends with 3, and says why, where Python or the package cannot be had.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/grafana-venv
pinned='grafana-foundation-sdk==1769699998!10.1.0'
. e2e/packages.sh
unavailable() {
    echo "$1" >&2
    [ "${SKIP_WITHOUT_GO:-}" = 1 ] && exit 0
    exit 3
}
command -v python3 >/dev/null || unavailable "no Python: the boards are read with Python 3.11 or later"
if ! has_packages "$venv" "$pinned"; then
    python3 -m venv "$venv" || unavailable "no virtual environment can be made: install python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$pinned" || unavailable "grafana-foundation-sdk cannot be installed"
fi
"$venv/bin/python" -B e2e/charts/boards_schema.py
