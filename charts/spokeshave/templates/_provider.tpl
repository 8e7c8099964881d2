{{/* Where a provider in a process of its own is: arguments of the operator. */}}
{{- define "spokeshave.providerArguments" -}}
{{- $provider := .Values.provider -}}
{{- if empty $provider.nodeClasses -}}
{{- fail "provider.nodeClasses: needed with cloudProvider=grpc: group and plural of the kinds that NodePools refer to" -}}
{{- end -}}
{{- if $provider.address -}}
- --provider-address
- {{ $provider.address | quote }}
- --provider-ca
- /etc/spokeshave-provider/ca.crt
- --provider-cert
- /etc/spokeshave-provider/tls.crt
- --provider-key
- /etc/spokeshave-provider/tls.key
{{- else -}}
- --provider-socket
- {{ $provider.socket | quote }}
{{- end -}}
{{- end -}}

{{/* What the provider and the operator share: a folder for the socket, or certificates. */}}
{{- define "spokeshave.providerVolumes" -}}
{{- $provider := .Values.provider -}}
{{- if ne .Values.cloudProvider "grpc" -}}
{{- else if $provider.address -}}
- name: provider
  secret:
    secretName: {{ required "provider.certificatesSecret: needed with provider.address: over TCP both sides show certificates" $provider.certificatesSecret }}
{{- else -}}
- name: provider
  emptyDir: {}
{{- end -}}
{{- end -}}

{{- define "spokeshave.providerMounts" -}}
{{- $provider := .Values.provider -}}
{{- if ne .Values.cloudProvider "grpc" -}}
{{- else if $provider.address -}}
- name: provider
  mountPath: /etc/spokeshave-provider
  readOnly: true
{{- else -}}
- name: provider
  mountPath: {{ dir (required "provider.socket: needed with cloudProvider=grpc, or provider.address" $provider.socket) }}
{{- end -}}
{{- end -}}

{{/* What sidecars share with the operator: the folder of the socket. The operator's key is its own. */}}
{{- define "spokeshave.sidecarMounts" -}}
{{- if not .Values.provider.address -}}
{{- include "spokeshave.providerMounts" . -}}
{{- end -}}
{{- end -}}

{{/* A values file of Karpenter's chart says nothing of the provider, and the default has no machines: pods would wait for nodes that nobody makes. */}}
{{- define "spokeshave.refuseCloudWithoutMachines" -}}
{{- if eq .Values.cloudProvider "kwok" -}}
{{- range $setting := list "clusterName" "interruptionQueue" -}}
{{- with get $.Values.settings $setting -}}
{{- fail (printf "settings.%s is %q, and cloudProvider is kwok, whose nodes have no machines: set cloudProvider=aws (clusterName also goes with azure), or leave settings.%s empty" $setting (toString .) $setting) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The provider's kinds of NodeClasses, a rule for each: a dictionary with root and verbs. */}}
{{- define "spokeshave.nodeClassRules" }}
{{- $values := .root.Values -}}
{{- $verbs := .verbs -}}
{{- $kinds := list (dict "group" "karpenter.kwok.sh" "plural" "kwoknodeclasses") -}}
{{- if eq $values.cloudProvider "aws" -}}
{{- $kinds = list (dict "group" "karpenter.k8s.aws" "plural" "ec2nodeclasses") -}}
{{- else if eq $values.cloudProvider "azure" -}}
{{- $kinds = list (dict "group" "karpenter.azure.com" "plural" "aksnodeclasses") -}}
{{- else if eq $values.cloudProvider "grpc" -}}
{{- $kinds = $values.provider.nodeClasses -}}
{{- end -}}
{{- range $kinds }}
  - apiGroups: [{{ .group }}]
    resources: [{{ .plural }}]
    verbs: [{{ $verbs }}]
{{- end }}
{{- end }}
