#!/usr/bin/env bash
# bench.sh OPERATOR [METRICS_PORT]: 500 pods out and 300 of them away again, on a cluster of its own; what it took, as one JSON object.
# OPERATOR is spokeshave or upstream. Needs Go for upstream's instance types and prices, kubectl and Python 3.9.
set -euo pipefail
. "$(dirname "$0")/../instruments.sh"
operator=${1:?spokeshave or upstream} port=${2:-18080} name=bench-$1-${2:-18080}
need_program python3 "the measuring is done in it"
need oracle
[ "$operator" = spokeshave ] || need operator
trap '"$root/e2e/suites/down.sh" "$name"' EXIT
LOG_LEVEL=info CPU_REQUESTS=1000 FEATURE_GATES= "$root/e2e/suites/cluster.sh" "$name" "$operator" "$port"
"$target/upstream/oracle" catalog >"$target/suites/run/$name/catalog.json"
python3 -B "$root/e2e/suites/bench.py" "$target/suites/run/$name"
