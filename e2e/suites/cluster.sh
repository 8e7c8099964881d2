#!/usr/bin/env bash
# cluster.sh NAME OPERATOR [METRICS_PORT]: an embedded API server with simulated kubelets at the speed of the wall clock, and an operator.
#
# OPERATOR is spokeshave (a process of its own), upstream (upstream's, unchanged) or embedded (inside `spokeshave up`). The operator's metrics are on
# METRICS_PORT (18080), its probes on the port after it. Everything is below target/suites/run/NAME: `kubeconfig`, logs, and a .pid file for each process,
# which down.sh ends. SPOKESHAVE names the program, FEATURE_GATES the gates.
set -euo pipefail
. "$(dirname "$0")/../instruments.sh"
name=$1 operator=$2 metrics_port=${3:-18080}
here=$root/e2e/suites
programs=$target/suites/bin
need_spokeshave
need_program kubectl "the cluster is set up with it"
run=$target/suites/run/$name
rm -rf "$run"
# What fails on the way leaves nothing behind: its ports are those of the next cluster.
trap '[ $? -eq 0 ] || "$here/down.sh" "$name"' EXIT
mkdir -p "$run"
cd "$run"
gates=${FEATURE_GATES-NodeRepair=true,CapacityBuffer=true,StaticCapacity=true,NodeOverlay=true}

# start NAME COMMAND…: in the background, with its log and process ID in files of that name.
start() {
    local part=$1
    shift
    setsid "$@" >"$part.log" 2>&1 &
    echo $! >"$part.pid"
}

# wait_for FILE PART: until the part has written the file; half a minute, times PATIENCE for machines that are busy with something else.
wait_for() {
    for _ in $(seq $((300 * ${PATIENCE:-1}))); do
        [ -s "$1" ] && return
        kill -0 "$(cat "$2.pid")" 2>/dev/null || break
        sleep 0.1
    done
    echo "$2 wrote no $1:" >&2
    tail -n 20 "$2.log" >&2
    exit 1
}

if [ "$operator" = embedded ]; then
    start up "$SPOKESHAVE" up --bare --feature-gates "$gates" --kubeconfig "$run/kubeconfig"
else
    start up "$SPOKESHAVE" up --bare --no-operator --kubeconfig "$run/kubeconfig"
fi
wait_for kubeconfig up
export KUBECONFIG=$run/kubeconfig
if [ "$operator" = upstream ]; then
    karpenter=$(cd "$here" && go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)
    kubectl apply --server-side --force-conflicts -f "$karpenter/pkg/apis/crds" -f "$karpenter/kwok/apis/crds" >crds.log
fi

export METRICS_PORT=$metrics_port HEALTH_PROBE_PORT=$((metrics_port + 1)) FEATURE_GATES=$gates LOG_LEVEL=${LOG_LEVEL:-debug}
case $operator in
spokeshave) KUBECONFIG=$run/kubeconfig start operator "$here/restarting.sh" "$SPOKESHAVE" operator --cloud-provider kwok ;;
upstream)
    KUBECONFIG=$run/kubeconfig LEADER_ELECTION_NAMESPACE=kube-system SYSTEM_NAMESPACE=kube-system KUBERNETES_MIN_VERSION=1.19.0-0 \
        KARPENTER_SERVICE=karpenter CPU_REQUESTS=${CPU_REQUESTS:-2000} start operator "$programs/upstream-operator"
    ;;
embedded) ;;
*)
    echo "no operator $operator: spokeshave, upstream or embedded" >&2
    exit 2
    ;;
esac

# What an installation has: a tainted node for the system, and on it the operator's pod, named as the holder of the Lease.
kubectl apply -f - >/dev/null <<'END'
apiVersion: v1
kind: Node
metadata: {name: system, labels: {kubernetes.io/hostname: system, kubernetes.io/os: linux, kubernetes.io/arch: amd64}}
spec: {taints: [{key: CriticalAddonsOnly, value: "true", effect: NoSchedule}]}
END
# The one inside `spokeshave up` leads without a Lease, and has no pod.
[ "$operator" != embedded ] || exit 0
holder=
for _ in $(seq $((60 * ${PATIENCE:-1}))); do
    holder=$(kubectl -n kube-system get lease karpenter-leader-election -o jsonpath='{.spec.holderIdentity}' 2>/dev/null || true)
    [ -n "$holder" ] && break
    sleep 0.5
done
[ -n "$holder" ] || { echo "no operator leads" >&2; exit 1; }
kubectl apply -f - >/dev/null <<END
apiVersion: v1
kind: Pod
metadata:
  name: "${holder%%_*}"
  namespace: kube-system
  labels: {app.kubernetes.io/instance: karpenter, app.kubernetes.io/name: karpenter}
  # The suites read the operator's metrics through the API server: pods/NAME:8080/proxy/metrics.
  annotations: {sim.spokeshave.dev/ports: "8080=127.0.0.1:$metrics_port"}
spec: {nodeName: system, tolerations: [{operator: Exists}], containers: [{name: controller, image: controller, ports: [{containerPort: 8080, name: http-metrics}]}]}
END
