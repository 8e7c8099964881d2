# Finds or builds the genuine control plane (controlplane-build.sh), and starts it; to be sourced. Exits with 0 where its sources or Go are not there.
# CONTROLPLANE_BINARY names a program that is built already.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CONTROLPLANE=${CONTROLPLANE_BINARY:-}

if [ -n "$CONTROLPLANE" ] && [ ! -x "$CONTROLPLANE" ]; then
    echo "CONTROLPLANE_BINARY=$CONTROLPLANE is not an executable file" >&2
    exit 2
fi
if [ -z "$CONTROLPLANE" ]; then
    status=0
    "$root/e2e/controlplane-build.sh" || status=$?
    # 3 is: not here, and it has said why.
    [ "$status" -ne 3 ] || exit 0
    [ "$status" -eq 0 ] || exit 1
    CONTROLPLANE=$root/target/controlplane/controlplane
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
