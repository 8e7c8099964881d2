//! What a cluster has that may need converting. A kind that is not served is passed over; nothing is written.

use anyhow::{Context as _, Result};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, Error};
use serde_json::Value;

use super::source::{Placed, Source};
use crate::cluster::Cluster;
use crate::connection::ClusterArgs;
use crate::lines::Lines;

/// Kinds that are read: versions that are tried in order, kind, plural. NodeClaims and Machines are left to the NodePools that make them.
const KINDS: [(&[&str], &str, &str); 12] = [
    (&["karpenter.sh/v1alpha5"], "Provisioner", "provisioners"),
    (
        &["karpenter.k8s.aws/v1alpha1"],
        "AWSNodeTemplate",
        "awsnodetemplates",
    ),
    (
        &["karpenter.sh/v1", "karpenter.sh/v1beta1"],
        "NodePool",
        "nodepools",
    ),
    (
        &["karpenter.k8s.aws/v1", "karpenter.k8s.aws/v1beta1"],
        "EC2NodeClass",
        "ec2nodeclasses",
    ),
    (&["v1"], "ConfigMap", "configmaps"),
    (&["apps/v1"], "Deployment", "deployments"),
    (&["apps/v1"], "StatefulSet", "statefulsets"),
    (&["apps/v1"], "DaemonSet", "daemonsets"),
    (&["batch/v1"], "Job", "jobs"),
    (&["batch/v1"], "CronJob", "cronjobs"),
    (&["v1"], "Pod", "pods"),
    (&["v1"], "Node", "nodes"),
];

/// Reads them.
///
/// # Errors
/// The cluster does not answer, or refuses a list.
pub(crate) async fn read(cluster: &ClusterArgs) -> Result<Source> {
    let cluster = Cluster::reach(cluster).await?;
    let mut source = Source::default();
    for (versions, kind, plural) in KINDS {
        let Some((version, objects)) = first_served(&cluster.client, versions, kind, plural).await? else {
            continue;
        };
        for object in objects {
            let mut value = serde_json::to_value(&object).with_context(|| format!("{kind} as JSON"))?;
            value["apiVersion"] = version.into();
            value["kind"] = kind.into();
            if let Some(object) = manifest(value) {
                source.objects.push(Placed {
                    object,
                    origin: "cluster".to_owned(),
                    line: None,
                    lines: Lines::default(),
                });
            }
        }
    }
    Ok(source)
}

async fn first_served<'a>(
    client: &Client,
    versions: &[&'a str],
    kind: &str,
    plural: &str,
) -> Result<Option<(&'a str, Vec<DynamicObject>)>> {
    for version in versions {
        let (group, number) = version.split_once('/').unwrap_or(("", version));
        let kind_of = GroupVersionKind::gvk(group, number, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind_of, plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match api.list(&ListParams::default()).await {
            Ok(list) => return Ok(Some((version, list.items))),
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("cannot list {kind}s of {version}")),
        }
    }
    Ok(None)
}

/// The object as one would write it: without what the server and controllers added. None of what a controller made: its owner is converted.
fn manifest(mut object: Value) -> Option<Value> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "ConfigMap" && object["metadata"]["name"] != "karpenter-global-settings" {
        return None;
    }
    let meta = object["metadata"].as_object_mut()?;
    let owners = meta.get("ownerReferences").and_then(Value::as_array);
    let is_owned = owners.is_some_and(|owners| owners.iter().any(|owner| owner["controller"] == true));
    if is_owned && kind != "Node" {
        return None;
    }
    for key in [
        "managedFields",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "ownerReferences",
        "selfLink",
    ] {
        meta.remove(key);
    }
    if let Some(annotations) = meta.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
        if kind == "Node" {
            map.remove("spec");
        }
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_controllers_made_is_left_to_its_owner() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1", "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]}});
        assert_eq!(manifest(pod), None);
        let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1"}, "status": {"phase": "Running"}});
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        assert_eq!(manifest(bare), Some(expected));
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        assert_eq!(manifest(other), None);
    }
}
