{{/* The name of the application, as labels have it. */}}
{{- define "spokeshave.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of what is created. */}}
{{- define "spokeshave.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "spokeshave.selectorLabels" -}}
app.kubernetes.io/name: {{ include "spokeshave.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Name, labels and annotations of an object: a dictionary with root, and perhaps suffix, labels and annotations. */}}
{{- define "spokeshave.metadata" -}}
{{- $root := .root -}}
name: {{ include "spokeshave.fullname" $root }}{{ with .suffix }}-{{ . }}{{ end }}
{{- if not .cluster }}
namespace: {{ default $root.Release.Namespace .namespace }}
{{- end }}
labels:
  helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
  {{- include "spokeshave.selectorLabels" $root | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  {{- with merge (dict) (default (dict) .labels) (default (dict) $root.Values.additionalLabels) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default (dict) .annotations) (default (dict) $root.Values.additionalAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The name of the budget. Karpenter's chart has one default for all releases: where that is another release's, ours is named as everything else. */}}
{{- define "spokeshave.budgetName" -}}
{{- $full := include "spokeshave.fullname" . -}}
{{- $name := default $full .Values.podDisruptionBudget.name -}}
{{- $there := lookup "policy/v1" "PodDisruptionBudget" .Release.Namespace $name -}}
{{- $isOurs := eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" (default (dict) $there)) .Release.Name -}}
{{- ternary $name $full (or (empty $there) $isOurs) -}}
{{- end -}}

{{/* What the provider cannot start without, from settings or from controller.env: a dictionary with root and settings, a variable by each setting. */}}
{{- define "spokeshave.refuseWithout" -}}
{{- $values := .root.Values -}}
{{- $given := list -}}
{{- range $values.controller.env -}}{{- $given = append $given .name -}}{{- end -}}
{{- range $setting, $variable := .settings -}}
{{- if and (empty (get $values.settings $setting)) (not (has $variable $given)) (empty $values.controller.envFrom) -}}
{{- fail (printf "settings.%s: needed with cloudProvider=%s (or %s in controller.env)" $setting $values.cloudProvider $variable) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "spokeshave.containerName" -}}
{{- default "controller" .Values.controller.containerName -}}
{{- end -}}

{{- define "spokeshave.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "spokeshave.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The Lease by which a leader is elected, as NAMESPACE/NAME; nothing where none is: a shadow leads nowhere, and a single replica may do without. */}}
{{- define "spokeshave.lease" -}}
{{- if not .Values.shadow -}}
{{- include "spokeshave.leaseOf" (dict "container" .Values.controller "namespace" .Release.Namespace) -}}
{{- end -}}
{{- end -}}

{{/* "true" where the operator leads without a Lease: whoever runs beside it leads as well. */}}
{{- define "spokeshave.leadsUnelected" -}}
{{- if and (not .Values.shadow) (empty (include "spokeshave.lease" .)) -}}true{{- end -}}
{{- end -}}

{{/* Binds a Role to the operator: a dictionary with root, and perhaps suffix and namespace, as the metadata of both have them. */}}
{{- define "spokeshave.roleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "spokeshave.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "spokeshave.fullname" .root }}{{ with .suffix }}-{{ . }}{{ end }}
subjects:
  - kind: ServiceAccount
    name: {{ include "spokeshave.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* The image. A values file made for Karpenter's chart may name Karpenter's image, which is another program. */}}
{{- define "spokeshave.image" -}}
{{- $image := .Values.controller.image -}}
{{- if or (not $image.repository) (regexMatch "karpenter/(controller|karpenter)$" $image.repository) -}}
{{- fail (printf "controller.image.repository is %q; expected the repository of an image of Spokeshave: none is published yet, so build one with `just release` (an OCI layout in target/dist) and push it to a registry of yours" (toString $image.repository)) -}}
{{- end -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* Feature gates as the operator reads them. A gate without a value keeps its default (Karpenter's chart renders it empty, which ends the start). */}}
{{- define "spokeshave.featureGates" -}}
{{- $known := dict "nodeRepair" "NodeRepair" "nodeOverlay" "NodeOverlay" "reservedCapacity" "ReservedCapacity" "spotToSpotConsolidation" "SpotToSpotConsolidation" "staticCapacity" "StaticCapacity" "capacityBuffer" "CapacityBuffer" -}}
{{- $gates := list -}}
{{- range $key, $value := default (dict) .Values.settings.featureGates -}}
{{- if and (hasKey $known $key) (ne (toString (default "" (toString $value))) "") (not (kindIs "invalid" $value)) -}}
{{- $gates = append $gates (printf "%s=%s" (get $known $key) (toString $value)) -}}
{{- end -}}
{{- end -}}
{{- join "," $gates -}}
{{- end -}}

{{/* "true" where a gate is on. */}}
{{- define "spokeshave.gate" -}}
{{- $gates := default (dict) .root.Values.settings.featureGates -}}
{{- if eq (toString (get $gates .gate)) "true" -}}true{{- end -}}
{{- end -}}

{{/* A list of affinity terms or spread constraints, each with the selector of these pods where it has none. */}}
{{- define "spokeshave.withSelector" -}}
{{- $root := .root -}}
{{- $terms := list -}}
{{- range .terms -}}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "spokeshave.selectorLabels" $root | fromYaml)) -}}
{{- if hasKey . "podAffinityTerm" -}}
{{- $terms = append $terms (merge (dict "podAffinityTerm" (ternary .podAffinityTerm (merge (deepCopy .podAffinityTerm) $selector) (hasKey .podAffinityTerm "labelSelector"))) .) -}}
{{- else -}}
{{- $terms = append $terms (ternary . (merge (deepCopy .) $selector) (hasKey . "labelSelector")) -}}
{{- end -}}
{{- end -}}
{{- toYaml $terms -}}
{{- end -}}

{{- define "spokeshave.affinity" -}}
{{- $root := . -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- range $kind := list "podAffinity" "podAntiAffinity" -}}
{{- range $when, $terms := default (dict) (get $affinity $kind) -}}
{{- $_ := set (get $affinity $kind) $when (include "spokeshave.withSelector" (dict "root" $root "terms" $terms) | fromYamlArray) -}}
{{- end -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* Settings as environment variables: where a value is nothing, the operator's default holds. */}}
{{- define "spokeshave.environment" -}}
{{- $root := . -}}
{{- $settings := .Values.settings -}}
{{- $names := list
  (list "BATCH_MAX_DURATION" $settings.batchMaxDuration)
  (list "BATCH_IDLE_DURATION" $settings.batchIdleDuration)
  (list "PREFERENCE_POLICY" $settings.preferencePolicy)
  (list "MIN_VALUES_POLICY" $settings.minValuesPolicy)
  (list "IGNORE_DRA_REQUESTS" $settings.ignoreDRARequests)
  (list "DISABLE_CLUSTER_STATE_OBSERVABILITY" $settings.disableClusterStateObservability)
  (list "CONSOLIDATION_REPLACEMENTS" $settings.consolidationReplacements)
  (list "NOMINATE_PODS" $settings.nominatePods)
  (list "EVICTION_QPS" $settings.evictionQPS)
  (list "EVICTION_BURST" $settings.evictionBurst)
  (list "KUBE_CLIENT_QPS" $settings.kubeClientQPS)
  (list "KUBE_CLIENT_BURST" $settings.kubeClientBurst)
  (list "CLUSTER_NAME" $settings.clusterName)
  (list "CLUSTER_ENDPOINT" $settings.clusterEndpoint)
  (list "CLUSTER_CA_BUNDLE" $settings.clusterCABundle)
  (list "CLUSTER_DNS_IP" $settings.clusterDNSIP)
  (list "ISOLATED_VPC" $settings.isolatedVPC)
  (list "VM_MEMORY_OVERHEAD_PERCENT" (ternary "" (toString $settings.vmMemoryOverheadPercent) (kindIs "invalid" $settings.vmMemoryOverheadPercent)))
  (list "INTERRUPTION_QUEUE" $settings.interruptionQueue)
  (list "RESERVED_ENIS" $settings.reservedENIs)
  (list "DISABLE_DRY_RUN" $settings.disableDryRun)
  (list "ENABLE_ZONAL_SHIFT" $settings.enableZonalShift)
  (list "AMI_REFRESH_INTERVAL" $settings.amiRefreshInterval)
  (list "SUBNET_REFRESH_INTERVAL" $settings.subnetRefreshInterval)
  (list "LOG_LEVEL" .Values.logLevel)
  (list "LOG_FORMAT" .Values.logFormat)
  (list "LOG_OUTPUT_PATHS" (join "," .Values.logOutputPaths))
  (list "METRICS_PORT" .Values.controller.metrics.port)
  (list "HEALTH_PROBE_PORT" .Values.controller.healthProbe.port)
  (list "FEATURE_GATES" (include "spokeshave.featureGates" .))
  (list "SCHEDULER_CONFIG" (ternary "/etc/spokeshave/scheduler-config.yaml" "" (not (empty $settings.schedulerConfig))))
  (list "INSTANCE_TYPES_FILE_PATH" (ternary "/etc/spokeshave/instance-types.json" "" (not (empty $settings.instanceTypes))))
-}}
{{- range $names }}
{{- $value := index . 1 }}
{{- if not (kindIs "invalid" $value) }}
{{- $text := ternary (toString (int64 $value)) (tpl (toString $value) $root) (kindIs "float64" $value) }}
{{- if ne $text "" }}
- name: {{ index . 0 }}
  value: {{ $text | quote }}
{{- end }}
{{- end }}
{{- end }}
- name: CPU_REQUESTS
  valueFrom:
    resourceFieldRef:
      containerName: {{ include "spokeshave.containerName" . }}
      divisor: 1m
      resource: requests.cpu
{{- if eq .Values.cloudProvider "aws" }}
{{- include "spokeshave.refuseWithout" (dict "root" . "settings" (dict "clusterName" "CLUSTER_NAME")) }}
{{- else if eq .Values.cloudProvider "azure" }}
{{ include "spokeshave.azureEnvironment" . | trim }}
{{- end }}
{{- with .Values.controller.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* "true" where files are mounted from the ConfigMap. */}}
{{- define "spokeshave.hasFiles" -}}
{{- if or .Values.settings.schedulerConfig .Values.settings.instanceTypes (and (eq .Values.cloudProvider "azure") (or .Values.azure.bootstrapTemplate .Values.azure.environment)) -}}true{{- end -}}
{{- end -}}

{{/* Rules by the name of their template; of a shadow only what reads. */}}
{{- define "spokeshave.rules" -}}
{{- $rules := include .name .root -}}
{{- if .root.Values.shadow -}}
{{- $kept := list -}}
{{- range $rule := fromYamlArray $rules -}}
{{- $reads := list -}}
{{- range $verb := $rule.verbs -}}
{{- if has $verb (list "get" "list" "watch") -}}{{- $reads = append $reads $verb -}}{{- end -}}
{{- end -}}
{{- if $reads -}}{{- $kept = append $kept (set $rule "verbs" $reads) -}}{{- end -}}
{{- end -}}
{{- toYaml $kept | nindent 2 -}}
{{- else -}}
{{- $rules -}}
{{- end -}}
{{- end -}}
