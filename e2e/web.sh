#!/usr/bin/env bash
# The page, and the report of a simulation, in a genuine Chromium: web.sh [CHECK…|steady|speed|report], or web.sh pictures, which draws docs/images anew. Needs the release build (or SPOKESHAVE), Python 3.11 or later and
# Chromium (Debian's package `chromium`, or CHROMIUM); without Chromium everything is skipped, and says so. `playwright` is installed into an environment of its own.
#
#   steady     the report, and all checks that a busy machine is not to fail
#   speed      the other checks, for which an example of the page's crate is built
#   browser    checks nothing: installs Chromium where one is root and apt has it, and `playwright`; status 3 where either is missing then
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/packages.sh

has_chromium() {
    [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null
}
environment=${CARGO_TARGET_DIR:-target}/playwright
# Whether `playwright` is there, or can be had. The goldens (*.tree) are what this version says of a page.
pinned=(playwright==1.65.2 pillow==13.0.0)
has_playwright() {
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment" || return 1
    has_packages "$environment" "${pinned[@]}" || "$environment/bin/pip" install --quiet --disable-pip-version-check "${pinned[@]}"
}
# Installs Chromium; false where that fails, and only then what apt says is told. One that was not installed to the end may be there, and does not start.
install_chromium() {
    local log
    log=${CARGO_TARGET_DIR:-target}/chromium.log
    export DEBIAN_FRONTEND=noninteractive
    timeout 60 apt-get update >"$log" 2>&1 && timeout 180 apt-get install --yes --no-install-recommends chromium >>"$log" 2>&1 && return
    tail -n 5 "$log"
    return 1
}

if [ "${1:-}" = browser ]; then
    mkdir -p "${CARGO_TARGET_DIR:-target}"
    if ! has_chromium && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        install_chromium || { echo "Chromium cannot be installed (Debian's package chromium)"; exit 3; }
    fi
    has_chromium || { echo "there is no Chromium (Debian's package chromium)"; exit 3; }
    has_playwright || { echo "there is no playwright (PyPI)"; exit 3; }
    exit 0
fi
if ! has_chromium; then
    echo "SKIPPED: the page in a browser, because there is no Chromium (Debian's package chromium)"
    exit 0
fi
has_playwright
if [ "${1:-}" = pictures ]; then
    exec "$environment/bin/python" -B e2e/web/pictures.py docs/images
fi
status=0
if [ $# = 0 ] || [ "$1" = report ] || [ "$1" = steady ]; then
    # A comparison of drawn runs, as the tests of the crate make it.
    sample=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/report.html
    # CI has the tests of all packages already. Those of one alone it would build anew: its dependencies have other features then.
    packages=(-p spokeshave-comparison)
    [ -z "${CARGO_OPTIONS:-}" ] || packages=(--workspace)
    echo "making a report to look at (minutes where nothing is built)"
    # Unquoted: these are several words. What is wrong with the report keeps nobody from looking at the page.
    SAMPLE=$sample cargo ${CARGO_OPTIONS:-} test --quiet "${packages[@]}" --test it report::the_same_comparison >/dev/null &&
        "$environment/bin/python" -B e2e/web/report.py "$sample" "${sample%.html}.json" e2e/web/report.tree || status=$?
    [ "${1:-}" != report ] || exit $status
fi
if [ $# = 0 ] || [[ " $* " == *" speed "* || " $* " == *" a_hundred_changes_of_five_thousand_nodes "* ]]; then
    # With the program, whose build has the same dependencies with the same features.
    cargo ${CARGO_OPTIONS:-} build --release --quiet -p spokeshave -p spokeshave-web --features spokeshave/aws --example changing || status=$?
    export CHANGING=${CHANGING:-$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/release/examples/changing}
fi
"$environment/bin/python" -B e2e/web/check.py "$@" || { checked=$?; status=$((checked > status ? checked : status)); }
exit $status
