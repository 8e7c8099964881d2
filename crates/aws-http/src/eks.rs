//! The cluster as EKS describes it.

use serde::Deserialize;

use crate::endpoints::Service;
use crate::error::CallError;
use crate::session::{Request, Session};

/// What nodes and settings need of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// Address of the API server.
    pub endpoint: String,
    /// Certificates of the API server, PEM in base64.
    pub certificate_authority: String,
    /// Version of Kubernetes, such as `1.34`.
    pub version: String,
    /// ARN.
    pub arn: String,
    /// Addresses of Services, IPv4.
    pub service_ipv4_cidr: Option<String>,
    /// Addresses of Services, IPv6.
    pub service_ipv6_cidr: Option<String>,
    /// Whether EKS may shift traffic, and capacity, away from zones.
    pub zonal_shift: bool,
}

#[derive(Deserialize)]
struct Reply {
    cluster: Described,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Described {
    endpoint: Option<String>,
    certificate_authority: CertificateAuthority,
    version: Option<String>,
    arn: Option<String>,
    kubernetes_network_config: NetworkConfig,
    zonal_shift_config: Option<ZonalShift>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CertificateAuthority {
    data: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NetworkConfig {
    service_ipv4_cidr: Option<String>,
    service_ipv6_cidr: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ZonalShift {
    enabled: bool,
}

/// `DescribeCluster`.
///
/// # Errors
///
/// `ResourceNotFoundException`, denied calls, or no answer.
pub async fn cluster(session: &Session, name: &str) -> Result<Cluster, CallError> {
    let path = format!("/clusters/{}", escaped(name));
    let request = Request::get(Service::Eks, "DescribeCluster", path);
    let Described {
        endpoint,
        certificate_authority,
        version,
        arn,
        kubernetes_network_config: network,
        zonal_shift_config,
    } = session.json::<Reply>(&request).await?.cluster;
    Ok(Cluster {
        endpoint: endpoint.unwrap_or_default(),
        certificate_authority: certificate_authority.data.unwrap_or_default(),
        version: version.unwrap_or_default(),
        arn: arn.unwrap_or_default(),
        service_ipv4_cidr: network.service_ipv4_cidr,
        service_ipv6_cidr: network.service_ipv6_cidr,
        zonal_shift: zonal_shift_config.is_some_and(|config| config.enabled),
    })
}

/// A segment of a path.
fn escaped(segment: &str) -> String {
    form_urlencoded::byte_serialize(segment.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}
