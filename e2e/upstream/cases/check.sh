#!/bin/sh
# Runs the oracle on every case and compares with expected.json; with --update, rewrites expected.json.
set -eu
cd "$(dirname "$0")/.."
../build.sh oracle
target=${CARGO_TARGET_DIR:-../../target}
oracle=$target/upstream/oracle
actual=$(mktemp)
trap 'rm -f "$actual"' EXIT
failed=0
for case in cases/*/; do
	# shellcheck disable=SC2046 # args is a list of words
	"$oracle" $(cat "$case/args") --state "$case/state.yaml" \
		--now 2026-01-01T01:00:00Z --repeat 10 --timing=false >"$actual"
	if [ "${1:-}" = --update ]; then
		cp "$actual" "$case/expected.json"
	elif ! diff -u "$case/expected.json" "$actual"; then
		failed=1
	fi
done
exit $failed
