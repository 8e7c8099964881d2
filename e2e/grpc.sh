#!/usr/bin/env bash
# Providers as processes of their own: `provider-sanity` on the examples in Python and Go and on the kwok provider, then the operator with the one in Python, on `spokeshave up --bare --no-operator`.
# SPOKESHAVE names the program, by default target/release/spokeshave.
#
# What cannot be had from the package indexes is skipped by name: the example in Go without Go and its modules, and everything, with 3, without gRPC for Python, which
# compiles the protocol. An example that does not compile fails. PATIENCE, a whole number, multiplies waits, for machines that are busy with something else.
set -euo pipefail
patience=${PATIENCE:-1}
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
spokeshave=${SPOKESHAVE:-$target/release/spokeshave}
work=$(mktemp -d)
finish() {
    for file in "$work"/*.pid; do kill "$(cat "$file")" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

proto=crates/provider-grpc/proto
. e2e/grpc/python.sh

# serve NAME SOCKET COMMAND…: starts a provider and waits for its socket. $work/NAME.restart, the command of `provider-sanity --restart-command`, ends it
# and starts it again.
serve() {
    local name=$1 socket=$2
    shift 2
    cat >"$work/$name.start" <<EOF
rm -f '$socket'
$(printf '%q ' "$@") >>'$work/$name.log' 2>&1 &
echo \$! >'$work/$name.pid'
for _ in \$(seq $((100 * patience))); do
    [ -S '$socket' ] && exit 0
    kill -0 \$! 2>/dev/null || break
    sleep 0.1
done
exit 1
EOF
    cat >"$work/$name.restart" <<EOF
ended=\$(cat '$work/$name.pid')
kill "\$ended"
while kill -0 "\$ended" 2>/dev/null; do sleep 0.1; done
exec bash '$work/$name.start'
EOF
    bash "$work/$name.start" || {
        cat "$work/$name.log" >&2
        echo "$name does not serve $socket" >&2
        exit 1
    }
}

examples=()
mkdir -p "$work/python"
"$venv/bin/python" -m grpc_tools.protoc -I "$proto" --python_out="$work/python" --grpc_python_out="$work/python" provider.proto
export PYTHONPATH=$work/python
serve python "$work/python.sock" "$venv/bin/python" -B examples/providers/python/provider.py --socket "$work/python.sock" --state "$work/machines"
examples+=(python)

. e2e/go.sh
cp -r examples/providers/go "$work/go"
# fetch_go: whether there is what the example in Go is built with.
fetch_go() {
    command -v go >/dev/null || { echo "no Go"; return 1; }
    ! is_go_too_old || { echo "no Go that is new enough"; return 1; }
    GOBIN=$target/tools go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11 &&
        GOBIN=$target/tools go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2 &&
        (cd "$work/go" && go mod download)
}
# build_go: what fails here, with all of that, is the fault of the example or of the protocol. It is never called in a condition, in which `set -e` is off.
build_go() {
    PATH=$target/tools:$PATH "$venv/bin/python" -m grpc_tools.protoc -I "$proto" --go_out="$work/go" --go_opt=module=spokeshave.sh/provider \
        --go-grpc_out="$work/go" --go-grpc_opt=module=spokeshave.sh/provider provider.proto
    (cd "$work/go" && go vet ./... && go build -o "$work/go-provider" .)
}
if fetch_go >"$work/go.log" 2>&1; then
    build_go
    serve go "$work/go.sock" "$work/go-provider" --socket "$work/go.sock" --state "$work/machines.json"
    examples+=(go)
else
    tail -n 5 "$work/go.log" >&2
    grep -qE "^no Go|$not_to_be_had" "$work/go.log" || exit 1
    echo "skipped: the example in Go, because Go or its modules are missing" >&2
fi

# A provider of this workspace in a process of its own: kwok, whose machines are objects of an API server.
"$spokeshave" up --bare --no-operator --kubeconfig "$work/kwok.kubeconfig" >"$work/up.log" 2>&1 &
echo $! >"$work/up.pid"
for _ in $(seq $((100 * patience))); do
    if [ -s "$work/kwok.kubeconfig" ]; then break; fi
    sleep 0.1
done
python3 -B - "$work/kwok.kubeconfig" <<'EOF'
import sys
sys.path.insert(0, "e2e")
from scenario import Cluster
named = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
Cluster(sys.argv[1]).apply("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", "default", named)
EOF
serve kwok "$work/kwok.sock" "$spokeshave" provider-serve --cloud-provider kwok --kubeconfig "$work/kwok.kubeconfig" --socket "$work/kwok.sock"
examples+=(kwok)

for example in "${examples[@]}"; do
    mode=$(stat -c %a "$work/$example.sock")
    [ "$mode" = 600 ] || { echo "the socket of $example has mode $mode, not 600" >&2; exit 1; }
    # Over a restart, and with a NodeClass that changes: nothing is left untried but what takes minutes, and that kwok, which decides about drift itself, knows no
    # such change.
    answer=$("$spokeshave" provider-sanity --provider-socket "$work/$example.sock" --restart-command "bash '$work/$example.restart'") || {
        echo "$answer"
        exit 1
    }
    echo "$answer"
    untried=$(sed -n '/minutes later/d; /not tried/p' <<<"$answer")
    case $example:$untried in
    kwok:*"not tried: a restart"*) exit 1 ;;
    kwok:*) ;;
    *"not tried"*) exit 1 ;;
    esac
done

# The same provider over TCP: both sides show certificates, and whoever has none of the authority is not heard.
papers() { # NAME ISSUER: certificate and key of a name
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$1" -keyout "$work/$1.key" -out "$work/$1.csr" 2>/dev/null
    printf 'subjectAltName = DNS:localhost\n' >"$work/$1.ext"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/$2.crt" -CAkey "$work/$2.key" -CAcreateserial -days 1 -extfile "$work/$1.ext" -out "$work/$1.crt" 2>/dev/null
}
for authority in authority stranger; do
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj "/CN=$authority" -keyout "$work/$authority.key" -out "$work/$authority.crt" 2>/dev/null
done
papers provider authority
papers operator authority
papers intruder stranger
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$spokeshave" provider-serve --cloud-provider kwok --kubeconfig "$work/kwok.kubeconfig" --listen-address "127.0.0.1:$port" \
    --client-ca "$work/authority.crt" --cert "$work/provider.crt" --key "$work/provider.key" >"$work/tcp.log" 2>&1 &
echo $! >"$work/tcp.pid"
for _ in $(seq $((100 * patience))); do
    if grep -q "the provider is served" "$work/tcp.log"; then break; fi
    sleep 0.1
done
sanity() { # NAME: as the holder of these papers
    "$spokeshave" provider-sanity --provider-address "localhost:$port" --provider-ca "$work/authority.crt" --provider-cert "$work/$1.crt" --provider-key "$work/$1.key"
}
sanity operator || { tail -n 5 "$work/tcp.log" >&2; exit 1; }
if sanity intruder >"$work/intruder.log" 2>&1; then
    echo "a certificate of another authority was let in" >&2
    exit 1
fi
grep "provider_answers" "$work/intruder.log"
python3 -B e2e/grpc/scenario.py --spokeshave "$spokeshave" --work "$work" --proto "$proto" --venv "$venv"
