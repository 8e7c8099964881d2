{{/* Environment of the provider for Azure: `azure` of the values. The webhook of workload identity adds the tenant, the client and the token's file. */}}
{{- define "spokeshave.azureEnvironment" -}}
{{- $azure := .Values.azure -}}
{{- /* Variables of controller.env count for what is needed, too: the value where the chart can see it, "?" where it comes from elsewhere. */ -}}
{{- $given := dict -}}
{{- range .Values.controller.env -}}{{- $_ := set $given .name (ternary (toString .value) "?" (hasKey . "value")) -}}{{- end -}}
{{- $elsewhere := not (empty .Values.controller.envFrom) -}}
{{- $tags := list -}}
{{- range $key, $value := $azure.additionalTags -}}
{{- /* The operator reads a list, as Karpenter's provider does: what follows a comma would be another tag. */ -}}
{{- if or (contains "," $key) (contains "=" $key) (contains "," (tpl (toString $value) $)) -}}
{{- fail (printf "azure.additionalTags: the tag %q, whose value is %q, cannot be written as KEY=VALUE between commas: no key may have a comma or an equals sign, and no value a comma. spec.tags of AKSNodeClasses takes any" $key (toString $value)) -}}
{{- end -}}
{{- $tags = append $tags (printf "%s=%s" $key (toString $value)) -}}
{{- end -}}
{{- $mode := default $azure.provisionMode (get $given "PROVISION_MODE") -}}
{{- if not (has $mode (list "aksscriptless" "aksmachineapi" "?")) -}}
{{- fail (printf "controller.env: PROVISION_MODE is %q; expected aksscriptless or aksmachineapi" $mode) -}}
{{- end -}}
{{- $byAKS := eq $mode "aksmachineapi" -}}
{{- $byTemplate := eq $mode "aksscriptless" -}}
{{- $manages := ternary (has (lower (get $given "MANAGE_EXISTING_AKS_MACHINES")) (list "true" "t" "1")) $azure.manageExistingMachines (hasKey $given "MANAGE_EXISTING_AKS_MACHINES") -}}
{{- $seesAKS := or $byAKS $manages -}}
{{- $names := list
  (list "AZURE_SUBSCRIPTION_ID" "azure.subscriptionID" $azure.subscriptionID true)
  (list "AZURE_NODE_RESOURCE_GROUP" "azure.nodeResourceGroup" $azure.nodeResourceGroup true)
  (list "LOCATION" "azure.location" $azure.location true)
  (list "VNET_SUBNET_ID" "azure.vnetSubnetID" $azure.vnetSubnetID true)
  (list "SSH_PUBLIC_KEY" "azure.sshPublicKey" $azure.sshPublicKey $byTemplate)
  (list "BOOTSTRAP_TEMPLATE_FILE" "azure.bootstrapTemplate" (ternary "/etc/spokeshave/bootstrap-template" "" (not (empty $azure.bootstrapTemplate))) $byTemplate)
  (list "PROVISION_MODE" "" $azure.provisionMode false "aksscriptless")
  (list "AKS_MACHINES_POOL_NAME" "azure.machinesPoolName" $azure.machinesPoolName $seesAKS)
  (list "ARM_RESOURCE_GROUP" "azure.clusterResourceGroup" $azure.clusterResourceGroup $seesAKS)
  (list "MANAGE_EXISTING_AKS_MACHINES" "" (ternary "true" "" $azure.manageExistingMachines) false)
  (list "LINUX_ADMIN_USERNAME" "" $azure.linuxAdminUsername false "azureuser")
  (list "NODE_IDENTITIES" "" (join "," $azure.nodeIdentities) false)
  (list "ADDITIONAL_TAGS" "" (join "," $tags) false)
  (list "NODE_OSDISK_DISKENCRYPTIONSET_ID" "" $azure.nodeOSDiskDiskEncryptionSetID false)
  (list "NETWORK_PLUGIN" "" $azure.networkPlugin false "azure")
  (list "NETWORK_PLUGIN_MODE" "" $azure.networkPluginMode false "overlay")
  (list "AZURE_ENVIRONMENT_FILEPATH" "" (ternary "/etc/spokeshave/azure-environment.json" "" (not (empty $azure.environment))) false)
-}}
{{- range $names }}
{{- $name := index . 0 }}
{{- $value := toString (default "" (index . 2)) }}
{{- /* What only says the operator's default would hide what controller.envFrom says. */ -}}
{{- $isDefault := and (gt (len .) 4) (eq $value (toString (last .))) -}}
{{- if and (ne $value "") (not (hasKey $given $name)) (not (and $elsewhere $isDefault)) }}
- name: {{ $name }}
  value: {{ tpl $value $ | quote }}
{{- else if and (index . 3) (eq $value "") (not (hasKey $given $name)) (not $elsewhere) }}
{{- fail (printf "%s: needed with cloudProvider=azure (or %s in controller.env)" (index . 1) $name) }}
{{- end }}
{{- end }}
{{- include "spokeshave.refuseWithout" (dict "root" . "settings" (dict "clusterName" "CLUSTER_NAME" "clusterEndpoint" "CLUSTER_ENDPOINT")) }}
{{- with $azure.bootstrapTokenSecret.name }}
- name: KUBELET_BOOTSTRAP_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $azure.bootstrapTokenSecret.key }}
{{- end }}
{{- end -}}
