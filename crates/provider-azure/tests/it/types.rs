//! Sizes and what their nodes hold (Z-005, Z-020, Z-022).

use spokeshave_model::{InstanceType, Requirement, labels as core};
use spokeshave_provider_azure::instance_types::{self, NetworkPlugin, NotUsed, Settings};
use spokeshave_provider_azure::names::{SizeName, arm_zone, zone_label};
use spokeshave_provider_azure::requests::ephemeral_placement;
use spokeshave_provider_azure::skus::{self, Restriction, RestrictionInfo, Sku};
use spokeshave_provider_azure::{labels, names};

use crate::{REGION, class, settings, types};

fn value(instance_type: &InstanceType, key: &str) -> String {
    let requirement = instance_type.requirements.find(key);
    let values = requirement.map(|it| it.values().iter().cloned().collect::<Vec<_>>());
    values.unwrap_or_default().join(",")
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

#[test]
fn z_005_z_020_z_022_what_nodes_of_real_sizes_hold() {
    let golden: Vec<&str> = include_str!("../golden/instance_types.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .skip(1)
        .collect();
    assert!(golden.len() >= 60, "{} sizes", golden.len());
    let facts = skus::facts(REGION);
    let rows: Vec<String> = types(&class("{}"))
        .iter()
        .map(|it| {
            let sku = facts.iter().find(|sku| sku.name == it.name).unwrap();
            let reserved = &it.overhead.kube_reserved;
            let disk = sku
                .ephemeral_os_disk()
                .map(|(size, placement)| format!("{size} {}", placement.as_str()));
            let spot = it
                .offerings
                .iter()
                .any(|it| it.available && it.capacity_type().unwrap().as_str() == "spot");
            let zones: Vec<String> = sku.zones(REGION).into_iter().collect();
            [
                it.name.clone(),
                value(it, core::ARCH),
                (it.capacity.get("cpu") / 1000).to_string(),
                it.capacity.get("memory").to_string(),
                (it.capacity.get(labels::NVIDIA_GPU) + it.capacity.get(labels::AMD_GPU)).to_string(),
                reserved.get("cpu").to_string(),
                (reserved.get("memory") >> 20).to_string(),
                value(it, labels::SKU_SERIES),
                value(it, labels::SKU_VERSION),
                or_dash(value(it, labels::SKU_GPU_NAME)),
                value(it, labels::SKU_HYPERV_GENERATION),
                value(it, labels::SKU_STORAGE_PREMIUM_CAPABLE),
                value(it, labels::SKU_NETWORKING_ACCELERATED),
                spot.to_string(),
                or_dash(disk.unwrap_or_default()),
                or_dash(zones.join(",")),
            ]
            .join("\t")
        })
        .collect();
    assert_eq!(rows, golden);
}

#[test]
fn z_020_which_sizes_are_used() {
    let facts = skus::facts(REGION);
    let find = |name: &str| facts.iter().find(|sku| sku.name == name).unwrap().clone();
    let check = |sku: &Sku| instance_types::check_used(sku, REGION);
    for (name, reason) in [
        ("Standard_A0", NotUsed::NotForAks),
        ("Standard_B1s", NotUsed::NotForAks),
        ("Standard_M8-2ms", NotUsed::Constrained),
        ("Standard_DC8s_v3", NotUsed::Confidential),
    ] {
        assert_eq!(check(&find(name)), Err(reason), "{name}");
    }
    let with = |capability: &str, value: &str| {
        let mut sku = find("Standard_D2s_v5");
        sku.capabilities.retain(|it| it.name != capability);
        sku.capabilities.push(skus::Capability {
            name: capability.to_owned(),
            value: value.to_owned(),
        });
        check(&sku)
    };
    assert_eq!(with("vCPUs", "1"), Err(NotUsed::Cpus));
    assert_eq!(with("vCPUs", "many"), Err(NotUsed::Cpus));
    assert_eq!(with("MemoryGB", "3.4"), Err(NotUsed::Memory));
    assert_eq!(with("MemoryGB", "3.5"), Ok(()));
    assert_eq!(with("GPUs", "1"), Err(NotUsed::Gpus));
    let mut restricted = find("Standard_D2s_v5");
    restricted.restrictions.push(Restriction {
        kind: "Location".to_owned(),
        values: vec!["SouthCentralUS".to_owned()],
        ..Restriction::default()
    });
    assert_eq!(check(&restricted), Err(NotUsed::Restricted));
    restricted.restrictions[0].values = vec!["westus".to_owned()];
    restricted.restrictions.push(Restriction {
        kind: "Zone".to_owned(),
        restriction_info: RestrictionInfo {
            locations: vec![REGION.to_owned()],
            zones: vec!["2".to_owned()],
        },
        ..Restriction::default()
    });
    assert_eq!(check(&restricted), Ok(()));
    assert_eq!(
        restricted.zones(REGION).into_iter().collect::<Vec<_>>(),
        ["1", "3"]
    );
    let disk = Sku {
        resource_type: "disks".to_owned(),
        ..find("Standard_D2s_v5")
    };
    assert_eq!(check(&disk), Err(NotUsed::NotAMachine));
}

#[test]
fn z_020_what_a_class_asks_of_sizes() {
    let names = |spec: &str| -> Vec<String> { types(&class(spec)).into_iter().map(|it| it.name).collect() };
    let all = names("{}");
    let without = |spec: &str| -> Vec<String> {
        let some = names(spec);
        all.iter().filter(|name| !some.contains(name)).cloned().collect()
    };
    assert!(all.contains(&"Standard_NC16as_T4_v3".to_owned()));
    assert!(
        without("{artifactStreaming: {enabled: true}}")
            .iter()
            .all(|name| name.contains('p'))
    );
    assert_eq!(without("{artifactStreaming: {enabled: true}}").len(), 8);
    let trusted = without("{security: {trustedLaunch: {secureBoot: true}}}");
    for name in ["Standard_D2_v2", "Standard_D2ps_v5"] {
        assert!(trusted.contains(&name.to_owned()), "{name}: {trusted:?}");
    }
    assert!(!trusted.contains(&"Standard_D2s_v5".to_owned()));
    assert!(without("{security: {trustedLaunch: {vtpm: false}}}").is_empty());
    assert!(without("{imageFamily: AzureLinux}").is_empty());
}

#[test]
fn z_020_pods_and_disk() {
    let first = |spec: &str, plugin: NetworkPlugin| {
        let settings = Settings {
            network_plugin: plugin,
            ..settings()
        };
        let sku = &skus::facts(REGION)[5];
        let resolved = instance_types::resolve(sku, &class(spec), &settings);
        (
            resolved.capacity.get("pods"),
            resolved.capacity.get("ephemeral-storage"),
            resolved.overhead.eviction_threshold.get("memory"),
        )
    };
    let eviction = 750 << 20;
    assert_eq!(first("{}", NetworkPlugin::None), (250, 128_000_000_000, eviction));
    assert_eq!(first("{}", NetworkPlugin::AzureOverlay).0, 250);
    assert_eq!(first("{}", NetworkPlugin::AzureNodeSubnet).0, 30);
    assert_eq!(first("{}", NetworkPlugin::Other).0, 110);
    assert_eq!(
        first("{maxPods: 64, osDiskSizeGB: 60}", NetworkPlugin::Other),
        (64, 60_000_000_000, eviction)
    );
}

#[test]
fn z_022_where_the_disk_of_the_system_is() {
    let facts = skus::facts(REGION);
    let placement = |name: &str, spec: &str| {
        let sku = facts.iter().find(|sku| sku.name == name).unwrap();
        ephemeral_placement(sku, &class(spec)).map(skus::DiskPlacement::as_str)
    };
    // Names NvmeDisk as a placement, and has more than enough.
    assert_eq!(placement("Standard_D128ds_v6", "{}"), Some("NvmeDisk"));
    // Has NVMe and does not name it: the cache of 274 GB is used.
    assert_eq!(
        placement("Standard_NC24ads_A100_v4", "{osDiskSizeGB: 274}"),
        Some("CacheDisk")
    );
    assert_eq!(placement("Standard_NC24ads_A100_v4", "{osDiskSizeGB: 275}"), None);
    assert_eq!(placement("Standard_D4ds_v5", "{}"), Some("ResourceDisk"));
    assert_eq!(placement("Standard_D2ds_v5", "{}"), None, "80 GB are too few");
    assert_eq!(placement("Standard_D2s_v5", "{}"), None, "it has no disk");
}

/// The service's own spelling, that of its documents, and both as Microsoft's command line prints them.
#[test]
fn z_020_ultra_disks_are_found_in_a_zone_however_the_list_spells_its_name() {
    for name in [
        r#""Name": ["1", "3"]"#,
        r#""name": ["1", "3"]"#,
        r#""Name": ["1", "3"], "name": null"#,
    ] {
        let capability = r#"{"name": "UltraSSDAvailable", "value": "True"}"#;
        let details = format!(r#"{{{name}, "capabilities": [{capability}]}}"#);
        let row = format!(
            r#"{{"name": "Standard_D4s_v5", "locationInfo": [{{"location": "{REGION}", "zones": ["1", "2", "3"], "zoneDetails": [{details}]}}]}}"#
        );
        let sku: Sku = serde_json::from_str(&row).unwrap();
        let has_them = ["1", "2", "3"].map(|zone| sku.has_ultra_disks(REGION, Some(zone)));
        assert_eq!(has_them, [true, false, true], "{name}");
    }
}

#[test]
fn z_005_the_parts_of_a_name() {
    let parts = |name: &str| {
        let it = SizeName::parse(name)?;
        Some((
            it.family.clone(),
            it.subfamily.clone(),
            it.constrained_cpus.clone(),
            it.accelerator.clone(),
            it.series(),
            it.version_number().to_owned(),
        ))
    };
    let some = |family: &str,
                sub: &str,
                constrained: Option<&str>,
                accelerator: Option<&str>,
                series: &str,
                version: &str| {
        Some((
            family.to_owned(),
            sub.to_owned(),
            constrained.map(str::to_owned),
            accelerator.map(str::to_owned),
            series.to_owned(),
            version.to_owned(),
        ))
    };
    assert_eq!(parts("Standard_D4s_v5"), some("D", "", None, None, "Ds_v5", "5"));
    assert_eq!(parts("Standard_B20ms"), some("B", "", None, None, "Bms", "1"));
    assert_eq!(
        parts("Standard_NC24ads_A100_v4"),
        some("N", "C", None, Some("A100"), "NCads_v4", "4")
    );
    assert_eq!(
        parts("Standard_M8-2ms"),
        some("M", "", Some("2"), None, "Mms", "1")
    );
    assert_eq!(parts("Standard_HB120-16rs_v3").unwrap().2, Some("16".to_owned()));
    assert_eq!(parts("Standard_F2_Promo"), some("F", "", None, None, "F", "1"));
    for name in ["", "Standard_", "Standard_d4", "Standard_D", "D4?"] {
        assert_eq!(parts(name), None, "{name}");
    }
}

#[test]
fn z_005_every_known_size_can_be_read() {
    let known = include_str!("../../data/known_sizes.tsv").lines().skip(3);
    let unread: Vec<&str> = known
        .filter_map(|line| line.split('\t').next())
        .filter(|name| SizeName::parse(name).is_none())
        .collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn z_005_labels_of_zones_and_clusters() {
    assert_eq!(zone_label("westeurope", Some("2")), "westeurope-2");
    assert_eq!(zone_label("westeurope", None), "0");
    assert_eq!(arm_zone("westeurope-2"), Some("2"));
    assert_eq!(arm_zone("0"), None);
    assert_eq!(labels::cluster("MC_a_b_c"), "MC_a_b_c");
    assert_eq!(labels::cluster("MC_"), "MC_z");
    let long = format!("{}-{}", "a".repeat(62), "b".repeat(10));
    assert_eq!(labels::cluster(&long), format!("{}z", "a".repeat(62)));
}

#[test]
fn z_005_values_are_within_their_domains_and_every_key_is_there() {
    for instance_type in types(&class("{}")) {
        for key in labels::WELL_KNOWN {
            assert!(
                instance_type.requirements.contains(key),
                "{}: {key}",
                instance_type.name
            );
        }
        for (key, domain) in labels::VALUES {
            let requirement = instance_type.requirements.find(key).unwrap();
            let values = requirement.values();
            assert!(
                values.iter().all(|value| domain.contains(&value.as_str())),
                "{}: {key} {values:?}",
                instance_type.name
            );
            let nonsense = Requirement::is(key, "nonsense");
            assert!(!requirement.has_intersection(&nonsense), "{key}");
        }
    }
}

#[test]
fn z_051_a_provider_id_names_its_machine() {
    let place = names::Place {
        subscription: "sub".to_owned(),
        resource_group: "MC_Group".to_owned(),
    };
    let id = place.provider_id(&names::machine("pool-abc"));
    assert_eq!(
        id,
        "azure:///subscriptions/sub/resourceGroups/mc_group/providers/Microsoft.Compute/virtualMachines/aks-pool-abc"
    );
    assert_eq!(place.machine_of(&id), Some("aks-pool-abc"));
    let shouted = names::Place {
        subscription: "SUB".to_owned(),
        resource_group: "mc_group".to_owned(),
    };
    assert_eq!(shouted.provider_id("aks-pool-abc"), id);
    assert_eq!(names::node_claim("aks-pool-abc"), Some("pool-abc"));
    for other in [
        "aws:///zone/i-1",
        "azure:///subscriptions/other/resourceGroups/mc_group/providers/Microsoft.Compute/virtualMachines/x",
        "azure:///subscriptions/sub/resourceGroups/other/providers/Microsoft.Compute/virtualMachines/x",
        "azure:///subscriptions/sub/resourceGroups/mc_group/providers/Microsoft.Compute/virtualMachines/",
        "azure:///subscriptions/sub/resourceGroups/mc_group/providers/Microsoft.Compute/virtualMachineScaleSets/x/virtualMachines/0",
    ] {
        assert_eq!(place.machine_of(other), None, "{other}");
    }
}
