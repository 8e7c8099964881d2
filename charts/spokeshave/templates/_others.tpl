{{/*
Another operator that would lead beside this one: in another namespace, or in this one without the Lease that both would wait for. Neither knows of the other's launches.
A shadow that an upgrade makes the operator is looked at like an install. What only looks on counts as no other, nor do other programs of our image. Karpenter is known
as `adopt` knows it: by the label of its chart, by an image of any registry, or by a variable that its chart has always set. Only a cluster can say; `helm template`, and
with it Argo CD, sees none.
*/}}
{{- define "spokeshave.refuseAnother" -}}
{{- if and (not .Values.shadow) (not .Values.ignoreOtherOperators) -}}
{{- $lease := include "spokeshave.leaseOf" (dict "container" .Values.controller "namespace" .Release.Namespace) -}}
{{- $fullname := include "spokeshave.fullname" . -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $annotations := default (dict) .metadata.annotations -}}
{{- $isOfRelease := and (eq (toString (get $annotations "meta.helm.sh/release-name")) $.Release.Name) (eq (toString (get $annotations "meta.helm.sh/release-namespace")) $.Release.Namespace) -}}
{{- $isSame := and (eq .metadata.namespace $.Release.Namespace) (eq .metadata.name $fullname) -}}
{{- if and (gt (int (default 0 .spec.replicas)) 0) (not $isOfRelease) (not $isSame) -}}
{{- range $container := include "spokeshave.leaders" . | fromYamlArray -}}
{{- $theirs := include "spokeshave.leaseOf" (dict "container" $container "namespace" $container.namespace) -}}
{{- $runs := printf "Deployment %s/%s runs an operator in this cluster" $container.namespace $container.deployment -}}
{{- if ne $container.namespace $.Release.Namespace -}}
{{- fail (printf "%s: from another namespace both would lead and act on the same nodes. Scale it to 0, or install into its namespace, or look on with shadow=true (docs/migrate.md); ignoreOtherOperators=true where it has other NodeClasses" $runs) -}}
{{- else if or (empty $lease) (ne $lease $theirs) -}}
{{- fail (printf "%s: without a Lease that both wait for, both would lead and act on the same nodes. Scale it to 0, or take DISABLE_LEADER_ELECTION and other names of the Lease away from both, or look on with shadow=true (docs/migrate.md); ignoreOtherOperators=true where it has other NodeClasses" $runs) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The containers of a Deployment that lead: their words and variables, with the Deployment's name and namespace. By the label alone it is the first. */}}
{{- define "spokeshave.leaders" -}}
{{- $name := dig "labels" "app.kubernetes.io/name" "" .metadata -}}
{{- $containers := default (list) .spec.template.spec.containers -}}
{{- $isOurs := eq $name "spokeshave" -}}
{{- range $containers -}}{{- if regexMatch "(^|/)spokeshave(:[^/]*)?(@.*)?$" (toString .image) -}}{{- $isOurs = true -}}{{- end -}}{{- end -}}
{{- $known := list -}}
{{- range $containers -}}
{{- $words := concat (default (list) .command) (default (list) .args) -}}
{{- $variables := list -}}
{{- range default (list) .env -}}{{- $variables = append $variables .name -}}{{- end -}}
{{- $isKarpenter := or (has "KARPENTER_SERVICE" $variables) (regexMatch "(^|/)karpenter(/controller)?(:[^/]*)?(@.*)?$" (toString .image)) -}}
{{- if ternary (and (has "operator" $words) (not (has "--shadow" $words))) $isKarpenter $isOurs -}}
{{- $known = append $known . -}}
{{- end -}}
{{- end -}}
{{- if and (empty $known) (eq $name "karpenter") (not $isOurs) -}}{{- $known = slice $containers 0 (min 1 (len $containers)) -}}{{- end -}}
{{- $leaders := list -}}
{{- range $known -}}
{{- $words := concat (default (list) .command) (default (list) .args) -}}
{{- $leaders = append $leaders (dict "deployment" $.metadata.name "namespace" $.metadata.namespace "args" $words "env" (default (list) .env)) -}}
{{- end -}}
{{- toYaml $leaders -}}
{{- end -}}

{{/* The Lease that a container waits for, with its namespace: a dictionary with container and namespace. Nothing where it waits for none. */}}
{{- define "spokeshave.leaseOf" -}}
{{- $name := "karpenter-leader-election" -}}
{{- $namespace := .namespace -}}
{{- $elects := true -}}
{{- $true := list "1" "t" "T" "true" "TRUE" "True" -}}
{{- range default (list) .container.env -}}
{{- if eq .name "LEADER_ELECTION_NAME" -}}{{- $name = default $name .value -}}{{- end -}}
{{- if eq .name "LEADER_ELECTION_NAMESPACE" -}}{{- $namespace = default $namespace .value -}}{{- end -}}
{{- if and (eq .name "DISABLE_LEADER_ELECTION") (has (toString .value) $true) -}}{{- $elects = false -}}{{- end -}}
{{- end -}}
{{- /* Flags come before variables, the last of each before those ahead of it; the value may be a word of its own. */ -}}
{{- $given := dict -}}
{{- $awaited := "" -}}
{{- range default (list) .container.args -}}
{{- $word := toString . -}}
{{- $flag := regexFind "^--?leader-election-name(space)?(=|$)" $word | trimAll "-=" -}}
{{- if $awaited -}}
{{- $_ := set $given $awaited $word -}}{{- $awaited = "" -}}
{{- else if and $flag (contains "=" $word) -}}
{{- $_ := set $given $flag (regexReplaceAll "^[^=]*=" $word "") -}}
{{- else if $flag -}}
{{- $awaited = $flag -}}
{{- else if regexMatch "^--?disable-leader-election(=(1|t|T|true|TRUE|True))?$" $word -}}
{{- $elects = false -}}
{{- end -}}
{{- end -}}
{{- $name = default $name (get $given "leader-election-name") -}}
{{- $namespace = default $namespace (get $given "leader-election-namespace") -}}
{{- if $elects -}}{{- printf "%s/%s" $namespace $name -}}{{- end -}}
{{- end -}}
