# Starts `spokeshave up` for a test; to be sourced. Ends it with the shell. Sets KUBECONFIG, UP (its process) and work (a folder to throw away).
#
# SPOKESHAVE names the program, by default the release build. PATIENCE, a whole number, multiplies waits, for machines that are busy with something else.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SPOKESHAVE=${SPOKESHAVE:-${CARGO_TARGET_DIR:-$root/target}/release/spokeshave}
if [ ! -x "$SPOKESHAVE" ]; then
    echo "no program $SPOKESHAVE: run cargo build --release -p spokeshave --features aws, or set SPOKESHAVE" >&2
    exit 2
fi
work=$(mktemp -d)
end_up() {
    kill "$UP" 2>/dev/null || true
    wait "$UP" 2>/dev/null || true
    rm -rf "$work"
}

# seconds COUNT: so many, times PATIENCE.
seconds() { echo $(($1 * ${PATIENCE:-1})); }

# start_up FLAG…
start_up() {
    "$SPOKESHAVE" up --kubeconfig "$work/kubeconfig" "$@" >"$work/up.out" 2>"$work/up.err" &
    UP=$!
    trap end_up EXIT
    # The kubeconfig appears when the server answers.
    for _ in $(seq "$(seconds 100)"); do
        [ -s "$work/kubeconfig" ] && break
        if ! kill -0 "$UP" 2>/dev/null; then
            echo "spokeshave up ended:" >&2
            cat "$work/up.err" >&2
            exit 1
        fi
        sleep 0.1
    done
    [ -s "$work/kubeconfig" ] || { echo "no kubeconfig within $(seconds 10) s" >&2; exit 1; }
    export KUBECONFIG=$work/kubeconfig
}
