#!/usr/bin/env bash
# down.sh NAME: ends what cluster.sh has started under that name.
run=${CARGO_TARGET_DIR:-$(dirname "$0")/../../target}/suites/run/$1
for part in operator up; do
    [ -f "$run/$part.pid" ] && kill "$(cat "$run/$part.pid")" 2>/dev/null
done
true
