# Builds the genuine control plane (build.sh) and starts it; to be sourced. CONTROLPLANE_BINARY names a program that is built already.
# Ends the script where it cannot be built: with 1, or with 0 where SKIP_WITHOUT_GO=1 allows that.

. "$(dirname "${BASH_SOURCE[0]}")/instruments.sh"
CONTROLPLANE=${CONTROLPLANE_BINARY:-}

if [ -n "$CONTROLPLANE" ] && [ ! -x "$CONTROLPLANE" ]; then
    echo "CONTROLPLANE_BINARY=$CONTROLPLANE is not an executable file" >&2
    exit 2
fi
if [ -z "$CONTROLPLANE" ]; then
    need controlplane
    CONTROLPLANE=$target/controlplane/controlplane
fi

work=$(mktemp -d)
children=()
end_children() {
    for child in ${children[@]+"${children[@]}"}; do
        kill "$child" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap end_children EXIT

# start_controlplane FLAG...: an API server below $work, with $work/kubeconfig; --scheduler and --controller-manager for the rest. Ends with the
# script, as every process in the list `children`.
start_controlplane() {
    "$CONTROLPLANE" --dir "$work/cluster" --kubeconfig "$work/kubeconfig" "$@" >"$work/out" 2>"$work/log" &
    children+=($!)
    for _ in $(seq 1200); do
        if grep -q ready "$work/out"; then
            return
        fi
        kill -0 $! 2>/dev/null || break
        sleep 0.1
    done
    echo "the control plane ended, or was not ready within two minutes:" >&2
    tail -n 20 "$work/log" >&2
    exit 1
}
