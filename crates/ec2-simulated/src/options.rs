//! How the simulated EC2 behaves.

use std::collections::BTreeSet;
use std::time::Duration;

/// How the simulated EC2 behaves. Times are those of the caller's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Names spot prices and IDs.
    pub seed: u64,
    /// Name of the cluster, which EKS describes and whose network the account has.
    pub cluster_name: String,
    /// Name of the queue of interruptions; `None` for an account without one.
    pub queue_name: Option<String>,
    /// Address of the API server, as EKS describes it.
    pub endpoint: String,
    /// Certificates of the API server, PEM in base64, as EKS describes them.
    pub certificate_authority: String,
    /// Minor version of Kubernetes, as EKS describes it.
    pub kubernetes_minor: u32,
    /// Roles that exist; `None` where every role does.
    pub roles: Option<BTreeSet<String>>,
    /// How long a call takes, there and back.
    pub latency: Duration,
    /// How long a new instance is not found by its ID.
    pub visibility_delay: Duration,
    /// From launch to `running`.
    pub boot_delay: Duration,
    /// From launch until the node joins the cluster.
    pub join_delay: Duration,
    /// From `shutting-down` to `terminated`.
    pub termination_delay: Duration,
    /// How long EC2 does not know an instance profile that IAM has made.
    pub profile_delay: Duration,
    /// Whether calls are limited as EC2 limits them.
    pub is_throttled: bool,
}

impl Options {
    /// An EC2 with the usual delays.
    #[must_use]
    pub fn new(cluster_name: &str) -> Self {
        Options {
            seed: 1,
            cluster_name: cluster_name.to_owned(),
            queue_name: Some(cluster_name.to_owned()),
            endpoint: "https://cluster.example".to_owned(),
            certificate_authority: String::new(),
            kubernetes_minor: 34,
            roles: None,
            latency: Duration::from_millis(100),
            visibility_delay: Duration::from_secs(2),
            boot_delay: Duration::from_secs(8),
            join_delay: Duration::from_secs(30),
            termination_delay: Duration::from_secs(20),
            profile_delay: Duration::from_secs(5),
            is_throttled: true,
        }
    }

    /// Everything at once: no delays and no limits, for tests of single calls.
    #[must_use]
    pub fn instant(cluster_name: &str) -> Self {
        Options {
            latency: Duration::ZERO,
            visibility_delay: Duration::ZERO,
            boot_delay: Duration::ZERO,
            join_delay: Duration::ZERO,
            termination_delay: Duration::ZERO,
            profile_delay: Duration::ZERO,
            is_throttled: false,
            ..Options::new(cluster_name)
        }
    }
}
