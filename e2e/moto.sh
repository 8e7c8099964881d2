#!/usr/bin/env bash
# Runs a command with an emulated AWS: moto, from the package index, on loopback, empty at the start and gone at the end.
#
#   e2e/moto.sh COMMAND…    the command finds AWS_ENDPOINT_URL, AWS_REGION and credentials in its environment
#
# Ends with 3, and says why, where Python or the package cannot be had; otherwise as the command ends.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
venv=$target/moto-venv
version=5.2.5

unavailable() {
    echo "$1" >&2
    exit 3
}

command -v python3 >/dev/null || unavailable "no Python: moto needs Python 3.9 or later"
if ! "$venv/bin/python" -c "import moto; assert moto.__version__ == '$version'" 2>/dev/null; then
    echo "installing moto $version (300 MB)" >&2
    python3 -m venv "$venv" || unavailable "no virtual environment can be made: install python3-venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "moto[server]==$version" || unavailable "moto cannot be installed"
fi

port=${MOTO_PORT:-$("$venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')}
log=$target/moto.log
# In its IAM mode (aws.py) moto checks signatures, and calculates another one than botocore for the calls of EKS, which have no body: those are let through.
server_program='import moto.iam.access_control as access, moto.server
check = access.IAMRequestBase.check_signature
access.IAMRequestBase.check_signature = lambda request: None if request._service == "eks" else check(request)
moto.server.main()'
"$venv/bin/python" -c "$server_program" -H 127.0.0.1 -p "$port" >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
for _ in $(seq 120); do
    if curl --silent --fail --output /dev/null "http://127.0.0.1:$port/moto-api/"; then break; fi
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.5
done

export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_REGION=${AWS_REGION:-us-west-2} AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
export AWS_EC2_METADATA_DISABLED=true
"$@"
