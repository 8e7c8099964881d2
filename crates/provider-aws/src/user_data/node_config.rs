//! AL2023: a NodeConfig for nodeadm in a MIME archive, after the class's own parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::mime::{self, Part, SHELL_SCRIPT};
use super::{Bootstrap, UserDataError};

const NODE_CONFIG: &str = "application/node.eks.aws";

pub(super) fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let mut parts = own_parts(bootstrap.user_data.unwrap_or_default())?;
    let config = serde_saphyr::to_string(&config(bootstrap)?).expect("a JSON value can be written as YAML");
    parts.push(Part::new(NODE_CONFIG, &config));
    Ok(mime::write(&parts))
}

/// The class's user data as parts: an archive as it is, a NodeConfig, cloud-init's configuration, else a script.
fn own_parts(text: &str) -> Result<Vec<Part>, UserDataError> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if mime::is_archive(text) {
        return mime::parse(text);
    }
    let content_type = if text.starts_with("#cloud-config") {
        "text/cloud-config"
    } else if serde_saphyr::from_str::<Value>(text).is_ok_and(|value| value.is_object()) {
        NODE_CONFIG
    } else {
        SHELL_SCRIPT
    };
    Ok(vec![Part::new(content_type, text)])
}

fn config(bootstrap: &Bootstrap<'_>) -> Result<Value, UserDataError> {
    let cluster = bootstrap.cluster;
    let cidr = cluster.cidr.as_deref().ok_or(UserDataError::ClusterCidrUnknown)?;
    let mut described = json!({"name": cluster.name, "apiServerEndpoint": cluster.endpoint, "cidr": cidr});
    if let Some(bundle) = &cluster.ca_bundle {
        STANDARD
            .decode(bundle)
            .map_err(|error| UserDataError::CaBundle(error.to_string()))?;
        described["certificateAuthority"] = json!(bundle);
    }
    let mut kubelet = bootstrap.kubelet.clone();
    if let (false, Some(dns)) = (kubelet.contains_key("clusterDNS"), cluster.dns) {
        kubelet.insert("clusterDNS".to_owned(), json!([dns.to_string()]));
    }
    if !bootstrap.taints.is_empty() {
        kubelet.insert("registerWithTaints".to_owned(), json!(bootstrap.taints));
    }
    let mut node = json!({"config": kubelet});
    if !bootstrap.labels.is_empty() {
        let labels: Vec<String> = bootstrap
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        node["flags"] = json!([format!("--node-labels=\"{}\"", labels.join(","))]);
    }
    let local_storage = if bootstrap.uses_raid0() {
        json!({"strategy": "RAID0"})
    } else {
        json!({})
    };
    Ok(json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": {
            "cluster": described,
            "containerd": {},
            "instance": {"localStorage": local_storage},
            "kubelet": node,
        },
    }))
}
