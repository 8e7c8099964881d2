//! What ARM is asked for (Z-031, Z-056).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spokeshave_model::CapacityType;
use spokeshave_provider_azure::requests::{Access, Interface, Machine, list_query};
use spokeshave_provider_azure::skus;
use spokeshave_provider_azure::tags::{self, TagError};

use crate::{REGION, class};

fn access() -> Access {
    Access {
        admin_username: "azureuser".to_owned(),
        ssh_public_key: "ssh-ed25519 AAAA".to_owned(),
        ..Access::default()
    }
}

fn machine(
    size: &str,
    spec: &str,
    capacity_type: CapacityType,
    zone: Option<&str>,
    access: &Access,
    image: &str,
) -> Value {
    let sku = skus::facts(REGION)
        .into_iter()
        .find(|sku| sku.name == size)
        .unwrap();
    Machine {
        name: "aks-claim",
        location: REGION,
        zone,
        capacity_type,
        sku: &sku,
        class: &class(spec),
        image_id: image,
        interface_id: "/nic",
        tags: &BTreeMap::from([("a".to_owned(), "b".to_owned())]),
        custom_data: "#!/bin/sh\n",
        access,
        has_ultra_disks: zone.is_none(),
    }
    .body()
}

#[test]
fn z_031_a_spot_machine_in_a_zone() {
    let body = machine(
        "Standard_D4s_v5",
        "{}",
        CapacityType::Spot,
        Some("2"),
        &access(),
        "/CommunityGalleries/g/images/i/versions/v",
    );
    assert_eq!(
        body,
        json!({
            "location": REGION,
            "zones": ["2"],
            "tags": {"a": "b"},
            "properties": {
                "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
                "storageProfile": {
                    "osDisk": {"name": "aks-claim", "diskSizeGB": 128, "createOption": "FromImage", "deleteOption": "Delete"},
                    "imageReference": {"communityGalleryImageId": "/CommunityGalleries/g/images/i/versions/v"},
                },
                "osProfile": {
                    "computerName": "aks-claim",
                    "adminUsername": "azureuser",
                    "customData": "IyEvYmluL3NoCg==",
                    "linuxConfiguration": {
                        "disablePasswordAuthentication": true,
                        "ssh": {"publicKeys": [{"keyData": "ssh-ed25519 AAAA", "path": "/home/azureuser/.ssh/authorized_keys"}]},
                    },
                },
                "networkProfile": {"networkInterfaces": [{"id": "/nic", "properties": {"primary": true, "deleteOption": "Delete"}}]},
                "priority": "Spot",
                "evictionPolicy": "Delete",
                "billingProfile": {"maxPrice": -1},
            },
        })
    );
}

#[test]
fn z_031_what_else_a_machine_may_have() {
    let access = Access {
        identities: vec!["/identity".to_owned()],
        disk_encryption_set_id: Some("/keys".to_owned()),
        ..access()
    };
    let secure = "{osDiskSizeGB: 64, security: {encryptionAtHost: true, trustedLaunch: {vtpm: true}}}";
    let body = machine(
        "Standard_D2ds_v5",
        secure,
        CapacityType::OnDemand,
        None,
        &access,
        "/subscriptions/x/images/y",
    );
    let properties = &body["properties"];
    assert_eq!(body.get("zones"), None);
    assert_eq!(
        properties["additionalCapabilities"],
        json!({"ultraSSDEnabled": true})
    );
    assert_eq!(
        body["identity"],
        json!({"type": "UserAssigned", "userAssignedIdentities": {"/identity": {}}})
    );
    assert_eq!(properties["priority"], "Regular");
    assert_eq!(properties.get("evictionPolicy"), None);
    assert_eq!(
        properties["storageProfile"]["imageReference"],
        json!({"id": "/subscriptions/x/images/y"})
    );
    assert_eq!(
        properties["securityProfile"],
        json!({"encryptionAtHost": true, "securityType": "TrustedLaunch", "uefiSettings": {"secureBootEnabled": false, "vTpmEnabled": true}})
    );
    let disk = &properties["storageProfile"]["osDisk"];
    assert_eq!(
        disk["diffDiskSettings"],
        json!({"option": "Local", "placement": "ResourceDisk"})
    );
    assert_eq!(
        disk.get("managedDisk"),
        None,
        "a disk on the host has no keys of its own"
    );
    let remote = machine(
        "Standard_D2ds_v5",
        "{}",
        CapacityType::OnDemand,
        None,
        &access,
        "/i",
    );
    let disk = &remote["properties"]["storageProfile"]["osDisk"];
    assert_eq!(disk["managedDisk"], json!({"diskEncryptionSet": {"id": "/keys"}}));
    assert_eq!(disk.get("diffDiskSettings"), None);
}

#[test]
fn z_031_a_network_interface() {
    let pools = vec!["/pool".to_owned()];
    let tags = BTreeMap::new();
    let interface = Interface {
        location: REGION,
        tags: &tags,
        subnet_id: "/subnet",
        backend_pools: &pools,
        security_group_id: Some("/group"),
        is_accelerated: true,
        pod_addresses: 2,
    };
    let body = interface.body();
    let secondary = |name: &str| json!({"name": name, "properties": {"primary": false, "privateIPAllocationMethod": "Dynamic", "subnet": {"id": "/subnet"}}});
    assert_eq!(
        body["properties"],
        json!({
            "enableAcceleratedNetworking": true,
            "enableIPForwarding": true,
            "networkSecurityGroup": {"id": "/group"},
            "ipConfigurations": [
                {"name": "ipConfig1", "properties": {
                    "primary": true, "privateIPAllocationMethod": "Dynamic", "subnet": {"id": "/subnet"},
                    "loadBalancerBackendAddressPools": [{"id": "/pool"}],
                }},
                secondary("ipConfig2"),
                secondary("ipConfig3"),
            ],
        })
    );
}

#[test]
fn z_050_what_is_listed() {
    assert_eq!(
        list_query("Microsoft.Compute/virtualMachines", "MC_Group", "clus'ter"),
        "Resources | where type == 'microsoft.compute/virtualmachines' | where resourceGroup == 'mc_group' | where tags has_cs 'karpenter.sh_nodepool' | where tags['karpenter.azure.com_cluster'] == 'cluster' | order by id asc"
    );
}

#[test]
fn z_056_tags() {
    let additional = BTreeMap::from([
        ("cost/center".to_owned(), "1".to_owned()),
        ("team".to_owned(), "z".to_owned()),
    ]);
    let own = [(tags::CLUSTER, "c"), (tags::NODE_POOL, "p")];
    let made = tags::launch(&class("{tags: {team: a, a/b/c: d}}"), &additional, &own).unwrap();
    let made: Vec<String> = made.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        made,
        [
            "a_b_c=d",
            "compute.aks.billing=linux",
            "cost_center=1",
            "karpenter.azure.com_cluster=c",
            "karpenter.sh_nodepool=p",
            "team=a",
        ]
    );
    let reserved = tags::launch(
        &class("{tags: {Karpenter.sh/NodePool: x}}"),
        &BTreeMap::new(),
        &own,
    );
    assert_eq!(
        reserved,
        Err(TagError::Reserved("Karpenter.sh_NodePool".to_owned()))
    );
    let many: BTreeMap<String, String> = (0..48).map(|it| (format!("k{it}"), String::new())).collect();
    assert_eq!(
        tags::launch(&class("{}"), &many, &own),
        Err(TagError::TooMany(51))
    );
    let most: BTreeMap<String, String> = many.into_iter().skip(1).collect();
    assert_eq!(tags::launch(&class("{}"), &most, &own).unwrap().len(), 50);
}

/// Azure holds two spellings of a name to be one: the class's counts, and of two of the class's the last.
#[test]
fn z_056_a_name_in_two_spellings_is_one_tag() {
    let additional = BTreeMap::from([
        ("Env".to_owned(), "prod".to_owned()),
        ("cost/Center".to_owned(), "1".to_owned()),
    ]);
    let class = class("{tags: {env: dev, COST_CENTER: '2', Team: a, team: b}}");
    let tags: Vec<String> = tags::of_user(&class, &additional)
        .unwrap()
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(tags, ["COST_CENTER=2", "env=dev", "team=b"]);
}

/// How AKS counts a machine is no user's to say, at a launch or later.
#[test]
fn z_056_the_tag_that_aks_counts_by_is_neither_changed_nor_taken_away() {
    let billing = |value: &str| BTreeMap::from([(tags::BILLING.to_owned(), value.to_owned())]);
    let class = class("{tags: {Compute.AKS.billing: x}}");
    assert_eq!(tags::of_user(&class, &billing("y")).unwrap(), BTreeMap::new());
    assert_eq!(
        tags::launch(&class, &billing("y"), &[]).unwrap(),
        billing("linux")
    );
    // As NodeClaims of a former version say that it was asked for.
    let changed = tags::changed(&billing("linux"), &billing("x"), &BTreeMap::new());
    assert_eq!(changed.unwrap(), None);
}

#[test]
fn z_056_a_change_of_tags_touches_only_what_was_asked_for() {
    let tags_of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        let pairs = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        pairs.collect()
    };
    let current = tags_of(&[
        (tags::NODE_POOL, "p"),
        ("Team", "a"),
        ("old", "x"),
        ("by-policy", "y"),
    ]);
    let (before, wanted) = (tags_of(&[("team", "a"), ("OLD", "x")]), tags_of(&[("team", "b")]));
    let changed = tags::changed(&current, &before, &wanted).unwrap().unwrap();
    assert_eq!(
        changed,
        tags_of(&[(tags::NODE_POOL, "p"), ("team", "b"), ("by-policy", "y")]),
        "names are the same in whatever case"
    );
    assert_eq!(tags::changed(&changed, &before, &wanted).unwrap(), None);
    let many: BTreeMap<String, String> = (0..50).map(|it| (format!("k{it}"), String::new())).collect();
    assert_eq!(
        tags::changed(&current, &before, &many),
        Err(TagError::TooMany(52))
    );
    let reserved = tags::of_user(&class("{tags: {Karpenter.sh/NodePool: x}}"), &BTreeMap::new());
    assert_eq!(
        reserved,
        Err(TagError::Reserved("Karpenter.sh_NodePool".to_owned()))
    );
}
