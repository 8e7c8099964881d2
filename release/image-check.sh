#!/usr/bin/env bash
# Runs the program from the image's own root, as its user, as the operator of a cluster: chroot needs root, and no container daemon.
# image-check.sh [IMAGE.tar]: by default the one in target/dist. SPOKESHAVE names the program that plays the cluster, by default the one of the image.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
image=${1:-$(ls "$target"/dist/*-image-*.tar)}
chroot=$(PATH=$PATH:/usr/sbin:/sbin command -v chroot) || { echo "no chroot" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "chroot needs root" >&2; exit 2; }
work=$(mktemp -d)
children=()
end() {
    for child in ${children[@]+"${children[@]}"}; do kill "$child" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
mkdir "$work/layout" "$work/root"
tar -C "$work/layout" -xf "$image"
python3 - "$work/layout" "$work/root" <<'PYTHON'
import hashlib, json, os, sys, tarfile
layout, root = sys.argv[1:]
def blob(descriptor):
    path = os.path.join(layout, "blobs", *descriptor["digest"].split(":"))
    data = open(path, "rb").read()
    assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], descriptor
    assert len(data) == descriptor["size"], descriptor
    return path, data
index = json.loads(blob(json.load(open(f"{layout}/index.json"))["manifests"][0])[1])
machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
own = next(one for one in index["manifests"] if one["platform"]["architecture"] == machine)
manifest = json.loads(blob(own)[1])
config = json.loads(blob(manifest["config"])[1])["config"]
assert config["User"] == "65532:65532" and config["Entrypoint"] == ["/spokeshave"], config
for layer in manifest["layers"]:
    path, data = blob(layer)
    print(f"layer: {len(data) / 2**20:.1f} MiB compressed")
    assert len(data) < 30 * 2**20, "an image is at most 30 MiB"
    tarfile.open(path).extractall(root, filter="fully_trusted")
PYTHON
chmod 755 "$work" "$work/root"
program=${SPOKESHAVE:-$work/root/spokeshave}
"$program" up --bare --no-operator --kubeconfig "$work/root/kubeconfig" >"$work/up.log" 2>&1 &
children+=($!)
for _ in $(seq 100); do [ -s "$work/root/kubeconfig" ] && break; sleep 0.1; done
[ -s "$work/root/kubeconfig" ] || { cat "$work/up.log" >&2; exit 1; }
chmod 644 "$work/root/kubeconfig"
(cd "$work" && exec env -i HOSTNAME=image METRICS_PORT=0 HEALTH_PROBE_PORT=0 LOG_FORMAT=text LEADER_ELECTION_NAMESPACE=kube-system \
    "$chroot" --userspec=65532:65532 "$work/root" /spokeshave operator --cloud-provider kwok --simulate-kubelets --kubeconfig /kubeconfig) >"$work/operator.log" 2>&1 &
operator=$!
children+=("$operator")
for _ in $(seq 200); do
    grep -q "became leader" "$work/operator.log" && break
    kill -0 "$operator" 2>/dev/null || break
    sleep 0.1
done
grep -q "became leader" "$work/operator.log" || { cat "$work/operator.log" >&2; exit 1; }
[ -z "$(find "$work/root" -user 65532)" ] || { echo "it wrote into its root" >&2; exit 1; }
kill -TERM "$operator"
wait "$operator" && echo "the image's program led as user 65532 and ended well"
