//! Which claims keep pods waiting, where volumes can be reached, and by whom they are attached.

use super::*;
use crate::trim;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json};

fn object<T: DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(from_value(value).expect("an object written by hand"))
}

fn class(name: &str, mode: Option<&str>) -> (String, Arc<StorageClass>) {
    let topologies = json!([{"matchLabelExpressions": [{"key": "rack", "values": ["1"]}]}]);
    let value = json!({"metadata": {"name": name}, "provisioner": format!("{name}.example"),
        "volumeBindingMode": mode, "allowedTopologies": topologies});
    (name.to_owned(), object(value))
}

fn volume(name: &str, deleted: Option<&str>) -> (String, Arc<PersistentVolume>) {
    let spec = json!({"csi": {"driver": "disk.example", "volumeHandle": "h"}});
    let value = json!({"metadata": {"name": name, "deletionTimestamp": deleted}, "spec": spec});
    (name.to_owned(), object(value))
}

const GONE: Option<&str> = Some("2026-01-01T00:00:00Z");

fn objects(claim: Option<Value>) -> VolumeObjects {
    VolumeObjects {
        claims: claim
            .map(|claim| ("shop/data".to_owned(), object(claim)))
            .into_iter()
            .collect(),
        volumes: [volume("v", None), volume("leaving", GONE)].into(),
        storage_classes: [
            class("late", Some("WaitForFirstConsumer")),
            class("now", Some("Immediate")),
            class("unsaid", None),
        ]
        .into(),
        ..VolumeObjects::default()
    }
}

/// As a store keeps them.
fn kept(mut objects: VolumeObjects) -> VolumeObjects {
    for claim in objects.claims.values_mut() {
        trim::persistent_volume_claim(Arc::make_mut(claim));
    }
    for volume in objects.volumes.values_mut() {
        trim::persistent_volume(Arc::make_mut(volume));
    }
    objects
}

fn pod() -> Pod {
    let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    let value = json!({"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": [], "volumes": volumes}});
    from_value(value).expect("a pod written by hand")
}

fn problem(objects: &VolumeObjects) -> String {
    let problem = validate(&pod(), objects, &Around::default())
        .err()
        .unwrap_or_default();
    let rest = problem.strip_prefix("persistentvolumeclaim \"shop/data\", ");
    rest.map_or(problem.clone(), ToOwned::to_owned)
}

#[test]
fn p_115_what_keeps_a_pod_with_claims_from_being_planned() {
    let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let cases = [
        (None, "not found"),
        (
            Some(json!({"metadata": {"deletionTimestamp": GONE}})),
            "is being deleted",
        ),
        (
            Some(json!({"metadata": {}, "status": {"phase": "Lost"}})),
            "is lost: its volume does not exist any more",
        ),
        (
            Some(json!({"metadata": {}, "spec": {"volumeName": "gone"}})),
            "persistentvolume \"gone\" not found",
        ),
        (
            Some(json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "leaving"}})),
            "persistentvolume \"leaving\" is being deleted",
        ),
        (
            Some(json!({"metadata": {}, "spec": {"volumeName": "v"}})),
            "binding to its volume is not completed",
        ),
        (
            Some(json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v"}})),
            "",
        ),
        (
            Some(json!({"metadata": {}, "spec": {}})),
            "unbound pvc must define a storage class",
        ),
        (
            Some(json!({"metadata": {}, "spec": {"storageClassName": ""}})),
            "unbound pvc must define a storage class",
        ),
        (
            Some(json!({"metadata": {}, "spec": {"storageClassName": "gone"}})),
            "storageclass \"gone\" not found",
        ),
        (
            Some(json!({"metadata": {}, "spec": {"storageClassName": "now"}})),
            "pvc with immediate volume binding mode must be bound",
        ),
        (
            Some(json!({"metadata": {}, "spec": {"storageClassName": "unsaid"}})),
            "pvc with immediate volume binding mode must be bound",
        ),
        (
            Some(json!({"metadata": {}, "spec": {"storageClassName": "late"}})),
            "",
        ),
    ];
    for (claim, expected) in cases {
        let whole = objects(claim.clone());
        assert_eq!(problem(&whole), expected, "{claim:?}");
        assert_eq!(problem(&kept(whole)), expected, "as a store keeps {claim:?}");
    }
}

#[test]
fn p_118_a_provider_may_rule_out_provisioners_and_topology_keys() {
    let late = Some(json!({"metadata": {}, "spec": {"storageClassName": "late"}}));
    let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
    let bound = Some(json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v"}}));
    let with = |claim: &Option<Value>, provisioner: &str, key: &str| {
        let mut objects = objects(claim.clone());
        objects.unsupported.provisioners.insert(provisioner.to_owned());
        objects.unsupported.topology_keys.insert(key.to_owned());
        problem(&objects)
    };
    assert_eq!(with(&late, "other.example", "row"), "");
    assert!(with(&late, "late.example", "row").contains("provisioner \"late.example\" is not supported"));
    assert!(with(&late, "other.example", "rack").contains("storageclass \"late\" use label \"rack\""));
    assert!(with(&bound, "disk.example", "row").contains("provisioner \"disk.example\" is not supported"));
    assert_eq!(with(&bound, "late.example", "rack"), "");
}

#[test]
fn p_116_p_117_what_stores_keep_of_volumes_says_where_and_by_whom_they_are_attached() {
    let bound = json!({BIND_COMPLETED: "yes"});
    let claim = json!({"metadata": {"annotations": bound}, "spec": {"volumeName": "v"}});
    let places = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]},
        {"key": "rack", "operator": "In", "values": ["1"]},
    ]}]}});
    let sources = [
        (
            "csi",
            json!({"driver": "disk.example", "volumeHandle": "h"}),
            "disk.example",
        ),
        (
            "awsElasticBlockStore",
            json!({"volumeID": "v"}),
            "ebs.csi.aws.com",
        ),
        (
            "azureDisk",
            json!({"diskName": "v", "diskURI": "/v"}),
            "disk.csi.azure.com",
        ),
        (
            "azureFile",
            json!({"secretName": "s", "shareName": "v"}),
            "file.csi.azure.com",
        ),
        ("cinder", json!({"volumeID": "v"}), "cinder.csi.openstack.org"),
        (
            "gcePersistentDisk",
            json!({"pdName": "v"}),
            "pd.csi.storage.gke.io",
        ),
        ("portworxVolume", json!({"volumeID": "v"}), "pxd.portworx.com"),
        (
            "vsphereVolume",
            json!({"volumePath": "/v"}),
            "csi.vsphere.vmware.com",
        ),
        ("local", json!({"path": "/x"}), ""),
        ("hostPath", json!({"path": "/x"}), ""),
    ];
    let around = Around::default();
    for (source, value, driver) in sources {
        let spec = json!({source: value, "nodeAffinity": places});
        let labels = json!({"topology.kubernetes.io/zone": "a__b", "team": "shop"});
        let mut whole = objects(Some(claim.clone()));
        let volume = object(json!({"metadata": {"name": "v", "labels": labels}, "spec": spec}));
        whole.volumes.insert("v".to_owned(), volume);
        let kept = kept(whole.clone());
        let reached = terms(&pod(), &whole, &around);
        assert_eq!(reached.len(), 1, "{source}");
        assert_eq!(
            reached[0].get("topology.kubernetes.io/zone").values().len(),
            2,
            "{source}"
        );
        assert_eq!(terms(&pod(), &kept, &around), reached, "{source}");
        let attached = attachments(&pod(), &whole);
        let drivers: Vec<&str> = attached.iter().map(|(driver, _)| driver.as_str()).collect();
        assert_eq!(drivers.join(""), driver, "{source}");
        assert_eq!(attachments(&pod(), &kept), attached, "{source}");
    }
}

/// Who deletes the claim and then the pod moves it to another volume.
#[test]
fn p_115_a_claim_of_a_stateful_sets_template_is_made_anew() {
    let is_kept = |owner: &str, name: &str, claim: Value| {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": owner, "name": "db", "uid": "u", "controller": true});
        let volumes = json!([{"name": "d", "persistentVolumeClaim": {"claimName": name}}]);
        let metadata = json!({"name": "db-0", "namespace": "shop", "ownerReferences": [owner]});
        let pod: Pod =
            from_value(json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}}))
                .expect("a pod written by hand");
        let mut all = objects(None);
        all.claims.insert(format!("shop/{name}"), object(claim));
        validate_successor(&pod, &all).is_err()
    };
    let going = || json!({"metadata": {"deletionTimestamp": GONE}, "spec": {"volumeName": "leaving"}});
    assert!(!is_kept("StatefulSet", "data-db-0", going()));
    assert!(is_kept("StatefulSet", "data", going()), "of no template");
    assert!(is_kept("ReplicaSet", "data-db-0", going()), "nobody makes it");
    let lost = json!({"metadata": {}, "status": {"phase": "Lost"}});
    assert!(is_kept("StatefulSet", "data-db-0", lost), "it stays as it is");
}
