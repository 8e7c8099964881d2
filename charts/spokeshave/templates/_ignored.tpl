{{/*
What was asked for and has no counterpart here, a line each: values of Karpenter's chart for AWS and of its older versions, values that no chart knows, and
what depends on kinds that the cluster does not have. e2e/charts/check.sh compares the lists with values.yaml.
*/}}
{{- define "spokeshave.ignored" -}}
{{- $known := list "nameOverride" "fullnameOverride" "additionalLabels" "additionalAnnotations" "cloudProvider" "shadow" "ignoreOtherOperators" "simulateKubelets" "imagePullPolicy" "imagePullSecrets" "service" "serviceAccount" "additionalClusterRoleRules" "serviceMonitor" "prometheusRule" "dashboards" "disruptionPolicies" "networkPolicy" "replicas" "revisionHistoryLimit" "strategy" "podLabels" "podAnnotations" "podDisruptionBudget" "podSecurityContext" "priorityClassName" "terminationGracePeriodSeconds" "hostNetwork" "schedulerName" "dnsPolicy" "dnsConfig" "initContainers" "nodeSelector" "affinity" "topologySpreadConstraints" "tolerations" "extraVolumes" "controller" "azure" "provider" "logLevel" "logFormat" "logOutputPaths" "settings" "global" -}}
{{- $reasons := dict
  "webhook" "there is no webhook, as in Karpenter since 1.1"
  "logConfig" "use logLevel and logOutputPaths, as in Karpenter since 1.0"
  "logEncoding" "use logFormat"
  "logErrorOutputPaths" "errors go where the log goes; use logOutputPaths"
-}}
{{- range $key, $value := .Values }}
{{- if and (eq $key "logErrorOutputPaths") (eq (join "," $value) "stderr") }}
{{- /* The first line of what `helm get values` prints without -o yaml. */}}
{{- else if regexMatch "^(USER-SUPPLIED|COMPUTED) VALUES$" $key }}
{{- else if not (has $key $known) }}
  {{ $key }}: {{ default "no chart knows this value; see `helm show values`" (get $reasons $key) }}
{{- end }}
{{- end }}
{{- /* Objects in which values.schema.json lets other keys stand. */ -}}
{{- $keys := dict
  "controller" (list "containerName" "image" "env" "envFrom" "securityContext" "resources" "extraVolumeMounts" "sidecarContainer" "sidecarVolumeMounts" "metrics" "healthProbe")
  "controller.healthProbe" (list "port")
  "controller.image" (list "repository" "tag" "digest")
  "controller.metrics" (list "port")
  "controller.securityContext" (list "appArmorProfile" "seLinuxOptions" "seccompProfile")
  "podDisruptionBudget" (list "name" "maxUnavailable")
  "service" (list "annotations")
  "serviceAccount" (list "create" "name" "annotations")
  "serviceMonitor" (list "enabled" "additionalLabels" "relabelings" "metricRelabelings" "endpointConfig" "sampleLimit")
-}}
{{- $reasons = dict
  "controller.errorOutputPaths" "errors go where the log goes; use logOutputPaths"
  "controller.logEncoding" "use logFormat"
  "controller.logLevel" "use logLevel"
  "controller.outputPaths" "use logOutputPaths"
-}}
{{- range $object, $known := $keys }}
{{- $there := $.Values }}
{{- range splitList "." $object }}{{ $there = default (dict) (get $there .) }}{{ end }}
{{- range $key, $_ := $there }}
{{- if not (has $key $known) }}
  {{ $object }}.{{ $key }}: {{ default "no chart knows this value; see `helm show values`" (get $reasons (printf "%s.%s" $object $key)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $reasons = dict
  "assumeRoleARN" "use a profile or the role of the service account" "assumeRoleDuration" "use a profile or the role of the service account"
  "eksControlPlane" "EKS is asked for details of the cluster in any case"
  "tags" "use azure.additionalTags, and at AWS spec.tags of EC2NodeClasses"
  "awsFeatureGates" "its gate NodeClassCEL is not supported: expressions in spec.kubelet are not evaluated"
-}}
{{- $known = list "batchMaxDuration" "batchIdleDuration" "preferencePolicy" "minValuesPolicy" "ignoreDRARequests" "disableClusterStateObservability" "schedulerConfig" "instanceTypes" "consolidationReplacements" "nominatePods" "evictionQPS" "evictionBurst" "kubeClientQPS" "kubeClientBurst" "featureGates" "clusterName" "clusterEndpoint" "clusterCABundle" "clusterDNSIP" "isolatedVPC" "vmMemoryOverheadPercent" "interruptionQueue" "reservedENIs" "disableDryRun" "enableZonalShift" "amiRefreshInterval" "subnetRefreshInterval" -}}
{{- range $key, $_ := .Values.settings }}
{{- if not (has $key $known) }}
  settings.{{ $key }}: {{ default "no chart knows this setting; see `helm show values`" (get $reasons $key) }}
{{- end }}
{{- end }}
{{- range $key, $_ := .Values.settings.featureGates }}
{{- if eq $key "drift" }}
  settings.featureGates.drift: drift is always looked for, as in Karpenter since 1.0
{{- else if not (has $key (list "nodeRepair" "nodeOverlay" "reservedCapacity" "spotToSpotConsolidation" "staticCapacity" "capacityBuffer")) }}
  settings.featureGates.{{ $key }}: there is no such gate
{{- end }}
{{- end }}
{{- $budget := include "spokeshave.budgetName" . }}
{{- if ne $budget (default $budget .Values.podDisruptionBudget.name) }}
  podDisruptionBudget.name: {{ .Values.podDisruptionBudget.name }} is another release's; the PodDisruptionBudget is {{ $budget }}
{{- end }}
{{- if not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}
{{- range $key := list "serviceMonitor" "prometheusRule" }}
{{- if (get $.Values $key).enabled }}
  {{ $key }}: the cluster has no kinds of monitoring.coreos.com/v1 (the Prometheus operator)
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
