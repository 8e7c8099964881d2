# Builds what a recipe needs; to be sourced. A recipe that cannot do its work fails, unless SKIP_WITHOUT_GO=1 allows it to be left out.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

# need INSTRUMENT: builds it (see build.sh). Ends the script with 1 where that fails, and with 0 where Go or its modules are missing and SKIP_WITHOUT_GO=1.
need() {
    local status=0
    "$root/e2e/build.sh" "$1" || status=$?
    if [ "$status" -eq 3 ] && [ "${SKIP_WITHOUT_GO:-}" = 1 ]; then
        echo "skipped: $1 cannot be built here" >&2
        exit 0
    fi
    if [ "$status" -eq 3 ]; then
        echo "install Go, or set SKIP_WITHOUT_GO=1 to leave out what needs it" >&2
    fi
    [ "$status" -eq 0 ] || exit 1
}

# need_program NAME WHY
need_program() {
    command -v "$1" >/dev/null && return
    echo "no $1: $2" >&2
    exit 1
}

# need_spokeshave: sets SPOKESHAVE, by default the release build.
need_spokeshave() {
    SPOKESHAVE=${SPOKESHAVE:-$target/release/spokeshave}
    [ -x "$SPOKESHAVE" ] && return
    echo "no program $SPOKESHAVE: run cargo build --release -p spokeshave --features aws, or set SPOKESHAVE" >&2
    exit 1
}
