#!/usr/bin/env bash
# Runs the program from the image's own root, as its user, as the operator of a cluster: chroot needs root, and no container daemon.
# image-check.sh [IMAGE.tar]: by default the one in target/dist. SPOKESHAVE names the program that plays the cluster, by default the one of the image.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
image=${1:-$(ls "$target"/dist/*-image-*.tar)}
chroot=$(PATH=$PATH:/usr/sbin:/sbin command -v chroot) || { echo "no chroot" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "chroot needs root" >&2; exit 2; }
command -v kubectl >/dev/null || { echo "no kubectl" >&2; exit 2; }
work=$(mktemp -d)
children=()
end() {
    for child in ${children[@]+"${children[@]}"}; do kill "$child" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
mkdir "$work/root"
python3 -B release/image_root.py "$image" "$work/root"
chmod 755 "$work" "$work/root"
program=${SPOKESHAVE:-$work/root/spokeshave}
"$program" up --bare --no-operator --kubeconfig "$work/root/kubeconfig" >"$work/up.log" 2>&1 &
children+=($!)
for _ in $(seq 100); do [ -s "$work/root/kubeconfig" ] && break; sleep 0.1; done
[ -s "$work/root/kubeconfig" ] || { cat "$work/up.log" >&2; exit 1; }
chmod 644 "$work/root/kubeconfig"
# Windows in a time zone: the root has no files of time zones, so that they must be part of the program.
k() { kubectl --kubeconfig "$work/root/kubeconfig" "$@"; }
k apply -f - >"$work/apply.log" <<'POLICY' || { cat "$work/apply.log" >&2; exit 1; }
apiVersion: spokeshave.dev/v1alpha1
kind: DisruptionPolicy
metadata: {name: nights}
spec:
  timeZone: Europe/Kyiv
  budgets: [{limit: 10%, windows: [{from: "22:00", to: "06:00"}]}]
POLICY
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
k wait disruptionpolicy/nights --for=condition=ValidationSucceeded --timeout=30s >"$work/wait.log" || { k get disruptionpolicy/nights -o yaml >&2; exit 1; }
[ -z "$(find "$work/root" -user 65532)" ] || { echo "it wrote into its root" >&2; exit 1; }
kill -TERM "$operator"
wait "$operator" && echo "the image's program led as user 65532 and ended well"
