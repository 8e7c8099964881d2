#!/usr/bin/env bash
# Karpenter's own operator makes a cluster on a genuine kube-apiserver and is killed in the middle of a consolidation; Spokeshave takes over, and gives the
# cluster back. A shadow runs beside Karpenter, and the API server's audit log must have no write of it. See take_over.py for the story.
# SPOKESHAVE names the program, KUBELETS the example `kubelets` of crates/sim, UPSTREAM_OPERATOR a build of Karpenter's kwok operator,
# and KARPENTER_MODULE the folder of its module where that is of another version: GOBIN=DIR go install sigs.k8s.io/karpenter/kwok@v1.6.2; go mod download -json …
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/instruments.sh
need_program python3 "the story needs Python 3.9 or later"
need_spokeshave
KUBELETS=${KUBELETS:-$target/release/examples/kubelets}
[ -x "$KUBELETS" ] || { echo "no program $KUBELETS: run cargo build --release -p spokeshave-sim --example kubelets, or set KUBELETS" >&2; exit 1; }
if [ -z "${UPSTREAM_OPERATOR:-}" ]; then
    need operator
    UPSTREAM_OPERATOR=$target/suites/bin/upstream-operator
fi
karpenter=${KARPENTER_MODULE:-$(cd e2e/suites && go list -m -f '{{.Dir}}' sigs.k8s.io/karpenter)}
. e2e/controlplane.sh
cat >"$work/audit-policy.yaml" <<'POLICY'
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
  - level: Metadata
    users: ["system:serviceaccount:kube-system:shadow"]
  - level: Metadata
    verbs: [create]
    resources: [{group: "", resources: [pods/eviction]}]
    omitStages: [RequestReceived]
  - level: None
POLICY
start_controlplane --scheduler --controller-manager --audit-log "$work/audit.log" "--apiserver-arg=--audit-policy-file=$work/audit-policy.yaml"
python3 -B e2e/take_over.py --kubeconfig "$work/kubeconfig" --spokeshave "$SPOKESHAVE" --upstream "$UPSTREAM_OPERATOR" --kubelets "$KUBELETS" \
    --definitions "$karpenter/pkg/apis/crds" "$karpenter/kwok/apis/crds" --audit-log "$work/audit.log" --folder "$work" "$@"
