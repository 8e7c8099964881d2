{{/* Another operator in another namespace: both would lead, and neither knows of the other's launches. Only a cluster can say; `helm template` sees none. */}}
{{- define "spokeshave.refuseAnother" -}}
{{- if and .Release.IsInstall (not .Values.shadow) (not .Values.ignoreOtherOperators) -}}
{{- $namespace := .Release.Namespace -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $name := dig "labels" "app.kubernetes.io/name" "" .metadata -}}
{{- $image := dig "image" "" (first (default (list (dict)) .spec.template.spec.containers)) -}}
{{- $runs := or (has $name (list "karpenter" "spokeshave")) (regexMatch "(karpenter/controller|spokeshave)(:|@|$)" $image) -}}
{{- if and $runs (ne .metadata.namespace $namespace) (gt (int (default 0 .spec.replicas)) 0) -}}
{{- fail (printf "Deployment %s/%s runs an operator in this cluster: from another namespace both would lead and act on the same nodes. Scale it to 0, or install into its namespace, or look on with shadow=true (docs/migrate.md); ignoreOtherOperators=true where it has other NodeClasses" .metadata.namespace .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
