#!/usr/bin/env bash
# Builds the control plane and checks, with kubectl, that it behaves as a genuine one. Prints PASS or FAIL for each check and
# exits non-zero if any failed. Needs go, kubectl, pgrep and ps. CONTROLPLANE=FILE checks that binary instead of building
# one; KEEP=1 keeps the working directory, with all logs.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

work=$(mktemp -d)
binary=${CONTROLPLANE:-}
export KUBECONFIG=$work/kubeconfig KUBECACHEDIR=$work/kubectl-cache
failures=0 server="" kubelet=""

finish() {
  [[ -z $kubelet ]] || kill "$kubelet" 2>/dev/null
  [[ -z $server ]] || { kill "$server" && wait "$server"; } 2>/dev/null
  if [[ -n ${KEEP:-} ]]; then echo "kept $work"; else rm -rf "$work"; fi
}
trap finish EXIT

# result STATUS NAME [OUTPUT]: reports one check.
result() {
  if (($1 == 0)); then echo "PASS $2"; return; fi
  echo "FAIL $2"
  [[ -z ${3:-} ]] || sed 's/^/     /' <<<"$3"
  failures=$((failures + 1))
}

# check NAME COMMAND...: the command succeeds.
check() {
  local name=$1 output; shift
  output=$("$@" 2>&1); result $? "$name" "$output"
}

# expect NAME PATTERN COMMAND...: what the command prints, whether it succeeds or not, matches the regular expression.
expect() {
  local name=$1 pattern=$2 output; shift 2
  output=$("$@" 2>&1); grep -qE -- "$pattern" <<<"$output"; result $? "$name" "wanted: $pattern"$'\n'"got: $output"
}

# eventually NAME PATTERN COMMAND...: as expect, within 30 seconds.
eventually() {
  local name=$1 pattern=$2 output deadline=$((SECONDS + 30)); shift 2
  until output=$("$@" 2>&1); grep -qE -- "$pattern" <<<"$output"; do
    ((SECONDS < deadline)) || { result 1 "$name" "wanted: $pattern"$'\n'"got: $output"; return; }
    sleep 0.2
  done
  result 0 "$name"
}

# start ARGUMENTS...: starts the control plane and waits for its ready line. File descriptor 9 is its standard input.
start() {
  rm -f "$work/stdin" "$work/stdout"; mkfifo "$work/stdin"
  "$binary" --dir "$work/data" --kubeconfig "$KUBECONFIG" --exit-with-stdin --scheduler --controller-manager \
    --audit-log "$work/audit.log" "$@" <"$work/stdin" >"$work/stdout" 2>"$work/stderr" 9>&- &
  server=$!
  exec 9>"$work/stdin"
  until [[ -s $work/stdout ]]; do
    kill -0 "$server" 2>/dev/null || { result 1 "the control plane starts" "$(cat "$work/stderr")"; exit 1; }
    sleep 0.05
  done
}

# node NAME: creates a ready node of 4 CPUs, as a kubelet would.
node() {
  kubectl create -f - <<END &&
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "$1", "labels": {"kubernetes.io/hostname": "$1"}}}
END
    kubectl patch node "$1" --subresource=status --type=merge -p '{"status": {
      "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
      "conditions": [{"type": "Ready", "status": "True", "reason": "Test"}]}}'
}

# play_kubelet: does once what the kubelets would do: bound pods become ready, pods that are being deleted end.
play_kubelet() {
  kubectl get pods -A -o go-template-file=/dev/stdin <<'END' | while read -r namespace pod state; do
{{range .items}}{{if .spec.nodeName}}{{.metadata.namespace}} {{.metadata.name}} {{if .metadata.deletionTimestamp}}ending{{else}}ready=
{{- range .status.conditions}}{{if eq .type "Ready"}}{{.status}}{{end}}{{end}}{{end}}
{{end}}{{end}}
END
    case $state in
      ending) kubectl delete pod -n "$namespace" "$pod" --grace-period=0 --force --wait=false ;;
      ready=True) ;;
      ready=*) kubectl patch pod -n "$namespace" "$pod" --subresource=status --type=strategic \
        -p '{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}' ;;
    esac
  done &>/dev/null
}

# evict POD: asks for an eviction.
evict() {
  kubectl create --raw "/api/v1/namespaces/default/pods/$1/eviction" -f - <<END
{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$1", "namespace": "default"}}
END
}

pods() { kubectl get pods -l app=web "$@"; }
per_node='jsonpath={range .items[*]}{.spec.nodeName}{" "}{end}'

# --- Build and start

if [[ -z $binary ]]; then
  check "it builds" ../build.sh controlplane
  target=${CARGO_TARGET_DIR:-../../target}
  binary=$(cd "$target" && pwd)/controlplane/controlplane
fi
start --user "system:serviceaccount:default:autoscaler=$work/autoscaler.kubeconfig" \
  --controller-manager-arg=--node-monitor-grace-period=1h
expect "it announces readiness and its kubeconfig" "^ready $KUBECONFIG\$" cat "$work/stdout"
expect "its version is a release" '"gitVersion": "v1\.[0-9]+\.[0-9]+"' kubectl get --raw /version
expect "it is ready" "^ok$" kubectl get --raw /readyz
check "a second one in the same directory is refused" \
  bash -c "! timeout 20 '$binary' --dir '$work/data' --kubeconfig '$work/second.kubeconfig'"

# --- Custom resources, server-side apply, tables, watches

check "a CustomResourceDefinition with CEL validation is created" kubectl create -f - <<'END'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.test.example}
spec:
  group: test.example
  scope: Cluster
  names: {kind: Pool, plural: pools, singular: pool}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: Maximum, type: integer, jsonPath: .spec.maximum}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations: [{rule: self.minimum <= self.maximum, message: minimum exceeds maximum}]
            properties:
              minimum: {type: integer, default: 1}
              maximum: {type: integer}
              zone: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: zone is immutable}]}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
END
check "the definition is established" kubectl wait --for=condition=Established crd/pools.test.example --timeout=30s

apply_pool() { # MANAGER SPEC
  kubectl apply --server-side --field-manager "$1" -f - <<END
apiVersion: test.example/v1
kind: Pool
metadata: {name: a}
spec: $2
END
}
eventually "an object is applied server-side" "serverside-applied" apply_pool one '{maximum: 5, zone: east}'
expect "the schema's default is filled in" "^1$" kubectl get pool a -o 'jsonpath={.spec.minimum}'
expect "the CEL rule refuses a bad object" "minimum exceeds maximum" apply_pool one '{minimum: 9, maximum: 5, zone: east}'
expect "the CEL transition rule refuses a change" "zone is immutable" apply_pool one '{maximum: 5, zone: west}'
expect "another field manager's change is a conflict" 'conflict with "one".*\.spec\.maximum' apply_pool two '{maximum: 7}'
expect "the field managers are recorded" "one" kubectl get pool a --show-managed-fields -o 'jsonpath={.metadata.managedFields[*].manager}'
expect "tables show the printer columns" "^NAME +MAXIMUM" kubectl get pools
watch_pools='/apis/test.example/v1/pools?watch=true&allowWatchBookmarks=true&timeoutSeconds=2'
expect "a watch sends the objects" '"ADDED".*"name":"a"' kubectl get --raw "$watch_pools"
expect "a watch list ends with a bookmark" '"BOOKMARK".*k8s.io/initial-events-end' \
  kubectl get --raw "$watch_pools&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

# --- Rights

as_autoscaler() { kubectl --kubeconfig "$work/autoscaler.kubeconfig" "$@"; }
expect "the second user is the service account" "system:serviceaccount:default:autoscaler" as_autoscaler auth whoami
expect "it has no rights" "Forbidden" as_autoscaler get nodes
check "a role is bound to it" kubectl create clusterrolebinding autoscaler --clusterrole=view --serviceaccount=default:autoscaler
check "then it can list pods" as_autoscaler get pods
expect "but nodes still not" "Forbidden" as_autoscaler get nodes
check "a token is issued for a service account" kubectl create token default

# --- Scheduling and deployments

check "a Deployment is created" kubectl create -f - <<'END'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web, resources: {requests: {cpu: "1"}}}]
END
eventually "its pods are unschedulable without a node" "^(Unschedulable ){3}$" pods -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="PodScheduled")].reason}{" "}{end}'
check "a node is created" node n1
eventually "the scheduler binds its 3 pods to the node" "^(n1 ){3}$" pods -o "$per_node"
play_kubelet
check "the Deployment becomes available" kubectl wait --for=condition=Available deployment/web --timeout=30s
check "a node that is not ready" kubectl patch node n1 --subresource=status --type=strategic -p '{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}'
eventually "is tainted" "node.kubernetes.io/not-ready" kubectl get node n1 -o 'jsonpath={.spec.taints[*].key}'
check "and ready again" kubectl patch node n1 --subresource=status --type=strategic -p '{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}'
eventually "is untainted" "^\[\]$" kubectl get node n1 -o 'go-template=[{{range .spec.taints}}{{.key}}{{end}}]'

# --- Disruption

play_kubelet # pods that were not ready with their node
check "a PodDisruptionBudget is created" kubectl create poddisruptionbudget web --selector=app=web --min-available=2
eventually "it allows one disruption" "^1$" kubectl get pdb web -o 'jsonpath={.status.disruptionsAllowed}'
read -r first second _ <<<"$(pods -o 'jsonpath={.items[*].metadata.name}')"
expect "one eviction is accepted" '"status":"Success"' evict "$first"
expect "the next is refused with 429" "TooManyRequests.*violate the pod's disruption budget" evict "$second"
play_kubelet # the first pod ends
eventually "the evicted pod is replaced" "^(n1 ){3}$" pods -o "$per_node"
play_kubelet # its replacement becomes ready
eventually "and one disruption is allowed again" "^1$" kubectl get pdb web -o 'jsonpath={.status.disruptionsAllowed}'

check "a second node is created" node n2
expect "a drain evicts one pod and is then refused" "violate the pod's disruption budget" kubectl drain n1 --timeout=8s
expect "the drained node is cordoned" "^true$" kubectl get node n1 -o 'jsonpath={.spec.unschedulable}'
expect "exactly one pod is being deleted" "^1$" bash -c "kubectl get pods -o 'jsonpath={.items[*].metadata.deletionTimestamp}' | wc -w"
while sleep 0.5; do play_kubelet; done 9>&- &
kubelet=$!
check "with kubelets, the drain ends" kubectl drain n1 --timeout=60s
eventually "and all pods are on the other node" "^(n2 ){3}$" pods -o "$per_node"

# --- Garbage collection

check "the Deployment is deleted with all it owns" kubectl delete deployment web --cascade=foreground --timeout=60s
expect "no pod is left" "No resources found" pods
check "a namespace is created" kubectl create namespace passing
check "and deleted with its contents" kubectl delete namespace passing --timeout=60s
check "a Job is created" kubectl create job once --image=once
eventually "and its pod is bound" "n2" kubectl get pods -l job-name=once -o "$per_node"
kill "$kubelet"; kubelet=""

# --- The audit log

audit() { grep -c "$1" "$work/audit.log"; }
expect "the audit log has the refused evictions" "^[1-9]" audit '"verb":"create".*"subresource":"eviction".*"code":429'
expect "it has the scheduler's bindings" "^[1-9]" audit '"userAgent":"kube-scheduler/.*"subresource":"binding".*"code":201'
expect "it has the server-side applies" "^[1-9]" audit '"verb":"patch".*"resource":"pools","name":"a".*"code":201'
expect "it has no reads" "^0$" audit '"verb":"\(get\|list\|watch\)"'

# --- Stopping and starting

children() { pgrep -d "${1:- }" -P "$server"; }
gone() { ps -o stat= -p "$1" | grep -v Z >/dev/null || echo gone; } # PID,PID...

if command -v ss >/dev/null; then
  expect "it listens on loopback only" "^0$" \
    bash -c "ss -Hltnp | grep -E 'pid=($server|$(children '|')),' | grep -cv '127\.0\.0\.1:[0-9]* '"
fi
was=$(children ,) url=$(kubectl config view -o 'jsonpath={.clusters[0].cluster.server}')
exec 9>&- # its standard input closes
wait "$server"; result $? "it stops when its standard input closes" "$(cat "$work/stderr")"
expect "and so do its components" gone gone "$was"

start --port "${url##*:}"
expect "started again, with the same port and directory, it has its objects" "once" kubectl get jobs
check "and earlier kubeconfigs still work" as_autoscaler get pods
was=$(children ,)
kill -TERM "$server"; wait "$server"; result $? "it stops on SIGTERM" "$(cat "$work/stderr")"
expect "and so do its components" gone gone "$was"

start
was=$(children ,)
kill -KILL "$server"; wait "$server" 2>/dev/null; server=""
eventually "its components end when it is killed" gone gone "$was"

start
kill -KILL "$(pgrep -P "$server" -f '^kube-apiserver ')"
wait "$server"; result $((! $?)) "when a component ends, it fails"
server=""
expect "and says why" "kube-apiserver ended by itself \(signal: killed\)" cat "$work/stderr"

echo
if ((failures)); then echo "$failures checks failed"; exit 1; fi
echo "all checks passed"
