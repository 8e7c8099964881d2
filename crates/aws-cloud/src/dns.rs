//! The address of the cluster's DNS service, at which nodes resolve names and by which they get IPv4 or IPv6 (A5.3).
//!
//! Owns the look-up of the Service where no setting names the address. What nodes are told of it is decided in `provider-aws`.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use spokeshave_ports::{SharedClock, causes};

/// Namespace and name of the Service, in every cluster of EKS.
const SERVICE: (&str, &str) = ("kube-system", "kube-dns");
/// Pause after a question that the API server has not answered.
const RETRY: Duration = Duration::from_secs(5);
/// What is not there is looked for again this often: the add-on of CoreDNS may come after the operator.
const PERIOD: Duration = Duration::from_secs(5 * 60);

/// The address, once it is known. It stays: a Service keeps its address.
#[derive(Debug)]
pub(crate) struct Dns {
    address: OnceLock<IpAddr>,
    /// Whether the API server has answered once.
    is_answered: AtomicBool,
}

impl Dns {
    /// The address that a setting names, or none yet.
    pub(crate) fn new(set: Option<IpAddr>) -> Self {
        Dns {
            address: set.map_or_else(OnceLock::new, OnceLock::from),
            is_answered: AtomicBool::new(false),
        }
    }

    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.address.get().copied()
    }

    /// Whether the address is known, or the API server has said that there is none: only then is it known what nodes are launched with.
    pub(crate) fn is_settled(&self) -> bool {
        self.address().is_some() || self.is_answered.load(Ordering::Acquire)
    }

    /// Completes when it is settled.
    pub(crate) async fn find(&self, client: &Client, clock: &SharedClock) {
        if self.is_settled() {
            return;
        }
        let reason = self.look(client, clock, "nothing is launched before").await;
        self.is_answered.store(true, Ordering::Release);
        if let Some(reason) = reason {
            tracing::info!(
                reason,
                "no address of a DNS service: nodes are launched as in a cluster of IPv4, and with the DNS address that their image works out; set CLUSTER_DNS_IP where that is wrong"
            );
        }
    }

    /// Finds it, and looks for what was not there until it is.
    pub(crate) async fn follow(&self, client: &Client, clock: &SharedClock) {
        self.find(client, clock).await;
        while self.address().is_none() {
            clock.sleep(PERIOD).await;
            self.look(client, clock, "nodes are launched without its address meanwhile")
                .await;
        }
    }

    /// Asks until there is an answer; `effect` is what holds until then. `Some` says why there is no address.
    async fn look(&self, client: &Client, clock: &SharedClock, effect: &str) -> Option<String> {
        let (namespace, name) = SERVICE;
        loop {
            match ask(client).await {
                Ok(Ok(address)) => {
                    self.address.get_or_init(|| address);
                    tracing::info!(%address, "found the DNS service of the cluster");
                    return None;
                }
                Ok(Err(reason)) => return Some(reason),
                Err(error) => {
                    tracing::warn!(error = %causes(&error), "cannot get Service {namespace}/{name}: {effect}; it is tried again");
                    clock.sleep(RETRY).await;
                }
            }
        }
    }
}

/// The address, or why there is none; an error where that is not known.
async fn ask(client: &Client) -> kube::Result<Result<IpAddr, String>> {
    let (namespace, name) = SERVICE;
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = match services.get_opt(name).await {
        Ok(Some(service)) => service,
        Ok(None) => return Ok(Err(format!("Service {namespace}/{name} does not exist"))),
        // A role that was not made by this version's chart.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            return Ok(Err(format!(
                "{}; allow the operator to get Service {namespace}/{name}",
                status.message
            )));
        }
        Err(error) => return Err(error),
    };
    let address = service.spec.and_then(|spec| spec.cluster_ip).unwrap_or_default();
    let no_address =
        format!("clusterIP of Service {namespace}/{name} is {address:?}; expected an IP address");
    Ok(address.parse().map_err(|_| no_address))
}
