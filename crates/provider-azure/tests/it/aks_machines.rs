//! Machines that AKS makes (Z-040): what it is asked for, what it says of images, failures and drift.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spokeshave_api::Taint;
use spokeshave_api::{NodeClaim, NodeClaimSpec};
use spokeshave_model::CapacityType;
use spokeshave_model::labels as core;
use spokeshave_provider_azure::aks_machines::{
    AksMachine, MACHINE_ID_ANNOTATION, MachinePool, former_pools, machine_name,
};
use spokeshave_provider_azure::drift::{self, Instance};
use spokeshave_provider_azure::errors::ArmError;
use spokeshave_provider_azure::images::{self, ImageError, NodeImageVersion, node_image_definitions};
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::skus;
use spokeshave_provider_azure::status::not_acted_on;

use crate::{REGION, class, types};

fn pool() -> MachinePool {
    MachinePool {
        subscription: "sub".to_owned(),
        resource_group: "Group".to_owned(),
        cluster: "cluster".to_owned(),
        name: "machines".to_owned(),
    }
}

fn body(spec: &str, size: &str, capacity_type: CapacityType, zone: Option<&str>, labels: &Value) -> Value {
    let class = class(spec);
    let all = types(&class);
    let labels: BTreeMap<String, String> = serde_json::from_value(labels.clone()).unwrap();
    let taint = |key: &str, value: Option<&str>, effect: &str| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: effect.to_owned(),
        ..Taint::default()
    };
    AksMachine {
        zone,
        capacity_type,
        sku: skus::facts(REGION).iter().find(|sku| sku.name == size).unwrap(),
        instance_type: all.iter().find(|it| it.name == size).unwrap(),
        class: &class,
        kubernetes_version: "1.34.1",
        image_version: "AKSUbuntu-2404gen2containerd-202608.10.0",
        labels: &labels,
        taints: &[
            taint("team", Some("a"), "NoSchedule"),
            taint("team", Some("a"), "NoSchedule"),
            taint("karpenter.sh/unregistered", None, "NoExecute"),
        ],
        tags: &BTreeMap::from([("a".to_owned(), "b".to_owned())]),
    }
    .body()
}

#[test]
fn z_040_a_machine_of_a_class_that_says_nothing() {
    let labels = json!({
        core::NODE_POOL: "default", core::CAPACITY_TYPE: "spot", "team": "a", "karpenter.azure.com/sku-cpu": "4",
        "kubernetes.azure.com/mode": "user", "topology.kubernetes.io/zone": "southcentralus-2", "agentpool": "x",
        "node.kubernetes.io/instance-type": "Standard_D4s_v5", "app.k8s.io/name": "x",
    });
    assert_eq!(
        body("{}", "Standard_D4s_v5", CapacityType::Spot, Some("2"), &labels),
        json!({
            "zones": ["2"],
            "properties": {
                "nodeImageVersion": "AKSUbuntu-2404gen2containerd-202608.10.0",
                "hardware": {"vmSize": "Standard_D4s_v5", "ultraSsdEnabled": false},
                "operatingSystem": {
                    "osType": "Linux", "osSKU": "Ubuntu2404", "osDiskSizeGB": 128, "osDiskType": "Managed", "enableFIPS": false,
                },
                "kubernetes": {
                    "orchestratorVersion": "1.34.1",
                    "nodeLabels": {
                        "karpenter.azure.com/sku-cpu": "4", "karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "default", "team": "a",
                    },
                    "nodeInitializationTaints": ["team=a:NoSchedule", "karpenter.sh/unregistered:NoExecute"],
                    "nodeTaints": [],
                    "maxPods": 250,
                },
                "mode": "User",
                "security": {
                    "sshAccess": "LocalUser", "enableEncryptionAtHost": false, "enableVTPM": false, "enableSecureBoot": false,
                },
                "priority": "Spot",
                "tags": {"a": "b"},
            },
        })
    );
}

#[test]
fn z_040_a_machine_of_a_class_that_says_everything() {
    let subnet =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/n/subnets/other";
    let spec = format!(
        "{{vnetSubnetID: {subnet}, osDiskSizeGB: 60, imageFamily: AzureLinux, fipsMode: FIPS, maxPods: 40,
        kubelet: {{cpuManagerPolicy: static, cpuCFSQuota: false, cpuCFSQuotaPeriod: 50ms, imageGCHighThresholdPercent: 80,
          imageGCLowThresholdPercent: 70, topologyManagerPolicy: restricted, allowedUnsafeSysctls: [kernel.msg*], containerLogMaxSize: 1500Ki,
          containerLogMaxFiles: 7, podPidsLimit: 5000000000, failSwapOn: false}},
        security: {{encryptionAtHost: true, trustedLaunch: {{vtpm: true, secureBoot: true}}}},
        artifactStreaming: {{enabled: true}},
        linuxOSConfig: {{swapFileSize: 2Gi, transparentHugePageEnabled: never, transparentHugePageDefrag: defer,
          sysctls: {{vmSwappiness: 10, netIPv4TCPKeepaliveIntvl: 30, netIPv4IPLocalPortRange: 32768 60999}}}},
        localDNS: {{mode: Required, vnetDNSOverrides: [{{zone: ., protocol: PreferUDP, maxConcurrent: 1000, cacheDuration: 1h}}],
          kubeDNSOverrides: [{{zone: cluster.local, serveStale: Verify, serveStaleDuration: 90s}}]}}}}"
    );
    let labels = json!({
        "kubernetes.azure.com/mode": "system", "karpenter.azure.com/sku-storage-ultra-ssd": "true",
    });
    let body = body(&spec, "Standard_D4ds_v5", CapacityType::OnDemand, None, &labels);
    assert_eq!(body.get("zones"), None);
    let properties = &body["properties"];
    for (field, expected) in [
        ("network", json!({"vnetSubnetID": subnet})),
        ("mode", json!("System")),
        ("priority", json!("Regular")),
        (
            "hardware",
            json!({"vmSize": "Standard_D4ds_v5", "ultraSsdEnabled": true}),
        ),
        (
            "security",
            json!({"sshAccess": "LocalUser", "enableEncryptionAtHost": true, "enableVTPM": true, "enableSecureBoot": true}),
        ),
        (
            "localDNSProfile",
            json!({
                "mode": "Required",
                "vnetDNSOverrides": {".": {"protocol": "PreferUDP", "maxConcurrent": 1000, "cacheDurationInSeconds": 3600}},
                "kubeDNSOverrides": {"cluster.local": {"serveStale": "Verify", "serveStaleDurationInSeconds": 90}},
            }),
        ),
        (
            "operatingSystem",
            json!({
                "osType": "Linux", "osSKU": "AzureLinux", "osDiskSizeGB": 60, "osDiskType": "Ephemeral", "enableFIPS": true,
                "linuxProfile": {"linuxOSConfig": {
                    "swapFileSizeMB": 2048, "transparentHugePageEnabled": "never", "transparentHugePageDefrag": "defer",
                    "sysctls": {"vmSwappiness": 10, "netIpv4TcpkeepaliveIntvl": 30, "netIpv4IpLocalPortRange": "32768 60999"},
                }},
            }),
        ),
    ] {
        assert_eq!(properties[field], expected, "{field}");
    }
    let kubernetes = &properties["kubernetes"];
    assert_eq!(kubernetes["maxPods"], 40);
    assert_eq!(kubernetes["artifactStreamingProfile"], json!({"enabled": true}));
    assert_eq!(
        kubernetes["kubeletConfig"],
        json!({
            "cpuManagerPolicy": "static", "cpuCfsQuota": false, "cpuCfsQuotaPeriod": "50ms", "imageGcHighThreshold": 80, "imageGcLowThreshold": 70,
            "topologyManagerPolicy": "restricted", "allowedUnsafeSysctls": ["kernel.msg*"], "containerLogMaxSizeMB": 1, "containerLogMaxFiles": 7,
            "podMaxPids": i32::MAX, "failSwapOn": false,
        })
    );
    assert_eq!(not_acted_on(&class(&spec), ProvisionMode::AksMachine), [""; 0]);
}

#[test]
fn z_040_drivers_of_gpus_are_the_classes_choice() {
    let driver = |spec: &str| {
        let body = body(
            spec,
            "Standard_NC24ads_A100_v4",
            CapacityType::OnDemand,
            Some("1"),
            &json!({}),
        );
        body["properties"]["hardware"]["gpuProfile"]["driver"].clone()
    };
    assert_eq!(driver("{}"), "Install");
    assert_eq!(driver("{gpu: {mode: None}}"), "None");
}

#[test]
fn z_040_fields_without_a_place_are_named() {
    let spec = "{linuxOSConfig: {swapFileSize: much, hugePages: 1, sysctls: {vmSwappiness: 1, vmNew: 2}}, kubelet: {containerLogMaxSize: x, someday: 1}, \
                 localDNS: {mode: Required, other: 1, vnetDNSOverrides: [{zone: a.b, ttl: 1, cacheDuration: soon}]}, another: 1}";
    let mut class = class(spec);
    class.metadata.annotations = Some(
        [(
            "spokeshave.dev/azure-image-id".to_owned(),
            "/subscriptions/x".to_owned(),
        )]
        .into(),
    );
    let mut named = not_acted_on(&class, ProvisionMode::AksMachine);
    named.sort();
    assert_eq!(
        named,
        [
            "annotation spokeshave.dev/azure-image-id",
            "spec.another",
            "spec.kubelet.containerLogMaxSize",
            "spec.kubelet.someday",
            "spec.linuxOSConfig.hugePages",
            "spec.linuxOSConfig.swapFileSize",
            "spec.linuxOSConfig.sysctls.vmNew",
            "spec.localDNS.other",
            "spec.localDNS.vnetDNSOverrides[a.b].cacheDuration",
            "spec.localDNS.vnetDNSOverrides[a.b].ttl",
        ]
    );
}

#[test]
fn z_040_names_of_machines_fit_and_virtual_machines_lead_back() {
    assert_eq!(machine_name("default-x7k2p"), "default-x7k2p");
    assert_eq!(machine_name("my.pool-x7k2p"), "my-pool-x7k2p");
    let long = "a-nodepool-with-a-name-of-some-length";
    let name = machine_name(&format!("{long}-x7k2p"));
    assert_eq!(name.len(), 34, "{name}");
    assert!(
        name.starts_with("a-nodepool-with-a-name") && name.ends_with("-x7k2p"),
        "{name}"
    );
    assert_eq!(name, machine_name(&format!("{long}-x7k2p")), "always the same");
    assert_ne!(name, machine_name(&format!("{long}er-x7k2p")));
    for odd in ["x".repeat(200), format!("{}-{}", "x".repeat(20), "y".repeat(40))] {
        assert_eq!(machine_name(&odd).len(), 34, "{odd}");
    }
    for (vm, machine) in [
        ("aks-machines-default-x7k2p-12345678-vm", Some("default-x7k2p")),
        ("aks-machines-default-x7k2p-12345678-vm0", Some("default-x7k2p")),
        ("aks-machines-x-12345678-vm", Some("x")),
        ("aks-default-x7k2p", None),
        ("aks-machines-default-x7k2p", None),
        ("aks-machines-default-1234567-vm", None),
        ("aks-machines-12345678-vm", None),
        ("aks-other-default-12345678-vm", None),
        ("aks-machines2-default-12345678-vm", None),
    ] {
        assert_eq!(pool().machine_of(vm), machine, "{vm}");
    }
    assert_eq!(
        pool().machine_id("a"),
        "/subscriptions/sub/resourceGroups/Group/providers/Microsoft.ContainerService/managedClusters/cluster/agentPools/machines/machines/a"
    );
}

#[test]
fn z_040_the_newest_image_of_each_definition_by_its_numbers() {
    let version = |os: &str, sku: &str, version: &str| NodeImageVersion {
        os: os.to_owned(),
        sku: sku.to_owned(),
        version: version.to_owned(),
    };
    let listed = [
        version("AKSUbuntu", "2404gen2containerd", "202608.9.0"),
        version("AKSUbuntu", "2404gen2containerd", "202608.10.0"),
        version("AKSUbuntu", "2404containerd", "202607.1.0"),
        version("AKSAzureLinux", "V3gen2fips", "202608.2.0"),
        version("AKSWindows", "2404gen2containerd", "202699.1.0"),
    ];
    let ids = |spec: &str, kubernetes: &str| {
        let definitions = node_image_definitions(&class(spec), kubernetes)?;
        let found: Vec<_> = definitions
            .iter()
            .map(|it| (*it, it.newest_of_aks(&listed)))
            .collect();
        let found = images::images(&found)?;
        Ok::<_, ImageError>(found.into_iter().map(|image| image.id).collect::<Vec<String>>())
    };
    assert_eq!(
        ids("{}", "1.34.1").unwrap(),
        [
            "AKSUbuntu-2404gen2containerd-202608.10.0",
            "AKSUbuntu-2404containerd-202607.1.0"
        ]
    );
    assert_eq!(
        ids("{imageFamily: AzureLinux, fipsMode: FIPS}", "1.34.1").unwrap(),
        ["AKSAzureLinux-V3gen2fips-202608.2.0"]
    );
    let error = ids("{}", "1.33.0").unwrap_err().to_string();
    assert!(error.contains("2204gen2containerd"), "{error}");
    let error = ids("{imageFamily: Ubuntu2404, fipsMode: FIPS}", "1.34.1")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("spec.fipsMode") && error.contains("Ubuntu2404"),
        "{error}"
    );
}

#[test]
fn z_040_what_compute_says_counts_and_not_what_wraps_it() {
    let error = ArmError::of_machine(&json!({
        "code": "QuotaExceeded", "message": "wrapped",
        "details": [{"code": "OperationNotAllowed", "message": "exceeding approved LowPriorityCores quota"}],
    }));
    assert_eq!(error.code, "OperationNotAllowed");
    assert!(error.message.contains("LowPriorityCores"));
    let bare = ArmError::of_machine(&json!({"code": "SubnetIsFull", "message": "full", "details": []}));
    assert_eq!(
        (bare.code.as_str(), bare.message.as_str()),
        ("SubnetIsFull", "full")
    );
    let gone =
        br#"{"error": {"code": "InvalidParameter", "message": "Cannot find any valid machines to delete."}}"#;
    assert!(ArmError::read(400, gone).is_no_machine());
    assert!(
        !ArmError::read(400, br#"{"error": {"code": "InvalidParameter", "message": "x"}}"#).is_no_machine()
    );
}

#[test]
fn d_240_what_aks_wants_done_is_drift_after_everything_else() {
    let class = class("{}");
    let claim = NodeClaim::new("claim", NodeClaimSpec::default());
    let check = |action: &str| {
        let instance = Instance {
            drift_action: action.to_owned(),
            ..Instance::default()
        };
        drift::check(&class, &claim, &instance).map(drift::Drift::as_str)
    };
    for none in ["", "Synced"] {
        assert_eq!(check(none), None, "{none:?}");
    }
    // One that AKS may add some day is done by a new machine, too.
    for wanted in ["Recreate", "Reimage"] {
        assert_eq!(check(wanted), Some("ClusterConfigDrift"), "{wanted}");
    }
}

#[test]
fn z_040_pools_are_found_where_nodeclaims_say_that_their_machines_are() {
    let claim = |name: &str, id: Option<&str>| {
        let mut claim = NodeClaim::new(name, NodeClaimSpec::default());
        claim.metadata.annotations = id.map(|id| [(MACHINE_ID_ANNOTATION.to_owned(), id.to_owned())].into());
        claim
    };
    let pool = |cluster: &str, name: &str| MachinePool {
        subscription: "s".to_owned(),
        resource_group: "g".to_owned(),
        cluster: cluster.to_owned(),
        name: name.to_owned(),
    };
    let (own, other) = (pool("c", "one"), pool("c", "two"));
    let claims = [
        claim("a", Some(&own.machine_id("a"))),
        claim("b", Some(&other.machine_id("b"))),
        claim("c", Some(&other.machine_id("c").to_uppercase())),
        claim("d", None),
        claim(
            "e",
            Some("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/x"),
        ),
        claim("f", Some(&format!("{}/machines/", own.id()))),
    ];
    assert_eq!(former_pools(&claims, Some(&own)), std::slice::from_ref(&other));
    assert_eq!(former_pools(&claims, None), [own.clone(), other.clone()]);
    assert!(own.has(&own.machine_id("a")) && !own.has(&other.machine_id("a")));
    assert_eq!(
        MachinePool::of_machine(&other.machine_id("b")),
        Some((other.clone(), "b"))
    );
}
