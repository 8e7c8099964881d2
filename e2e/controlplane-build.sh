#!/usr/bin/env bash
# Builds the genuine control plane into target/controlplane. Exits with 3, and says why, where its sources or Go are not there.
#
# The sources come from the directory CONTROLPLANE_SOURCE, by default ../shared/controlplane beside this checkout. Nothing is built when
# CONTROLPLANE_BINARY names a program that is built already.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -n "${CONTROLPLANE_BINARY:-}" ]; then
    exit 0
fi
source_directory=${CONTROLPLANE_SOURCE:-$root/../shared/controlplane}
if [ ! -f "$source_directory/go.mod" ]; then
    echo "skipped: no control plane sources in $source_directory; set CONTROLPLANE_SOURCE or CONTROLPLANE_BINARY" >&2
    exit 3
fi
if ! command -v go >/dev/null; then
    echo "skipped: building the control plane needs Go 1.26 or later" >&2
    exit 3
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
cd "$build_directory/source"
go build -o ../controlplane -ldflags "-s -w -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=$minor" .
