#!/usr/bin/env bash
# pack.sh ARCHITECTURE RUST-TARGET BINARY DIST: a release from a static binary. The same binary and commit make the same bytes.
#
#   spokeshave-VERSION-linux-ARCHITECTURE.tar.gz   the program, manual pages, completions, licences, bill of materials
#   spokeshave-VERSION-image-ARCHITECTURE.tar      the image as an OCI layout
#   spokeshave-VERSION.tgz, spokeshave-crds-VERSION.tgz   the charts
#   krew.yaml                                      the manifest of the kubectl plugin
#   SHA256SUMS
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 4 ] || { sed -n 2p "$0" >&2; exit 2; }
architecture=$1 rust_target=$2 binary=$3 dist=$4
export LC_ALL=C TZ=UTC
version=$("$binary" --version | awk '{print $2}')
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A linker's note says whether it asks for an interpreter, which a static program does not. Without `readelf`, or where it cannot read the binary, nobody knows.
headers=$(readelf -l "$binary") || { echo "readelf (binutils) cannot say whether $binary is static" >&2; exit 1; }
if grep -q 'Requesting program interpreter' <<<"$headers"; then
    if [ "${ALLOW_DYNAMIC:-}" != 1 ]; then
        echo "$binary is not static: it would not start in an image without a C library" >&2
        exit 1
    fi
fi

rm -rf "$dist"
mkdir -p "$dist"
pack() { # FILE FOLDER NAME…: a tar archive in which nothing is of this machine
    local file=$1 folder=$2
    shift 2
    tar --sort=name --format=ustar --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode='u+rwX,go+rX,go-w' -C "$folder" -cf "$file" "$@"
}

name=spokeshave-$version-linux-$architecture
mkdir -p "$work/$name"/{man,completions}
install -m 755 "$binary" "$work/$name/spokeshave"
cp LICENSE "$work/$name/"
"$binary" man >"$work/$name/man/spokeshave.1"
help=$("$binary" --help)
commands=$(sed -n '/^Commands:/,/^$/ s/^  \([a-z][a-z-]*\).*/\1/p' <<<"$help")
[ -n "$commands" ] || { echo "$binary --help names no commands: there would be no manual pages" >&2; exit 1; }
for command in $commands; do
    [ "$command" = help ] || "$binary" man "$command" >"$work/$name/man/spokeshave-$command.1"
done
"$binary" completions bash >"$work/$name/completions/spokeshave.bash"
"$binary" completions zsh >"$work/$name/completions/_spokeshave"
"$binary" completions fish >"$work/$name/completions/spokeshave.fish"
cargo xtask bill "$rust_target" "$work/$name" >/dev/null
cp "$work/$name/sbom.cdx.json" "$dist/spokeshave-$version-$architecture.cdx.json"
pack "$work/archive.tar" "$work" "$name"
gzip -n -9 <"$work/archive.tar" >"$dist/$name.tar.gz"

cargo xtask image --output "$work/image" --version "$version" --binary "$architecture=$binary" >/dev/null
pack "$dist/spokeshave-$version-image-$architecture.tar" "$work/image" blobs index.json oci-layout

for chart in spokeshave spokeshave-crds; do
    mkdir -p "$work/charts"
    cp -R "charts/$chart" "$work/charts/$chart"
    rm -f "$work/charts/$chart"/rules/*.test.yaml
    pack "$work/chart.tar" "$work/charts" "$chart"
    gzip -n -9 <"$work/chart.tar" >"$dist/$chart-$version.tgz"
done

sum=$(sha256sum "$dist/$name.tar.gz" | cut -d ' ' -f 1)
sed -e "s/@VERSION@/$version/g" -e "s/@SHA256_$architecture@/$sum/g" release/krew.yaml.in >"$dist/krew.yaml"
(cd "$dist" && sha256sum -- *.tar.gz *.tar *.tgz *.json *.yaml >SHA256SUMS)
(cd "$dist" && ls -l | awk 'NR > 1 {print $5, $NF}')
