#!/usr/bin/env bash
# Builds the static binary of this machine's architecture and packs a release of it into target/dist: see pack.sh. With --check it packs twice and compares;
# with --twice it builds and packs the commit once more in a clone elsewhere, with nothing of the first build, and compares every byte of both releases.
# Another architecture is built on a machine of its own (.github/workflows/release.yaml): the C of two dependencies needs a compiler for it.
set -euo pipefail
cd "$(dirname "$0")/.."
machine=$(uname -m)
rust_target=$machine-unknown-linux-musl
case $machine in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
*)
    echo "releases are for x86_64 and aarch64, and this is $machine" >&2
    exit 2
    ;;
esac
target=${CARGO_TARGET_DIR:-target}
binary=${BINARY:-$target/$rust_target/release/spokeshave}

if [ -z "${BINARY:-}" ]; then
    rustup target list --installed | grep -x "$rust_target" >/dev/null || rustup target add "$rust_target" || {
        echo "the standard library for $rust_target cannot be had here; the workflow builds it: .github/workflows/release.yaml" >&2
        exit 3
    }
    command -v musl-gcc >/dev/null || {
        echo "no musl-gcc: install musl-tools (Debian, Ubuntu) or musl-gcc (Fedora)" >&2
        exit 3
    }
    # Paths of the machine that builds are no part of what it builds.
    home=${CARGO_HOME:-$HOME/.cargo}
    output=$(realpath -m "$target")
    export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/spokeshave --remap-path-prefix=$home=/cargo --remap-path-prefix=$output=/spokeshave/target"
    # Nor is the time: the allocator's C would say when it was compiled.
    timeless='-Wno-builtin-macro-redefined -D__DATE__="-" -D__TIME__="-"'
    export CFLAGS="$timeless -ffile-prefix-map=$PWD=/spokeshave -ffile-prefix-map=$home=/cargo -ffile-prefix-map=$output=/spokeshave/target"
    cargo build --release --locked --package spokeshave --features aws --target "$rust_target"
fi

release/pack.sh "$architecture" "$rust_target" "$binary" "$target/dist"
if [ "${1:-}" = --twice ]; then
    [ -z "$(git status --porcelain)" ] || { echo "there are changes that a clone has not: commit first" >&2; exit 2; }
    again=$(mktemp -d "${TMPDIR:-/tmp}/spokeshave-again.XXXXXX")
    trap 'rm -rf "$again"' EXIT
    git clone --quiet --no-hardlinks . "$again/elsewhere"
    env -u BINARY -u RUSTFLAGS -u CFLAGS CARGO_TARGET_DIR="$again/target" "$again/elsewhere/release/build.sh"
    diff -r "$target/dist" "$again/target/dist" || { echo "built twice, and the bytes differ" >&2; exit 1; }
    (cd "$target/dist" && sha256sum --quiet --check SHA256SUMS && cat SHA256SUMS)
    echo "built twice, in two folders: same bytes"
fi
if [ "${1:-}" = --check ]; then
    again=$(mktemp -d)
    trap 'rm -rf "$again"' EXIT
    release/pack.sh "$architecture" "$rust_target" "$binary" "$again/dist" >/dev/null
    diff -r "$target/dist" "$again/dist"
    (cd "$target/dist" && sha256sum --quiet --check SHA256SUMS)
    echo "packed twice, same bytes"
fi
