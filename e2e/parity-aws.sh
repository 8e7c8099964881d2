#!/usr/bin/env bash
# Our AWS provider and upstream's own: first that upstream still answers the committed cases as e2e/aws/cases/expected says, then parity/aws.py with these
# options. Needs Go and moto; without Go it fails, unless SKIP_WITHOUT_GO=1.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/instruments.sh
need aws-oracle
oracle=$(cd "$target" && pwd)/tools/aws-oracle
# Installs moto where it is not there yet.
e2e/moto.sh true
AWS_ORACLE=$oracle MOTO_SERVER=$(cd "$target" && pwd)/moto-venv/bin/moto_server e2e/aws/check.sh
python3 -B e2e/parity/aws.py --oracle "$oracle" --moto "$(cd "$target" && pwd)/moto-venv/bin/moto_server" "$@"
