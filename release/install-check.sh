#!/usr/bin/env bash
# The lines of README's "Install" with kubectl and Helm on a genuine kube-apiserver; the Deployment's container is the program of a release's image, as the service
# account, with the chart's permissions. install-check.sh [IMAGE.tar]: by default the one in target/dist.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
image=${1:-$(ls "$target"/dist/*-image-*.tar)}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
python3 -B release/image_root.py "$image" "$root"
SPOKESHAVE=$root/spokeshave STORY=readme e2e/charts/real.sh
