# Finds or builds the genuine control plane, and starts it; to be sourced. Says why and exits with 0 where it cannot be built.
#
# The sources come from the directory CONTROLPLANE_SOURCE, by default ../shared/controlplane beside this checkout; the program is kept
# below target/. CONTROLPLANE_BINARY names a program that is built already.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CONTROLPLANE=${CONTROLPLANE_BINARY:-}

if [ -n "$CONTROLPLANE" ] && [ ! -x "$CONTROLPLANE" ]; then
    echo "CONTROLPLANE_BINARY=$CONTROLPLANE is not an executable file" >&2
    exit 2
fi
if [ -z "$CONTROLPLANE" ]; then
    source_directory=${CONTROLPLANE_SOURCE:-$root/../shared/controlplane}
    if [ ! -f "$source_directory/go.mod" ]; then
        echo "skipped: no control plane sources in $source_directory; set CONTROLPLANE_SOURCE or CONTROLPLANE_BINARY" >&2
        exit 0
    fi
    if ! command -v go >/dev/null; then
        echo "skipped: building the control plane needs Go 1.26 or later" >&2
        exit 0
    fi
    build_directory=$root/target/controlplane
    mkdir -p "$build_directory/source"
    # The sources may be read-only and Go writes go.sum, so a copy is built.
    cp -u "$source_directory"/*.go "$source_directory"/go.mod "$source_directory"/go.sum "$build_directory/source/"
    chmod -R u+w "$build_directory/source"
    version=$(sed -n 's/^\tk8s.io\/kubernetes v//p' "$build_directory/source/go.mod" | head -n 1)
    package=k8s.io/component-base/version
    minor=$(echo "$version" | cut -d. -f2)
    if [ ! -x "$build_directory/controlplane" ]; then
        echo "building the control plane (minutes the first time, seconds later)" >&2
    fi
    (cd "$build_directory/source" && go build -o ../controlplane \
        -ldflags "-s -w -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=$minor" .) || exit 1
    CONTROLPLANE=$build_directory/controlplane
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
