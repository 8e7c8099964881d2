//! User data: what a node does when it starts, so that it joins the cluster as its NodeClaim says (A5.3).
//!
//! Owns what each family of images is given, and how that goes together with the class's own user data. [`Bootstrap::of`] completes what a class
//! and a claim say; [`render`] writes it down.

mod bottlerocket;
mod mime;
mod node_config;
mod script;

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value, json};
use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{AmiFamily, InstanceStorePolicy};

/// EC2's limit, in bytes before base64.
pub const LIMIT_BYTES: usize = 16_384;

/// Label that tells a node's components that the taints which the kubelet registers are the whole of them.
const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";

/// The taint that keeps pods away until the Node has registered.
const UNREGISTERED: &str = "karpenter.sh/unregistered";

/// The cluster that a node joins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Address of its API server.
    pub endpoint: String,
    /// Certificates of its authority, base64.
    pub ca_bundle: Option<String>,
    /// Range of its services' addresses.
    pub cidr: Option<String>,
    /// Address of its DNS service.
    pub dns: Option<IpAddr>,
}

/// All that user data depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Bootstrap<'a> {
    /// Family of the image.
    pub family: AmiFamily,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Labels that the kubelet gives its Node.
    pub labels: BTreeMap<String, String>,
    /// Taints that the kubelet gives its Node, in order.
    pub taints: Vec<Taint>,
    /// Fields of the kubelet's configuration.
    pub kubelet: Map<String, Value>,
    /// The class's own user data.
    pub user_data: Option<&'a str>,
    /// Use of the disks that the instance type brings along.
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Version of a Bottlerocket image, as far as it is known.
    pub bottlerocket_version: Option<(u64, u64)>,
}

/// Why there is no user data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// AL2023 needs to know the services' addresses, and they are not known yet.
    #[error(
        "resolving cluster CIDR: AL2023 nodes need the address range of the cluster's services, which is not known yet"
    )]
    ClusterCidrUnknown,
    /// Nodes need to know where the API server is, and it is not known yet.
    #[error(
        "resolving cluster endpoint: the address of the API server is not known yet; set CLUSTER_ENDPOINT, or have eks:DescribeCluster tell it: it keeps being asked, and events of the EC2NodeClass or the log say why it does not answer"
    )]
    ClusterEndpointUnknown,
    /// The certificates cannot be handed on.
    #[error("the cluster's CA bundle is not base64: {0}")]
    CaBundle(String),
    /// The class's user data is no MIME archive, though it begins as one.
    #[error("spec.userData: {0}; write a multipart MIME archive, or a script")]
    Mime(String),
    /// The class's user data is no TOML.
    #[error("spec.userData is not TOML, which Bottlerocket nodes need: {0}")]
    Toml(String),
    /// A setting has a type that Bottlerocket does not take.
    #[error("spec.userData: {path} must be {expected}")]
    Setting {
        /// Path of the setting.
        path: String,
        /// What it must be.
        expected: &'static str,
    },
    /// The result is larger than EC2 takes.
    #[error(
        "user data has {bytes} bytes, EC2 takes at most {LIMIT_BYTES}; shorten spec.userData or fetch the rest at start"
    )]
    TooLarge {
        /// Size of the result.
        bytes: usize,
    },
}

impl<'a> Bootstrap<'a> {
    /// What nodes of a class are given, for a claim with these labels and taints whose instance type holds `pods` pods.
    #[must_use]
    pub fn of(
        class: &'a EC2NodeClass,
        cluster: &'a Cluster,
        labels: &BTreeMap<String, String>,
        taints: &[Taint],
        pods: i64,
    ) -> Self {
        let family = class.resolved_ami_family();
        let mut labels: BTreeMap<String, String> = labels
            .iter()
            .filter(|(key, _)| kubelet_may_set(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if family != AmiFamily::Custom {
            labels.insert(DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
        }
        let mut taints = taints.to_vec();
        if !taints.iter().any(|taint| taint.key == UNREGISTERED) {
            taints.push(Taint {
                key: UNREGISTERED.to_owned(),
                effect: "NoExecute".to_owned(),
                ..Taint::default()
            });
        }
        let mut kubelet = class
            .spec
            .kubelet
            .as_ref()
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        kubelet.entry("maxPods").or_insert_with(|| json!(pods));
        Bootstrap {
            bottlerocket_version: bottlerocket::version(class),
            family,
            cluster,
            labels,
            taints,
            kubelet,
            user_data: class.spec.user_data.as_deref(),
            instance_store_policy: class.spec.instance_store_policy.clone(),
        }
    }

    /// The address that pods resolve names at: the kubelet's setting, else the cluster's service.
    fn dns(&self) -> Option<String> {
        let configured = self.kubelet.get("clusterDNS").and_then(Value::as_array);
        let first = configured.and_then(|addresses| addresses.first()?.as_str());
        first
            .map(str::to_owned)
            .or_else(|| self.cluster.dns.map(|address| address.to_string()))
    }

    fn uses_raid0(&self) -> bool {
        self.instance_store_policy == Some(InstanceStorePolicy::Raid0)
    }
}

/// Whether a kubelet may give its Node this label: it may set none of Kubernetes' own domains, and one of ours that admission would refuse is
/// set by the life cycle instead.
fn kubelet_may_set(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    !["kubernetes.io", "k8s.io"]
        .iter()
        .any(|reserved| domain == *reserved || domain.ends_with(&format!(".{reserved}")))
}

/// Writes user data down, as it is before base64.
///
/// # Errors
/// When the class's own user data or the cluster does not allow it, or when the result is larger than EC2 takes.
pub fn render(bootstrap: &Bootstrap<'_>) -> Result<String, UserDataError> {
    let is_own = matches!(bootstrap.family, AmiFamily::Custom | AmiFamily::Other(_));
    if !is_own && bootstrap.cluster.endpoint.is_empty() {
        return Err(UserDataError::ClusterEndpointUnknown);
    }
    let text = match bootstrap.family {
        AmiFamily::Al2023 => node_config::render(bootstrap)?,
        AmiFamily::Al2 => script::render_al2(bootstrap)?,
        AmiFamily::Bottlerocket => bottlerocket::render(bootstrap)?,
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            script::render_windows(bootstrap)
        }
        AmiFamily::Custom | AmiFamily::Other(_) => bootstrap.user_data.unwrap_or_default().to_owned(),
    };
    if text.len() > LIMIT_BYTES {
        return Err(UserDataError::TooLarge { bytes: text.len() });
    }
    Ok(text)
}
