#!/usr/bin/env bash
# join.sh AMD64 ARM64 DIST: the releases of both architectures as one: one krew manifest, one list of sums. What both have must be the same.
set -euo pipefail
[ $# -eq 3 ] || { sed -n 2p "$0" >&2; exit 2; }
amd64=$1 arm64=$2 dist=$3
export LC_ALL=C
rm -rf "$dist"
mkdir -p "$dist"
for part in "$amd64" "$arm64"; do
    (cd "$part" && sha256sum --quiet --check SHA256SUMS)
    for file in "$part"/*; do
        name=$(basename "$file")
        case $name in
        SHA256SUMS | krew.yaml) continue ;;
        esac
        if [ -e "$dist/$name" ] && ! cmp -s "$file" "$dist/$name"; then
            echo "$name differs between the two" >&2
            exit 1
        fi
        cp "$file" "$dist/$name"
    done
done
sum=$(sha256sum "$arm64"/*-linux-arm64.tar.gz | cut -d ' ' -f 1)
sed "s/@SHA256_arm64@/$sum/" "$amd64/krew.yaml" >"$dist/krew.yaml"
if grep '@[A-Z]' "$dist/krew.yaml"; then
    echo "krew.yaml is not complete" >&2
    exit 1
fi
(cd "$dist" && sha256sum -- *.tar.gz *.tar *.tgz *.json *.yaml >SHA256SUMS)
