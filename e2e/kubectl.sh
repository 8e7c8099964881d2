#!/usr/bin/env bash
# A user's walk with plain kubectl through `spokeshave up`: every step says what it saw, and what it must see is checked.
# Needs kubectl and the release build.
set -euo pipefail
cd "$(dirname "$0")/.."
. e2e/up.sh

steps=0
# see WHAT PATTERN COMMAND…: the command succeeds, and its output has the pattern.
see() {
    local what=$1 pattern=$2 output
    shift 2
    if ! output=$("$@" 2>&1); then
        printf 'FAILED %s: %s\n%s\n' "$what" "$*" "$output" >&2
        exit 1
    fi
    check "$what" "$pattern" "$output"
}
# refuse WHAT PATTERN COMMAND…: the command fails, and says why.
refuse() {
    local what=$1 pattern=$2 output
    shift 2
    if output=$("$@" 2>&1); then
        printf 'FAILED %s: %s succeeded\n%s\n' "$what" "$*" "$output" >&2
        exit 1
    fi
    check "$what" "$pattern" "$output"
}
check() {
    if ! grep -Eq -- "$2" <<<"$3"; then
        printf 'FAILED %s: no %q in\n%s\n' "$1" "$2" "$3" >&2
        exit 1
    fi
    steps=$((steps + 1))
    printf 'ok: %s\n' "$1"
}

start_up --speed 20
cat >"$work/web.yaml" <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: example.com/web:1
        resources: {requests: {cpu: "1", memory: 1Gi}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  maxUnavailable: 2
  selector: {matchLabels: {app: web}}
YAML

see "the server is 1.36" 'Server Version: v1\.36' kubectl version
see "the cluster is told of" 'control plane.* is running at https://127\.0\.0\.1' kubectl cluster-info
see "resources with their short names" '^nodeclaims +karpenter\.sh/v1 +false +NodeClaim|^nodepools +karpenter\.sh/v1 +false +NodePool' kubectl api-resources
see "verbs of a group" '^nodepools' kubectl api-resources --api-group=karpenter.sh --verbs=list,watch --no-headers
see "versions of groups" '^karpenter\.sh/v1$' kubectl api-versions

see "apply creates" 'deployment.apps/web created' kubectl apply -f "$work/web.yaml"
see "rollout status waits" 'deployment "web" successfully rolled out' kubectl rollout status deployment/web --timeout=60s
see "apply again changes nothing" 'deployment.apps/web unchanged' kubectl apply -f "$work/web.yaml"
see "wait for a condition" 'condition met' kubectl wait --for=condition=Ready pod -l app=web --timeout=60s
see "wait for a value" 'condition met' kubectl wait --for=jsonpath='{.status.availableReplicas}'=6 deployment/web --timeout=60s

see "nodes are wide" 'NAME +STATUS +ROLES +AGE +VERSION +INTERNAL-IP +EXTERNAL-IP +OS-IMAGE +KERNEL-VERSION +CONTAINER-RUNTIME' kubectl get nodes -o wide
see "nodes are ready" ' Ready ' kubectl get nodes
see "pods are wide and run" 'web-.* 1/1 +Running +0 ' kubectl get pods -o wide
see "node pools have their columns" 'NAME +NODECLASS +NODES +READY +AGE' kubectl get nodepools
see "node claims have their columns" 'NAME +TYPE +CAPACITY +ZONE +NODE +READY +AGE' kubectl get nodeclaims
see "four kinds at once, wide" 'nodeclaim\.karpenter\.sh/default-' kubectl get nodes,pods,nodepools,nodeclaims -o wide
see "as names" '^node/' kubectl get nodes -o name
see "as JSON path" '^[0-9]+$' kubectl get nodepool default -o jsonpath='{.status.nodes}'
see "as custom columns" '^default +' kubectl get nodepools -o custom-columns=NAME:.metadata.name,POLICY:.spec.disruption.consolidationPolicy --no-headers
see "sorted" 'web-' kubectl get pods --sort-by=.metadata.name -o name
see "describe tells events" '^ +Normal +NodeClassReady ' kubectl describe nodepool default
see "describe a pod" '^Node: +kwok-' kubectl describe pod -l app=web

see "explain speaks for the reader" 'GROUP: +karpenter\.sh' kubectl explain nodepool.spec.disruption
see "explain goes deep" 'FIELD: nodes <string>' kubectl explain nodepool.spec.disruption.budgets.nodes
see "explain core kinds" 'FIELDS?:' kubectl explain pod.spec.topologySpreadConstraints

sed -i 's/image: example.com\/web:1/image: example.com\/web:2/' "$work/web.yaml"
diff_output=$(kubectl diff -f "$work/web.yaml" || true)
check "diff shows what would change" '^\+ +(- )?image: example.com/web:2' "$diff_output"
see "a dry run on the server" 'configured \(server dry run\)' kubectl apply --dry-run=server -f "$work/web.yaml"
see "apply changes" 'deployment.apps/web configured' kubectl apply -f "$work/web.yaml"
see "a rolling update ends" 'successfully rolled out' kubectl rollout status deployment/web --timeout=120s
see "its history" '^2 ' kubectl rollout history deployment/web
see "is undone" 'rolled back' kubectl rollout undo deployment/web
see "and done again" 'successfully rolled out' kubectl rollout status deployment/web --timeout=120s
see "restart" 'restarted' kubectl rollout restart deployment/web
see "restarted" 'successfully rolled out' kubectl rollout status deployment/web --timeout=120s
see "describe tells what was done" 'ScalingReplicaSet +.*Scaled up replica set web-' kubectl describe deployment web

cat >"$work/pool.yaml" <<'YAML'
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: second}
spec:
  weight: 1
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
YAML
see "apply on the server" 'nodepool.karpenter.sh/second serverside-applied' kubectl apply --server-side -f "$work/pool.yaml"
see "and again" 'serverside-applied' kubectl apply --server-side -f "$work/pool.yaml"
sed -i 's/weight: 1/weight: 2/' "$work/pool.yaml"
refuse "another manager is stopped" 'conflict with "kubectl".*\.spec\.weight|Apply failed with 1 conflict' kubectl apply --server-side --field-manager=other -f "$work/pool.yaml"
see "or forces" 'serverside-applied' kubectl apply --server-side --field-manager=other --force-conflicts -f "$work/pool.yaml"
refuse "a wrong pool is refused with its place" 'spec\.weight: Invalid value: 1000' kubectl patch nodepool second --type=merge -p '{"spec":{"weight":1000}}'
see "merge patch" 'patched' kubectl patch nodepool second --type=merge -p '{"spec":{"limits":{"cpu":"64"}}}'
see "JSON patch" 'patched' kubectl patch nodepool second --type=json -p '[{"op":"replace","path":"/spec/limits/cpu","value":"32"}]'
see "what the patches left" '^32$' kubectl get nodepool second -o jsonpath='{.spec.limits.cpu}'
see "strategic patch" 'patched' kubectl patch deployment web --type=strategic -p '{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"A","value":"b"}]}]}}}}'
see "strategic patch kept the image" '^example.com/web:1$' kubectl get deployment web -o jsonpath='{.spec.template.spec.containers[0].image}'
see "edit" 'edited' env KUBE_EDITOR="sed -i s/weight:.*/weight:\ 7/" kubectl edit nodepool second
see "what edit left" '^7$' kubectl get nodepool second -o jsonpath='{.spec.weight}'
see "labels" 'labeled' kubectl label nodepool second tier=test
see "annotations" 'annotated' kubectl annotate nodepool second note=seen
see "by label" 'nodepool.karpenter.sh/second' kubectl get nodepools -l tier=test -o name

kubectl get pods --watch --output-watch-events -l app=web >"$work/watch" 2>&1 &
watching=$!
see "scale up" 'scaled' kubectl scale deployment/web --replicas=9
see "scaled" 'successfully rolled out' kubectl rollout status deployment/web --timeout=120s
kill "$watching"
wait "$watching" 2>/dev/null || true
check "get -w showed pods come" '^ADDED +web-.*Pending' "$(cat "$work/watch")"
check "get -w showed pods run" '^MODIFIED +web-.* 1/1 +Running' "$(cat "$work/watch")"

pod=$(kubectl get pods -l app=web -o jsonpath='{.items[0].metadata.name}')
see "resize" 'patched' kubectl patch pod "$pod" --subresource=resize -p '{"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"900m"}}}]}}'
see "resized" 'condition met' kubectl wait --for=jsonpath='{.status.containerStatuses[0].resources.requests.cpu}'=900m "pod/$pod" --timeout=60s
node=$(kubectl get pods -l app=web -o jsonpath='{.items[0].spec.nodeName}')
see "cordon" 'cordoned' kubectl cordon "$node"
see "a cordoned node shows" 'SchedulingDisabled' kubectl get node "$node"
see "uncordon" 'uncordoned' kubectl uncordon "$node"
see "taint" 'tainted' kubectl taint node "$node" example.com/test=yes:NoSchedule
see "untaint" 'untainted' kubectl taint node "$node" example.com/test-
see "drain evicts under the budget" "node/$node drained" kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --timeout=120s
see "the pods run elsewhere" 'successfully rolled out' kubectl rollout status deployment/web --timeout=120s

see "events" 'Scheduled|Launched|Registered|Initialized|Nominated' kubectl events -A
see "events of one object" 'ScalingReplicaSet +Deployment/web ' kubectl events --for deployment/web
see "get events" 'LAST SEEN +TYPE +REASON +OBJECT +MESSAGE' kubectl get events

refuse "logs say what is missing" 'no container runs behind pod' kubectl logs deployment/web
refuse "exec says what is missing" 'no container runs behind pod' kubectl exec deployment/web -- true
refuse "what is not there" 'nodepools.karpenter.sh "none" not found' kubectl get nodepool none
refuse "what is not known" "the server doesn't have a resource type \"nonsense\"" kubectl get nonsense

see "create namespaces" 'created' kubectl create namespace shop
see "create from literals" 'created' kubectl -n shop create configmap settings --from-literal=a=b
see "delete a namespace with its content" 'deleted' kubectl delete namespace shop --timeout=60s
see "delete by selector" 'deleted' kubectl delete nodepools -l tier=test --timeout=60s
see "delete a deployment" 'deployment.apps "web" deleted' kubectl delete deployment web --timeout=60s
see "its pods go" '' kubectl wait --for=delete pod -l app=web --timeout=60s
see "empty nodes go" '' kubectl wait --for=delete nodeclaims --all --timeout=120s
echo "$steps steps, as on any cluster"
