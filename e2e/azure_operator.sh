#!/usr/bin/env bash
# The operator with --cloud-provider azure on the embedded API server, against our Azure over HTTP: the class becomes ready, a Deployment brings machines,
# and when it is gone they end; then the same with the provider in a process of its own, which passes `provider-sanity` first. SPOKESHAVE names the program; the server is `cargo build -p spokeshave-azure-simulated --example arm`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
SPOKESHAVE=${SPOKESHAVE:-$target/release/spokeshave}
. e2e/instruments.sh
need_program kubectl "the scenario installs definitions with kubectl"
. e2e/up.sh
start_up --bare --no-operator

# The server ends when its input does.
mkfifo "$work/input"
"$target/debug/examples/arm" <"$work/input" >"$work/arm.out" &
exec 7>"$work/input"
for _ in $(seq "$(seconds 100)"); do [ -s "$work/arm.out" ] && break; sleep 0.1; done
field() { python3 -c 'import json, sys; print(json.loads(open(sys.argv[1]).readline())[sys.argv[2]])' "$work/arm.out" "$1"; }
url=$(field url)
printf '{"resourceManagerEndpoint": "%s", "activeDirectoryEndpoint": "%s", "retailPricesEndpoint": "%s"}' "$url" "$url" "$url" >"$work/environment.json"
field assertion >"$work/token"
listed() { echo list >&7; sleep 1; tail -n 1 "$work/arm.out"; }

"$SPOKESHAVE" crds --cloud-provider azure | kubectl apply --server-side --force-conflicts -f - >/dev/null
export CLUSTER_NAME=cluster CLUSTER_ENDPOINT=https://api.example:6443 CLUSTER_CA_BUNDLE=Y2VydGlmaWNhdGU= KUBELET_BOOTSTRAP_TOKEN=abcdef.0123456789abcdef
AZURE_TENANT_ID=$(field tenant) AZURE_CLIENT_ID=$(field client) AZURE_SUBSCRIPTION_ID=$(field subscription) LOCATION=$(field location) VNET_SUBNET_ID=$(field subnet)
export AZURE_TENANT_ID AZURE_CLIENT_ID AZURE_SUBSCRIPTION_ID LOCATION VNET_SUBNET_ID AZURE_FEDERATED_TOKEN_FILE=$work/token AZURE_ENVIRONMENT_FILEPATH=$work/environment.json
export AZURE_NODE_RESOURCE_GROUP=Nodes SSH_PUBLIC_KEY="ssh-ed25519 AAAA" BOOTSTRAP_TEMPLATE_FILE=crates/provider-azure/templates/kubeadm.sh METRICS_PORT=0 HEALTH_PROBE_PORT=0
processes=()
end_all() {
    for process in "${processes[@]}"; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    processes=()
}
trap 'end_all; exec 7>&-; end_up' EXIT
# start LOG ARGUMENT…
start() {
    local log=$1
    shift
    "$SPOKESHAVE" "$@" --kubeconfig "$KUBECONFIG" >"$target/$log" 2>&1 &
    processes+=($!)
}
start e2e-azure-operator.log operator --cloud-provider azure

kubectl apply -f - >/dev/null <<'END'
apiVersion: karpenter.azure.com/v1beta1
kind: AKSNodeClass
metadata: {name: default}
spec: {imageFamily: Ubuntu2204}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.azure.com, kind: AKSNodeClass, name: default}
      requirements:
      - {key: karpenter.azure.com/sku-family, operator: In, values: [D]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
END
kubectl wait --for=condition=Ready aksnodeclass/default --timeout="$(seconds 60)s"
kubectl wait --for=condition=Ready nodepool/default --timeout="$(seconds 60)s"

# Whether Azure has a machine of this NodeClaim. The answer is read whole: grep -q, which stops reading, would end what writes it with SIGPIPE.
has_machine() { [[ "$(listed)" == *"\"$1\""* ]]; }
# A Deployment comes, and goes.
story() {
    kubectl apply -f - >/dev/null <<'END'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web, resources: {requests: {cpu: "1", memory: 1Gi}}}]
END
    for _ in $(seq "$(seconds 60)"); do [ -n "$(kubectl get nodeclaims -o name)" ] && break; sleep 1; done
    kubectl wait --for=condition=Launched nodeclaim --all --timeout="$(seconds 60)s"
    local claim
    claim=$(kubectl get nodeclaims -o jsonpath='{.items[0].metadata.name}')
    has_machine "$claim" || { echo "Azure has no machine of NodeClaim $claim: $(listed)" >&2; exit 1; }
    kubectl get nodeclaim "$claim" -o jsonpath='{.metadata.labels.node\.kubernetes\.io/instance-type} {.status.providerID}{"\n"}'

    kubectl delete deployment web >/dev/null
    kubectl delete nodeclaim --all --timeout="$(seconds 60)s"
    for _ in $(seq "$(seconds 30)"); do
        has_machine "$claim" || { echo "machine of $claim has ended"; return; }
    done
    echo "the machine of NodeClaim $claim is still there: $(listed)" >&2
    exit 1
}
story

echo "the provider in a process of its own"
end_all
start e2e-azure-provider.log provider-serve --cloud-provider azure --socket "$work/azure.sock"
for _ in $(seq "$(seconds 100)"); do [ -S "$work/azure.sock" ] && break; sleep 0.1; done
# As the author of a provider checks it, before an operator comes.
kubectl get aksnodeclass default -o json >"$work/class.json"
"$SPOKESHAVE" provider-sanity --provider-socket "$work/azure.sock" --node-class-file "$work/class.json" \
    --cluster-uid "$(kubectl get namespace kube-system -o jsonpath='{.metadata.uid}')"
start e2e-azure-grpc.log operator --cloud-provider grpc --provider-socket "$work/azure.sock"
story
