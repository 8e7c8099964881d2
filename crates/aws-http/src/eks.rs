//! The cluster as EKS describes it.

use serde::Deserialize;
use spokeshave_provider_aws::replies::Cluster;

use crate::endpoints::Service;
use crate::error::CallError;
use crate::session::{Request, Session};

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
pub(crate) fn escaped(segment: &str) -> String {
    form_urlencoded::byte_serialize(segment.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}
