#!/usr/bin/env bash
# Node auto-provisioning as AKS's article about disruption describes it, on `up --cloud azure` (Z-059): its NodePool applies and brings nodes, a new image
# is drift, what opts out stays, budgets that do the opposite of what they look like are found, a spot eviction is a replacement in time, and in the end
# nothing is left. SPOKESHAVE names the program.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/instruments.sh
need_program kubectl "the story is told with kubectl"
need_program python3 "it reads JSON"
need_spokeshave
. e2e/up.sh

fail() {
    echo "$1" >&2
    kubectl get nodes,nodeclaims,nodepools,aksnodeclasses -o wide >&2 || true
    tail -n 40 "$work/up.err" >&2
    exit 1
}
# until_ WHAT COMMAND…: until the command succeeds, two minutes at the most; the cluster's clock runs thirty times as fast.
until_() {
    local what=$1
    shift
    for _ in $(seq "$(seconds 240)"); do
        "$@" >/dev/null 2>&1 && { echo "$what"; return; }
        sleep 0.5
    done
    fail "not within $(seconds 2) minutes: $what"
}
running() { [ "$(kubectl get pods -l "app=$1" --field-selector status.phase=Running -o name | wc -l)" -eq "$2" ]; }
nodes() { kubectl get nodeclaims -l "$1" -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}'; }
# A whole list is read before its first line is taken: who stops reading ends kubectl with SIGPIPE, which pipefail makes the script's end.
first_node() {
    local all
    all=$(nodes "$1")
    echo "${all%%$'\n'*}"
}
image_of() { kubectl get nodeclaim "$1" -o jsonpath='{.status.imageID}'; }
no_claims() { [ -z "$(kubectl get nodeclaims -o name)" ]; }
deployment() {
    kubectl create deployment "$1" --image=app --replicas="$2" >/dev/null
    kubectl set resources deployment "$1" --requests=cpu=1,memory=2Gi >/dev/null
}

start_up --cloud azure --speed 30 --no-web -f examples/azure/node-auto-provisioning.yaml
kubectl wait --for=condition=Ready aksnodeclass/default nodepool/default --timeout="$(seconds 60)s"
# Business hours are when this runs, or not: the story needs a budget that does not depend on that.
kubectl patch nodepool default --type=merge -p '{"spec":{"disruption":{"budgets":[{"nodes":"100%"}]}}}' >/dev/null

deployment web 6
until_ "six pods run on nodes that have joined" running web 6
claim=$(first_node karpenter.sh/nodepool=default)
kubectl get nodes -o wide

echo "a DisruptionPolicy that freezes the NodePool, a node that opts out, and a new image"
kubectl apply -f - >/dev/null <<EOF
apiVersion: spokeshave.dev/v1alpha1
kind: DisruptionPolicy
metadata: {name: calm}
spec: {nodePools: {names: [default]}, freeze: {reason: incident 42}}
EOF
kubectl annotate node "aks-$claim" karpenter.sh/do-not-disrupt=true >/dev/null
kubectl create configmap simulated-azure -n kube-system --from-literal=images=202609.1.0 >/dev/null
drifted() { [ "$(kubectl get nodeclaim "$claim" -o jsonpath='{.status.conditions[?(@.type=="Drifted")].reason}')" = ImageDrift ]; }
# Galleries are asked again when a class is looked at again; it changes here, so that it is.
kubectl annotate aksnodeclass default touched=1 >/dev/null
until_ "NodeClaim $claim has drifted: ImageDrift" drifted
frozen() { [ "$(kubectl get disruptionpolicy calm -o jsonpath='{.status.active[0].field}')" = spec.freeze ]; }
until_ "the policy says that it stops the replacement" frozen
before=$(nodes karpenter.sh/nodepool=default)
sleep 4
[ "$(nodes karpenter.sh/nodepool=default)" = "$before" ] || fail "the NodePool is frozen, and nodes were replaced"
kubectl delete disruptionpolicy calm >/dev/null
thawed() { [ "$(nodes karpenter.sh/nodepool=default)" != "$before" ] || [ "$before" = "$claim" ]; }
until_ "nodes are replaced without it" thawed
sleep 4
kubectl get nodeclaim "$claim" >/dev/null || fail "node aks-$claim opts out, and was replaced"
kubectl annotate node "aks-$claim" karpenter.sh/do-not-disrupt- >/dev/null
gone() { ! kubectl get nodeclaim "$claim"; }
until_ "it is replaced when it no longer opts out" gone
until_ "six pods run again" running web 6
for one in $(nodes karpenter.sh/nodepool=default); do
    case $(image_of "$one") in
    */202609.1.0) ;;
    *) fail "NodeClaim $one has the old image: $(image_of "$one")" ;;
    esac
done

echo "spot capacity that is taken back"
kubectl patch nodepool default --type=merge -p '{"spec":{"template":{"spec":{"requirements":[{"key":"karpenter.sh/capacity-type","operator":"In","values":["spot"]},{"key":"karpenter.azure.com/sku-family","operator":"In","values":["D"]}]}}}}' >/dev/null
spot() { [ "$(kubectl get nodeclaims -l karpenter.sh/capacity-type=spot -o name | wc -l)" -gt 0 ] && [ -z "$(nodes karpenter.sh/capacity-type=on-demand)" ] && running web 6; }
until_ "the nodes are spot machines" spot
claim=$(first_node karpenter.sh/capacity-type=spot)
kubectl annotate node "aks-$claim" azure.spokeshave.dev/message=spot_evicted >/dev/null
until_ "the machine of NodeClaim $claim was taken back" gone
until_ "its pods run elsewhere" running web 6

echo "the article's budgets that do the opposite of what they look like"
"$SPOKESHAVE" budgets --nodes 10 -f examples/azure/broken-budgets.yaml >"$work/budgets.txt" && fail "budgets finds nothing wrong"
for finding in 'never-open.*broken-budgets.yaml' 'unlimited-between-windows.*broken-budgets.yaml'; do
    grep -E "$finding" "$work/budgets.txt" || fail "budgets does not find $finding: $(cat "$work/budgets.txt")"
done

kubectl delete deployment web >/dev/null
kubectl delete nodepool default --timeout="$(seconds 100)s" >/dev/null
until_ "nothing is left" no_claims
kubectl delete aksnodeclass default --timeout="$(seconds 60)s"
