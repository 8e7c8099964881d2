#!/usr/bin/env bash
# Helm installs the charts on a genuine kube-apiserver; the operator of its Deployment runs as its service account, with RBAC and only the chart's rules. No request
# may be denied, and no rule may be there that nothing used. See install.py for the story; STORY=faults tells
# faults.py instead: what goes wrong around an installation; STORY=readme README's own lines. SPOKESHAVE names the program, HELM another Helm.
set -euo pipefail
cd "$(dirname "$0")/../.."
. e2e/instruments.sh
need_program python3 "the story needs Python 3.9 or later"
need_spokeshave
if [ -z "${HELM:-}" ]; then
    need helm
    HELM=$target/tools/helm
fi
. e2e/controlplane.sh
cat >"$work/audit-policy.yaml" <<'POLICY'
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:spokeshave", "system:serviceaccounts:elsewhere"]
    omitStages: [RequestReceived] # a watch ends after the story; that it began is in ResponseStarted
  - level: None
POLICY
start_controlplane --scheduler --controller-manager --audit-log "$work/audit.log" "--apiserver-arg=--audit-policy-file=$work/audit-policy.yaml" \
    "--apiserver-arg=--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement"
story=${STORY:-install}
python3 -B "e2e/charts/$story.py" --kubeconfig "$work/kubeconfig" --spokeshave "$SPOKESHAVE" --helm "$HELM" --audit-log "$work/audit.log" --folder "$work" "$@"
