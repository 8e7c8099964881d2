//! Settings of AWS (A10).

use std::net::IpAddr;
use std::time::Duration;

use spokeshave_provider_aws::instance_types::Settings;
use spokeshave_provider_aws::user_data::Cluster;

/// What the operator is told about AWS.
#[derive(Clone, Debug, PartialEq)]
pub struct AwsOptions {
    /// Region of the cluster.
    pub region: String,
    /// Name of the cluster: value of tags, and part of user data.
    pub cluster_name: String,
    /// Address of the API server for new nodes; EKS is asked for it when there is none.
    pub cluster_endpoint: Option<String>,
    /// Certificates of the API server, PEM in base64.
    pub cluster_ca_bundle: Option<String>,
    /// Certificates by which the operator itself reaches the API server, in the same form: for new nodes while EKS has not told the cluster's.
    pub own_ca_bundle: Option<String>,
    /// Address of the cluster's DNS service, which decides whether nodes have IPv6; the Service `kube-system/kube-dns` is asked for it when there is none.
    pub cluster_dns: Option<IpAddr>,
    /// Minor version of Kubernetes at the start, for images by alias; upgrades are noticed later.
    pub kubernetes_minor: u32,
    /// No call leaves the VPC for services without endpoints there: IAM and pricing.
    pub isolated_vpc: bool,
    /// What the arithmetic of instance types reads.
    pub types: Settings,
    /// Name of the queue of interruptions; without one it is not listened to.
    pub interruption_queue: Option<String>,
    /// Launches from a class are not rehearsed.
    pub disable_dry_run: bool,
    /// Capacity reservations are used.
    pub reserved_capacity: bool,
    /// NodeOverlays give prices to instance types that have none.
    pub node_overlays: bool,
    /// Zonal shifts of the cluster are respected.
    pub zonal_shift: bool,
    /// Images of a class that were found are looked for again after this time.
    pub ami_refresh_interval: Duration,
    /// Subnets of a class that were found are looked for again after this time.
    pub subnet_refresh_interval: Duration,
}

impl AwsOptions {
    /// Settings for a cluster in a region, everything else as by default.
    #[must_use]
    pub fn new(region: &str, cluster_name: &str) -> Self {
        AwsOptions {
            region: region.to_owned(),
            cluster_name: cluster_name.to_owned(),
            cluster_endpoint: None,
            cluster_ca_bundle: None,
            own_ca_bundle: None,
            cluster_dns: None,
            kubernetes_minor: 0,
            isolated_vpc: false,
            types: Settings::default(),
            interruption_queue: None,
            disable_dry_run: false,
            reserved_capacity: true,
            node_overlays: false,
            zonal_shift: false,
            ami_refresh_interval: Duration::from_secs(60),
            subnet_refresh_interval: Duration::from_secs(60),
        }
    }

    /// The cluster as nodes are told of it.
    #[must_use]
    pub fn cluster(&self, cidr: Option<String>, dns: Option<IpAddr>) -> Cluster {
        Cluster {
            name: self.cluster_name.clone(),
            endpoint: self.cluster_endpoint.clone().unwrap_or_default(),
            ca_bundle: self.cluster_ca_bundle.clone(),
            cidr,
            dns,
        }
    }
}
