//! The definitions against the types; what they accept and refuse is in `tests/corpus`.

use super::*;
use serde::Serialize;

fn schema(kind: &str) -> Value {
    let crd = crd_values()
        .into_iter()
        .chain(crd_values_of(Cloud::Aws))
        .chain(crd_values_of(Cloud::Azure))
        .find(|crd| crd["spec"]["names"]["kind"] == kind)
        .unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Every path of `value` is in the schema.
fn assert_known(schema: &Value, value: &Value, path: &str) {
    if schema["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    if let Some(object) = value.as_object() {
        for (key, child) in object {
            let known = &schema["properties"][key];
            let known = if known.is_null() {
                &schema["additionalProperties"]
            } else {
                known
            };
            assert!(
                !known.is_null(),
                "{path}.{key} is a field of the type and not in the schema"
            );
            assert_known(known, child, &format!("{path}.{key}"));
        }
    }
    for child in value.as_array().into_iter().flatten() {
        assert_known(&schema["items"], child, &format!("{path}[]"));
    }
}

fn check<T: Serialize + serde::de::DeserializeOwned>(kind: &str, full: &Value) {
    let typed: T = serde_json::from_value(full.clone()).unwrap();
    let written = serde_json::to_value(&typed).unwrap();
    assert_eq!(&written, full, "{kind}: a full object survives the type");
    for part in ["spec", "status"] {
        assert_known(&schema(kind)["properties"][part], &written[part], part);
    }
}

#[test]
fn p_001_the_types_and_the_schemas_have_the_same_fields() {
    let condition = json!({"type": "Ready", "status": "True", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Ready", "message": ""});
    let taint = json!({"key": "a", "value": "b", "effect": "NoSchedule"});
    let requirement = json!({"key": "a", "operator": "In", "values": ["x"], "minValues": 1});
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    check::<crate::NodePool>(
        "NodePool",
        &json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"},
            "spec": {
                "template": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                    "spec": {"taints": [taint], "startupTaints": [taint], "requirements": [requirement], "nodeClassRef": class,
                             "terminationGracePeriod": "1h", "expireAfter": "24h"},
                },
                "disruption": {"consolidateAfter": "1m", "consolidationPolicy": "Balanced",
                               "budgets": [{"nodes": "5", "reasons": ["Empty"], "schedule": "@daily", "duration": "1h"}]},
                "limits": {"cpu": "10"}, "weight": 3, "replicas": 2,
            },
            "status": {"nodes": 1, "resources": {"cpu": "1"}, "nodeClassObservedGeneration": 1, "conditions": [condition]},
        }),
    );
    check::<crate::NodeClaim>(
        "NodeClaim",
        &json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": "a"},
            "spec": {"taints": [taint], "startupTaints": [taint], "requirements": [requirement], "resources": {"requests": {"cpu": "1"}},
                     "nodeClassRef": class, "terminationGracePeriod": "1h", "expireAfter": "Never"},
            "status": {"nodeName": "n", "providerID": "p", "imageID": "i", "capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"},
                       "lastPodEventTime": "2026-01-01T00:00:00Z", "conditions": [condition]},
        }),
    );
    check::<crate::DisruptionPolicy>(
        "DisruptionPolicy",
        &json!({
            "apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy", "metadata": {"name": "a"},
            "spec": {
                "nodePools": {"names": ["a"], "matchLabels": {"a": "b"}}, "timeZone": "Europe/Kyiv",
                "freeze": {"reason": "incident", "until": "2026-01-01T00:00:00Z"},
                "hold": {"duration": "20m", "initialDelay": "1m", "maximum": "2h", "scope": "NodePool", "triggers": ["Launch", "ScaleDown", "FailedLaunch"], "reasons": ["Empty"]},
                "budgets": [{"limit": "10%", "perHour": 3, "unit": "Pods", "scope": "Label", "label": "rack", "oneAtATime": true, "reasons": ["Drifted"],
                             "windows": [{"days": ["Mon"], "dates": ["2026-12-24"], "from": "22:00", "to": "06:00"}],
                             "exceptDates": ["2026-12-31"], "outsideWindows": "Unlimited"}],
                "rollout": {"canary": 2, "waves": ["4", "25%"], "soak": "10m", "order": ["Zone", "Age", "Importance"], "paused": true, "approval": "Manual", "approved": {"a": 2},
                            "approvedFor": {"a": "2026-01-01T00:00:00Z"},
                            "resumedAt": "2026-01-01T00:00:00Z", "deadline": "48h", "health": {"restarts": 3, "readyWithin": "5m",
                            "objects": [{"apiVersion": "apps/v1", "resource": "statefulsets", "namespace": "shop", "name": "db", "expression": "self.status.readyReplicas == 3"}]}},
                "circuitBreakers": {"notReady": {"percent": 30, "scope": "Zone"}, "failedLaunches": {"count": 3, "within": "15m"},
                                    "cloud": {"count": 10, "within": "5m"}, "apiServer": {"count": 10, "within": "5m"}, "prices": {"olderThan": "30m"}},
                "expiry": {"softAfter": "24h", "jitter": "1h"}, "blockedDrains": {"escalateAfter": "72h"},
                "workloads": {"maximumQuietTime": "24h", "minimumMovesPerDay": 1, "maximumClosed": "168h", "statefulSets": "OneAtATime"},
                "convergence": {"rest": "10m", "maximumRest": "8h", "restartCost": "0.005", "horizon": "4h"},
            },
            "status": {"summary": "frozen", "nextChange": "2026-01-01T00:00:00Z", "nodePools": ["a"], "conditions": [condition],
                       "rollouts": [{"nodePool": "a", "target": "1", "since": "2026-01-01T00:00:00Z", "firstSince": "2026-01-01T00:00:00Z", "wave": 1, "size": 2, "waveSince": "2026-01-01T00:00:00Z", "begun": 1, "remaining": 3,
                                     "phase": "Halted", "finishedAt": "2026-01-01T00:00:00Z", "haltedAt": "2026-01-01T00:00:00Z", "resumedAt": "2026-01-01T00:00:00Z",
                                     "approvedBefore": 2, "waitsFor": "w", "message": "m", "eta": "2026-01-01T00:00:00Z"}],
                       "holds": [{"nodePool": "a", "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}],
                       "expiry": [{"nodePool": "a", "due": 1, "withinDay": 2, "nextDue": "2026-01-01T00:00:00Z", "late": 3, "firstLate": "2026-01-01T00:00:00Z"}],
                       "workloads": {"restingPods": 1, "restingNodes": 1, "faults": ["f"]},
                       "active": [{"field": "spec.hold", "domain": "a", "reasons": ["Empty"], "message": "held", "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}]},
        }),
    );
    check::<crate::NodeOverlay>(
        "NodeOverlay",
        &json!({
            "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "a"},
            "spec": {"requirements": [{"key": "a", "operator": "Exists"}], "price": "1", "priceAdjustment": "+1", "capacity": {"x/y": "1"}, "weight": 1},
            "status": {"conditions": [condition]},
        }),
    );
    check::<crate::CapacityBuffer>(
        "CapacityBuffer",
        &json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "a"},
            "spec": {"provisioningStrategy": "s", "podTemplateRef": {"name": "t"}, "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "d"},
                     "replicas": 1, "percentage": 2, "limits": {"cpu": "1"}},
            "status": {"podTemplateRef": {"name": "t"}, "podTemplateGeneration": 1, "replicas": 1, "provisioningStrategy": "s", "conditions": [condition]},
        }),
    );
    check::<crate::disruption::Disruption>(
        "Disruption",
        &json!({
            "apiVersion": "spokeshave.dev/v1alpha1", "kind": "Disruption", "metadata": {"name": "a"},
            "spec": {
                "method": "Drift", "reason": "Drifted", "decision": "Replace", "decidedAt": "2026-01-01T00:00:00.000000Z",
                "nodes": [{"name": "n", "nodeClaim": "c", "nodeClaimUID": "u", "providerID": "p", "nodePool": "default", "instanceType": "t", "zone": "z",
                           "capacityType": "spot", "price": "0.1", "pods": 3, "createdAt": "2026-01-01T00:00:00Z", "workloads": [{"name": "Deployment/shop/web", "pods": 1}]}],
                "replacements": [{"nodeClaim": "d", "nodePool": "default", "nodePoolUID": "x", "price": "0.05", "metadata": {"labels": {"a": "b"}},
                                  "spec": {"requirements": [requirement], "nodeClassRef": class, "expireAfter": "Never"}}],
                "priceBefore": "0.1", "priceAfter": "0.05", "savings": "0.05", "evictions": 3,
                "budgets": [{"nodePool": "default", "allowed": 2, "disrupting": 1, "charged": 1}],
                "nodeSummary": "n", "replacementSummary": "1",
            },
            "status": {"phase": "Replacing", "message": "m", "startedAt": "2026-01-01T00:00:00.000000Z", "deletedAt": "2026-01-01T00:00:00.000000Z",
                       "finishedAt": "2026-01-01T00:00:00.000000Z", "realisedSavings": "0.04"},
        }),
    );
    check::<crate::KWOKNodeClass>(
        "KWOKNodeClass",
        &json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "a"},
            "spec": {"nodeRegistrationDelay": "30s"}, "status": {"conditions": [condition]},
        }),
    );
    check::<crate::EC2NodeClass>("EC2NodeClass", &full_ec2_node_class(&condition));
    check::<crate::AKSNodeClass>("AKSNodeClass", &full_aks_node_class(&condition));
    check::<crate::KWOKInstance>(
        "KWOKInstance",
        &json!({
            "apiVersion": "kwok.spokeshave.dev/v1alpha1", "kind": "KWOKInstance", "metadata": {"name": "a"},
            "spec": {"nodeClaimName": "c", "nodeClaimUID": "u", "nodePool": "p", "instanceType": "t", "zone": "z", "capacityType": "spot", "price": "0.1",
                     "nodeName": "n", "imageID": "i", "labels": {"a": "b"}, "taints": [taint], "capacity": {"cpu": "1"}, "allocatable": {"cpu": "1"}, "tags": {"a": "b"},
                     "registrationDelay": "5s"},
            "status": {"phase": "Running", "terminationStarted": "2026-01-01T00:00:00.000000Z", "conditions": [condition]},
        }),
    );
}

fn full_aks_node_class(condition: &Value) -> Value {
    let zone = json!({"zone": ".", "queryLogging": "Error", "protocol": "PreferUDP", "forwardDestination": "VnetDNS", "forwardPolicy": "Random",
                      "maxConcurrent": 1, "cacheDuration": "1h", "serveStale": "Verify", "serveStaleDuration": "1h"});
    json!({
        "apiVersion": "karpenter.azure.com/v1beta1", "kind": "AKSNodeClass", "metadata": {"name": "a"},
        "spec": {
            "vnetSubnetID": "/subscriptions/s", "osDiskSizeGB": 128, "imageFamily": "Ubuntu", "fipsMode": "Disabled", "tags": {"a": "b"}, "maxPods": 30,
            "kubelet": {"cpuManagerPolicy": "none", "cpuCFSQuota": true, "cpuCFSQuotaPeriod": "100ms", "imageGCHighThresholdPercent": 90, "imageGCLowThresholdPercent": 80,
                        "topologyManagerPolicy": "none", "allowedUnsafeSysctls": ["a"], "containerLogMaxSize": "50Mi", "containerLogMaxFiles": 5, "podPidsLimit": 1, "failSwapOn": false},
            "security": {"encryptionAtHost": true, "trustedLaunch": {"vtpm": true, "secureBoot": true}},
            "gpu": {"mode": "Driver"}, "artifactStreaming": {"enabled": true},
            "localDNS": {"mode": "Preferred", "vnetDNSOverrides": [zone], "kubeDNSOverrides": [zone]},
            "linuxOSConfig": {"swapFileSize": "1Gi", "transparentHugePageEnabled": "always", "transparentHugePageDefrag": "never", "sysctls": {"vmSwappiness": 1}},
        },
        "status": {"images": [{"id": "i", "requirements": [{"key": "a", "operator": "In", "values": ["x"]}]}], "kubernetesVersion": "1.34.1", "localDNSState": "Disabled",
                   "conditions": [condition]},
    })
}

fn full_ec2_node_class(condition: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"},
        "spec": {
            "subnetSelectorTerms": [{"id": "subnet-1", "tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"id": "sg-1", "name": "n", "tags": {"a": "b"}}],
            "capacityReservationSelectorTerms": [{"id": "cr-1", "ownerID": "1", "instanceMatchCriteria": "open", "tags": {"a": "b"}}],
            "placementGroupSelector": {"name": "n", "id": "pg-1"},
            "amiSelectorTerms": [{"alias": "al2@latest", "id": "ami-1", "name": "n", "owner": "self", "ssmParameter": "p", "tags": {"a": "b"}}],
            "amiFamily": "AL2", "role": "r", "instanceProfile": "p", "userData": "u", "associatePublicIPAddress": true, "ipPrefixCount": 1, "tags": {"a": "b"},
            "kubelet": {"maxPods": 1}, "instanceStorePolicy": "RAID0", "detailedMonitoring": true, "context": "c",
            "blockDeviceMappings": [{"deviceName": "d", "rootVolume": true, "ebs": {
                "deleteOnTermination": true, "encrypted": true, "iops": 1, "kmsKeyID": "k", "snapshotID": "s", "throughput": 1,
                "volumeInitializationRate": 100, "volumeSize": "1Gi", "volumeType": "gp3"}}],
            "networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}],
            "metadataOptions": {"httpEndpoint": "enabled", "httpProtocolIPv6": "disabled", "httpPutResponseHopLimit": 1, "httpTokens": "required"},
            "connectionTracking": {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 60, "udpTimeout": 30}, "cpuOptions": {"nestedVirtualization": "enabled"},
        },
        "status": {
            "subnets": [{"id": "subnet-1", "zone": "a", "zoneID": "z"}], "securityGroups": [{"id": "sg-1", "name": "n"}],
            "capacityReservations": [{"id": "cr-1", "availabilityZone": "a", "instanceType": "t", "instanceMatchCriteria": "open", "ownerID": "1",
                                      "endTime": "2026-01-01T00:00:00Z", "reservationType": "default", "interruptible": true, "state": "active"}],
            "amis": [{"id": "ami-1", "name": "n", "deprecated": true, "requirements": [{"key": "a", "operator": "Exists"}]}],
            "instanceProfile": "p", "conditions": [condition],
        },
    })
}

#[test]
fn invariant_42_unknown_fields_and_values_survive_a_read_modify_write() {
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"},
        "spec": {
            "template": {"spec": {"requirements": [{"key": "a", "operator": "Like", "values": ["x*"]}],
                                   "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}, "expireAfter": "720h", "fromTomorrow": {"a": [1]}},
                         "metadata": {"labels": {"a": "b"}, "finalizers": ["later"]}},
            "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenFullMoon", "budgets": [{"nodes": "1", "reasons": ["Bored"], "timeZone": "Europe/Berlin"}]},
            "alsoNew": true,
        },
    });
    let typed: crate::NodePool = serde_json::from_value(pool.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), pool, "invariant 42");
}

#[test]
fn p_002_every_kind_has_columns_and_descriptions() {
    for crd in crd_values().into_iter().chain(crd_values_of(Cloud::Aws)) {
        let version = &crd["spec"]["versions"][0];
        assert!(!version["additionalPrinterColumns"].as_array().unwrap().is_empty());
        assert_described(
            &version["schema"]["openAPIV3Schema"],
            crd["spec"]["names"]["kind"].as_str().unwrap(),
        );
    }
    assert_eq!(crds().len(), crd_values().len());
    assert_eq!(
        crds_of(Cloud::Aws).last().unwrap().spec.names.kind,
        "EC2NodeClass"
    );
    assert_eq!(
        crds_of(Cloud::Azure).last().unwrap().spec.names.kind,
        "AKSNodeClass"
    );
}

fn assert_described(schema: &Value, path: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(
            name == "metadata"
                || property["description"]
                    .as_str()
                    .is_some_and(|text| text.ends_with('.')),
            "{path}: a sentence for kubectl explain"
        );
        assert_described(property, &path);
        assert_described(&property["items"], &path);
    }
}

#[test]
fn the_yaml_reads_back() {
    for cloud in [Cloud::Kwok, Cloud::Aws, Cloud::Azure] {
        let values: Vec<Value> = serde_saphyr::from_multiple(&crds_yaml_of(cloud)).unwrap();
        assert_eq!(values, crd_values_of(cloud));
    }
    assert_eq!(crds_yaml(), crds_yaml_of(Cloud::Kwok));
}
