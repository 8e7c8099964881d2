#!/usr/bin/env bash
# The page, and the report of a simulation, in a genuine Chromium: web.sh [CHECK…|report], or web.sh pictures, which draws docs/images anew. Needs the release build (or SPOKESHAVE), Python 3.9 or later and
# Chromium (Debian's package `chromium`, or CHROMIUM); without Chromium everything is skipped, and says so. `playwright` is installed into an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -z "${CHROMIUM:-}" ] && ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
    echo "SKIPPED: the page in a browser, because there is no Chromium (Debian's package chromium)"
    exit 0
fi
environment=${CARGO_TARGET_DIR:-target}/playwright
[ -x "$environment/bin/python" ] || python3 -m venv "$environment"
"$environment/bin/python" -c 'import playwright, PIL' 2>/dev/null || "$environment/bin/pip" install --quiet --disable-pip-version-check playwright pillow
if [ "${1:-}" = pictures ]; then
    exec "$environment/bin/python" -B e2e/web/pictures.py docs/images
fi
if [ $# = 0 ] || [ "${1:-}" = report ]; then
    # A comparison of drawn runs, as the tests of the crate make it.
    sample=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)/report.html
    SAMPLE=$sample cargo test --quiet -p spokeshave-comparison --test it report::the_same_comparison >/dev/null
    "$environment/bin/python" -B e2e/web/report.py "$sample" "${sample%.html}.json" e2e/web/report.tree
    [ $# = 0 ] || exit 0
fi
exec "$environment/bin/python" -B e2e/web/check.py "$@"
