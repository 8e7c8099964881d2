#!/usr/bin/env bash
# The charts without a cluster: lint, what each set of values renders (BLESS=1 writes it anew), values that are refused, boards in ConfigMaps.
# HELM names another Helm, by default the Helm 3 that e2e/build.sh builds. Helm 4 (e2e/build.sh helm4) renders the same objects with other empty lines and in another
# order: with it documents are compared without regard to those.
set -euo pipefail
cd "$(dirname "$0")/../.."
. e2e/instruments.sh
if [ -z "${HELM:-}" ]; then
    need helm
    HELM=$target/tools/helm
fi
need_program python3 "boards are read as JSON"
folder=e2e/charts
# The version that a Helm without a cluster pretends to talk to.
pretended=(--kube-version 1.36.0 --api-versions monitoring.coreos.com/v1)
rendered=$(mktemp)
copy=$(mktemp -d)
trap 'rm -rf "$rendered" "$copy"' EXIT

# documents FILE: its documents, in order, without empty lines.
documents() {
    python3 -B -c 'import re, sys
parts = re.split(r"(?m)^---$", open(sys.argv[1], encoding="utf-8").read())
print("---\n".join(sorted("".join(line for line in part.splitlines(True) if line.strip()) for part in parts)))' "$1"
}
same() {
    if [[ $version == v3* ]]; then diff -u "$1" "$2"; else diff -u <(documents "$1") <(documents "$2"); fi
}
version=$("$HELM" version --short)

render() {
    "$HELM" template spokeshave charts/spokeshave --namespace spokeshave "${pretended[@]}" "$@"
}

"$HELM" lint --strict charts/spokeshave-crds
for values in "$folder"/values/*.yaml; do
    name=$(basename "$values" .yaml)
    "$HELM" lint --strict --quiet charts/spokeshave --values "$values"
    expected=$folder/expected/$name.yaml
    render --values "$values" >"$rendered"
    if [ "${BLESS:-}" = 1 ]; then
        cp "$rendered" "$expected"
    fi
    same "$expected" "$rendered" || {
        echo "$name differs from $expected; BLESS=1 just chart-check writes it anew" >&2
        exit 1
    }
done
[ "$(ls "$folder/expected")" = "$(ls "$folder/values")" ] || { echo "$folder/expected has files of values that are no more" >&2; exit 1; }

# What the notes call unknown is what values.yaml does not have.
python3 -B - charts/spokeshave <<'KNOWN'
import json, re, sys
values = open(f"{sys.argv[1]}/values.yaml", encoding="utf-8").read()
notes = open(f"{sys.argv[1]}/templates/_ignored.tpl", encoding="utf-8").read()
settings = values.split("\nsettings:\n", 1)[1].split("\n\n", 1)[0]
gates = settings.split("  featureGates:\n", 1)[1]
quoted = lambda text: set(re.findall(r'"(\w+)"', text))
lists = [quoted(found) for found in re.findall(r"\$known :?= list (.*?) -\}\}", notes)] + [quoted(re.search(r"has \$key \(list (.*?)\)", notes)[1])]
keys = [set(re.findall(pattern, text, re.M)) for pattern, text in ((r"^(\w+):", values), (r"^  (\w+):", settings), (r"^    (\w+):", gates))]
if len(lists) != 3 or not all(keys):
    sys.exit("_ignored.tpl or values.yaml is not written as it was")
# Helm itself makes `global`.
wrong = [sorted(known - {"global"} ^ there) for known, there in zip(lists, keys)]
if any(wrong):
    sys.exit(f"_ignored.tpl and values.yaml differ in {wrong}")

# Of every object in which the schema lets other keys stand.
def below(path, text):
    for depth, name in enumerate(path):
        text = re.search(rf"(?m)^{'  ' * depth}{name}:\n((?:(?:{'  ' * (depth + 1)}.*)?\n)*)", text)[1]
    return set(re.findall(rf"(?m)^{'  ' * len(path)}(\w+):", text))

def opened(path, schema):
    for name, one in schema.get("properties", {}).items():
        if one.get("additionalProperties") is True:
            yield ".".join([*path, name])
        yield from opened([*path, name], one)

named = {path: quoted(keys) for path, keys in re.findall(r'(?m)^  "([\w.]+)" \(list (.*)\)$', notes)}
wanted = set(opened([], json.load(open(f"{sys.argv[1]}/values.schema.json", encoding="utf-8")))) - {"settings", "settings.featureGates"}
if wanted - set(named) or len(wanted) < 5:
    sys.exit(f"the schema lets other keys stand in {sorted(wanted - set(named))}, and _ignored.tpl does not look there")
wrong = {path: sorted(keys ^ below(path.split("."), values)) for path, keys in named.items() if keys != below(path.split("."), values)}
if wrong:
    sys.exit(f"_ignored.tpl and values.yaml differ in {wrong}")
KNOWN

# ignored VALUES…: what the notes say of values without effect; `helm template` renders no notes.
cp -R charts/spokeshave "$copy/chart"
printf 'notes: |2\n{{- include "spokeshave.ignored" . | nindent 2 }}\n' >"$copy/chart/templates/ignored.yaml"
ignored() {
    "$HELM" template spokeshave "$copy/chart" "${pretended[@]}" --show-only templates/ignored.yaml "$@"
}
ignored --values "$folder/values/whole-karpenter.yaml" >"$rendered"
grep -q "settings.eksControlPlane: " "$rendered" || { echo "the notes do not name a value of Karpenter's chart that has no effect" >&2; exit 1; }
if grep -q "VALUES\|no chart knows" "$rendered"; then
    echo "the notes take the first line of \`helm get values\` for a value, or call one of Karpenter's unknown:" >&2
    cat "$rendered" >&2
    exit 1
fi
ignored --values "$folder/values/defaults.yaml" --set unheardOf=1 >"$rendered"
grep -q "unheardOf: no chart knows" "$rendered" || { echo "the notes do not name an unknown value" >&2; exit 1; }
unknown=(controller.resource.limits.cpu=1 controller.image.pullPolicy=Always serviceMonitor.interval=30s podDisruptionBudget.minAvailable=1 service.type=LoadBalancer serviceAccount.labels.team=a)
ignored --values "$folder/values/defaults.yaml" "${unknown[@]/#/--set=}" --set=controller.logLevel=debug,settings.tags.team=a >"$rendered"
for named in "controller.resource: no" "controller.image.pullPolicy: no" "serviceMonitor.interval: no" "podDisruptionBudget.minAvailable: no" "service.type: no" "serviceAccount.labels: no" \
    "controller.logLevel: use logLevel" "settings.tags: use azure.additionalTags"; do
    grep -q "^ *$named" "$rendered" || { echo "the notes do not say \"$named…\":" >&2; cat "$rendered" >&2; exit 1; }
done
# Rules without a scrape tell of a leader that is missing.
mv "$copy/chart/templates/NOTES.txt" "$copy/chart/"
printf 'notes: |2\n{{- tpl (.Files.Get "NOTES.txt") . | nindent 2 }}\n' >"$copy/chart/templates/notes.yaml"
for sets in "1 prometheusRule.enabled=true" "0 prometheusRule.enabled=true,serviceMonitor.enabled=true" "0 prometheusRule.enabled=true,shadow=true" "0 shadow=false"; do
    "$HELM" template spokeshave "$copy/chart" "${pretended[@]}" --show-only templates/notes.yaml --values "$folder/values/defaults.yaml" --set "${sets#* }" >"$rendered"
    if [ "$(grep -c "SpokeshaveNoLeader tells" "$rendered")" != "${sets% *}" ]; then
        echo "${sets#* }: the notes say of the scrape:" >&2
        cat "$rendered" >&2
        exit 1
    fi
done

# What other Deployments in the cluster lead with, by image and words; only a cluster could be asked for them, so that they are values here.
cat >"$copy/chart/templates/leaders.yaml" <<'LEADERS'
leases:
{{- range .Values.deployments }}
- case: {{ .case | squote }}
{{- range include "spokeshave.leaders" .deployment | fromYamlArray }}
  lease: {{ include "spokeshave.leaseOf" (dict "container" . "namespace" .namespace) | quote }}
{{- end }}
{{- end }}
LEADERS
echo "deployments:" >"$copy/deployments.yaml"
echo "leases:" >"$copy/leases.yaml"
# leads LEASE IMAGE WORDS [ENVIRONMENT]: a Deployment there with this container waits for this Lease, for none ("") or does not lead (-); words and environment
# are lists in JSON.
leads() {
    local containers='{"containers": [{"name": "c", "image": "%s", "args": %s, "env": %s}]}'
    local deployment='{"metadata": {"name": "other", "namespace": "there"}, "spec": {"template": {"spec": '"$containers"'}}}'
    printf -- "- case: '%s'\n  deployment: $deployment\n" "$2 $3 ${4:-}" "$2" "$3" "${4:-[]}" >>"$copy/deployments.yaml"
    printf -- "- case: '%s'\n" "$2 $3 ${4:-}" >>"$copy/leases.yaml"
    [ "$1" = - ] || printf '  lease: "%s"\n' "$1" >>"$copy/leases.yaml"
}
ours=registry.example.com:5000/tools/spokeshave
theirs=public.ecr.aws/karpenter/controller
for image in spokeshave "$ours" "$ours:v1" "$ours@sha256:00" "$ours:v1@sha256:00"; do
    leads there/karpenter-leader-election "$image" '["operator"]'
done
# An image that only ends like ours is none of ours, and says nothing of what it does.
for image in myspokeshave example.com/myspokeshave:v1 example.com/my-spokeshave example.com/spokeshave/other; do
    leads - "$image" '["operator"]'
done
leads there/karpenter-leader-election example.com/myspokeshave '["operator"]' '[{"name": "KARPENTER_SERVICE", "value": "karpenter"}]'
for image in "$ours" "$theirs"; do
    leads there/one "$image" '["operator", "--leader-election-name=one"]'
    leads there/one "$image" '["operator", "-leader-election-name", "one"]'
    leads here/one "$image" '["operator", "--leader-election-namespace", "here", "--leader-election-name", "one"]'
    leads here/karpenter-leader-election "$image" '["operator", "--leader-election-namespace=here", "--leader-election-name="]'
    leads there/two "$image" '["operator", "--leader-election-name=one", "--leader-election-name", "two"]'
    # A value is no flag, and a flag counts before its variable.
    leads there/--disable-leader-election "$image" '["operator", "--leader-election-name", "--disable-leader-election"]'
    leads here/one "$image" '["operator", "--leader-election-name=one"]' \
        '[{"name": "LEADER_ELECTION_NAME", "value": "two"}, {"name": "LEADER_ELECTION_NAMESPACE", "value": "here"}]'
    leads "" "$image" '["operator", "--leader-election-name=one", "--disable-leader-election"]'
    leads there/karpenter-leader-election "$image" '["operator", "--leader-election-named=one"]'
done
"$HELM" template spokeshave "$copy/chart" "${pretended[@]}" --show-only templates/leaders.yaml \
    --values "$folder/values/defaults.yaml" --values "$copy/deployments.yaml" |
    grep -v '^---$\|^#' >"$rendered"
diff -u "$copy/leases.yaml" "$rendered" || { echo "other operators are not known by what they are started with" >&2; exit 1; }

# The recommended values are those that are rendered above.
diff <(grep -v '^#' charts/spokeshave/recommended.yaml) <(grep -v '^#\|^controller:' "$folder/values/recommended.yaml")

# refused WORDS ARGUMENT…: these values are refused with these words.
refusals=0
refused() {
    local words=$1 said
    shift
    if said=$(render --values "$folder/values/defaults.yaml" "$@" 2>&1); then
        echo "accepted: $*" >&2
        exit 1
    fi
    grep -qF -- "$words" <<<"$said" || {
        echo "$*: expected $words, and it says: $said" >&2
        exit 1
    }
    refusals=$((refusals + 1))
}
refused "controller.image.repository" --set controller.image.repository=
refused "controller.image.repository" --set controller.image.repository=public.ecr.aws/karpenter/controller
refused "cloudProvider" --set cloudProvider=gcp
# A values file of Karpenter's chart for AWS, which says nothing of the provider.
refused "settings.clusterName is \"c\", and cloudProvider is kwok, whose nodes have no machines: set cloudProvider=aws" --set settings.clusterName=c
refused "settings.interruptionQueue is \"q\", and cloudProvider is kwok" --set settings.interruptionQueue=q
refused "settings.clusterName is \"old\", and cloudProvider is kwok" --values "$folder/values/old-karpenter.yaml" --set cloudProvider=kwok
refused "settings.clusterName: needed with cloudProvider=aws (or CLUSTER_NAME in controller.env)" --set cloudProvider=aws
for set in settings.clusterName=c 'controller.env[0].name=CLUSTER_NAME,controller.env[0].value=c' 'controller.envFrom[0].configMapRef.name=cluster'; do
    render --values "$folder/values/defaults.yaml" --set "cloudProvider=aws,$set" >/dev/null
done
refused "azure.subscriptionID: needed" --set cloudProvider=azure
refused "settings.clusterEndpoint: needed" --values "$folder/values/azure.yaml" --set settings.clusterEndpoint=
refused "networkPlugin" --set azure.networkPlugin=kubenet
# The operator takes it for true, and the ClusterRole would not.
refused "nominatePods" --set-string settings.nominatePods=True
refused "azure.machinesPoolName: needed" --values "$folder/values/azure-machines.yaml" --set azure.machinesPoolName=
refused "azure.clusterResourceGroup: needed" --values "$folder/values/azure.yaml" --set azure.manageExistingMachines=true,azure.machinesPoolName=m
refused "provisionMode" --set azure.provisionMode=bootstrappingclient
# The mode of machines, and whether those of AKS stay managed, count wherever they are said.
env() { printf 'controller.env[%s].name=%s,controller.env[%s].value=%s' "$1" "$2" "$1" "$3"; }
by_env=(--values "$folder/values/azure.yaml" --set azure.sshPublicKey= --set azure.bootstrapTemplate= --set "$(env 0 PROVISION_MODE aksmachineapi)")
refused "azure.machinesPoolName: needed" "${by_env[@]}"
refused "azure.clusterResourceGroup: needed" "${by_env[@]}" --set azure.machinesPoolName=m
refused "azure.bootstrapTemplate: needed" --values "$folder/values/azure-machines.yaml" --set azure.sshPublicKey=k --set "$(env 0 PROVISION_MODE aksscriptless)"
refused "azure.machinesPoolName: needed" --values "$folder/values/azure.yaml" --set "$(env 0 MANAGE_EXISTING_AKS_MACHINES true)"
refused "PROVISION_MODE is \"bootstrappingclient\"" --values "$folder/values/azure.yaml" --set "$(env 0 PROVISION_MODE bootstrappingclient)"
render "${by_env[@]}" --set azure.machinesPoolName=m,azure.clusterResourceGroup=g >"$rendered"
[ "$(grep -c 'name: PROVISION_MODE' "$rendered")" = 1 ] || { echo "PROVISION_MODE of controller.env stands once" >&2; exit 1; }
# What only says the operator's default does not hide what controller.envFrom says.
render --values "$folder/values/azure.yaml" --set 'controller.envFrom[0].configMapRef.name=azure' >"$rendered"
if grep -q 'name: \(PROVISION_MODE\|LINUX_ADMIN_USERNAME\|NETWORK_PLUGIN_MODE\)' "$rendered"; then echo "defaults hide controller.envFrom" >&2; exit 1; fi
# Where nobody is elected, no alert says so: a shadow, and a single replica without a Lease.
for set in shadow=true "$(env 0 DISABLE_LEADER_ELECTION true)" "$(env 0 DISABLE_LEADER_ELECTION t)"; do
    render --values "$folder/values/defaults.yaml" --set "prometheusRule.enabled=true,replicas=1,$set" --show-only templates/prometheusrule.yaml >"$rendered"
    if grep -q -- "- alert: SpokeshaveNoLeader" "$rendered" || ! [ "$(grep -c -- '- alert: ' "$rendered")" = "$(($(grep -c -- '- alert: ' charts/spokeshave/rules/alerts.yaml) - 1))" ]; then
        echo "$set: of the alerts, only SpokeshaveNoLeader is left out" >&2
        exit 1
    fi
done
# Without a Lease two lead: at every moment, and while one is replaced by the next.
unelected=$(env 0 DISABLE_LEADER_ELECTION true)
refused "replicas is 2, and DISABLE_LEADER_ELECTION is set in controller.env" --set "$unelected"
for set in "$unelected" "$unelected,strategy.type=RollingUpdate" "$unelected,strategy=null"; do
    render --values "$folder/values/defaults.yaml" --set "replicas=1,$set" --show-only templates/deployment.yaml >"$rendered"
    if [ "$(grep -A1 "^  strategy:$" "$rendered")" != $'  strategy:\n    type: Recreate' ] || grep -q rollingUpdate "$rendered"; then
        echo "$set: the next operator does not wait for the end of this one" >&2
        exit 1
    fi
done
for set in replicas=3 "shadow=true,$unelected" "$(env 0 DISABLE_LEADER_ELECTION false)"; do
    render --values "$folder/values/defaults.yaml" --set "$set" --show-only templates/deployment.yaml >"$rendered"
    if grep -q Recreate "$rendered"; then echo "$set: who waits for the Lease need not wait for the end" >&2; exit 1; fi
done
# The operator reads tags as a list with commas.
refused "azure.additionalTags: the tag \"owner\", whose value is \"a,b=c\"" --values "$folder/values/azure.yaml" --set 'azure.additionalTags.owner=a\,b=c'
refused "azure.additionalTags: the tag \"a,b\"" --values "$folder/values/azure.yaml" --set 'azure.additionalTags.a\,b=c'
refused "azure.additionalTags: the tag \"a=b\"" --values "$folder/values/azure.yaml" --set-json 'azure.additionalTags={"a=b": "c"}'
render --values "$folder/values/azure.yaml" --set 'azure.additionalTags.owner=a=b' >"$rendered"
grep -q 'value: "owner=a=b,team=platform"' "$rendered" || { echo "a value of a tag may have an equals sign" >&2; exit 1; }
refused "provider.nodeClasses: needed" --set cloudProvider=grpc
refused "provider.certificatesSecret: needed" --values "$folder/values/provider.yaml" --set provider.address=host:7443
refused "provider.socket: needed" --values "$folder/values/provider.yaml" --set provider.socket=
refused "address" --values "$folder/values/provider.yaml" --set provider.address=host
refused "replicas" --set replicas=two
refused "preferencePolicy" --set settings.preferencePolicy=Never
refused "logLevel" --set logLevel=trace
refused "nodeRepair" --set settings.featureGates.nodeRepair=maybe
refused "port" --set controller.metrics.port=0
refused "a shadow changes nothing" --set shadow=true --set simulateKubelets=true
refused "digest" --set controller.image.digest=latest

# What Karpenter's chart takes for nothing is nothing here, too.
render --values "$folder/values/defaults.yaml" --set controller.securityContext=null --set settings.preferencePolicy= --set settings.minValuesPolicy= >"$rendered"
if grep -q "PREFERENCE_POLICY\|MIN_VALUES_POLICY" "$rendered"; then echo "an empty policy is no policy" >&2; exit 1; fi
# A key without a value is there without one: `additionalLabels:`, and below it only lines that are commented out, as in Karpenter's own file.
for values in aws azure; do
    set=(--values "$folder/values/$values.yaml" --set "controller.sidecarContainer[0].name=proxy,controller.sidecarContainer[0].image=registry.example/proxy")
    render "${set[@]}" >"$copy/as-by-default"
    for null in additionalLabels additionalAnnotations podLabels podAnnotations extraVolumes controller.containerName controller.extraVolumeMounts controller.sidecarVolumeMounts; do
        render "${set[@]}" --set "$null=null" >"$rendered"
        diff -u "$copy/as-by-default" "$rendered" || { echo "$values: $null without a value is not what it is by default" >&2; exit 1; }
    done
done
# A text keeps its indentation, also that of its first line.
text=$'  apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n'
printf '%s' "$text" >"$copy/text"
render --values "$folder/values/azure.yaml" --set-file azure.bootstrapTemplate="$copy/text" --set-file settings.schedulerConfig="$copy/text" --set-file settings.instanceTypes="$copy/text" --show-only templates/configmap.yaml >"$rendered"
[ "$(grep -c '^      apiVersion: ' "$rendered")" = 3 ] && [ "$(grep -c '^    kind: KubeSchedulerConfiguration' "$rendered")" = 3 ] || {
    echo "a text whose first line is indented is not kept as it is" >&2
    exit 1
}

render --values "$folder/values/defaults.yaml" --set dashboards.enabled=true --show-only templates/dashboards.yaml >"$rendered"
python3 -B "$folder/boards_check.py"
boards=0
for board in charts/spokeshave/dashboards/*.json; do
    grep -qF "  $(basename "$board"): |" "$rendered" || { echo "$board is in no ConfigMap" >&2; exit 1; }
    boards=$((boards + 1))
done
echo "charts, by Helm $version: $(ls "$folder/values" | wc -l) sets of values as expected, $refusals refused, $boards boards"
