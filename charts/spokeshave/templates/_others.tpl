{{/*
Another operator in another namespace: both would lead, and neither knows of the other's launches. A shadow that an upgrade makes the operator is looked at like an
install. What only looks on counts as no other, nor do other programs of our image. Only a cluster can say; `helm template`, and with it Argo CD, sees none.
*/}}
{{- define "spokeshave.refuseAnother" -}}
{{- if and (not .Values.shadow) (not .Values.ignoreOtherOperators) -}}
{{- $namespace := .Release.Namespace -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $name := dig "labels" "app.kubernetes.io/name" "" .metadata -}}
{{- $container := first (default (list (dict)) .spec.template.spec.containers) -}}
{{- $image := dig "image" "" $container -}}
{{- $words := concat (default (list) $container.command) (default (list) $container.args) -}}
{{- $karpenters := or (eq $name "karpenter") (regexMatch "karpenter/controller(:|@|$)" $image) -}}
{{- $ours := and (has "operator" $words) (or (eq $name "spokeshave") (regexMatch "spokeshave(:|@|$)" $image)) -}}
{{- if and (or $karpenters $ours) (not (has "--shadow" $words)) (ne .metadata.namespace $namespace) (gt (int (default 0 .spec.replicas)) 0) -}}
{{- fail (printf "Deployment %s/%s runs an operator in this cluster: from another namespace both would lead and act on the same nodes. Scale it to 0, or install into its namespace, or look on with shadow=true (docs/migrate.md); ignoreOtherOperators=true where it has other NodeClasses" .metadata.namespace .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
