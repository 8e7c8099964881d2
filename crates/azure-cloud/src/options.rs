//! Settings of the provider (Z9).

use std::collections::BTreeMap;

use spokeshave_provider_azure::aks_machines::MachinePool;
use spokeshave_provider_azure::bootstrap::Cluster;
use spokeshave_provider_azure::instance_types::Settings;
use spokeshave_provider_azure::names::Place;
use spokeshave_provider_azure::requests::Access;

/// Where Azure is (Z-058): another cloud than the public one, or a server of one's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints {
    /// The resource manager.
    pub resource_manager: String,
    /// The login.
    pub login: String,
    /// Whom tokens are for.
    pub audience: String,
    /// Retail prices.
    pub prices: String,
}

impl Default for Endpoints {
    /// The public cloud.
    fn default() -> Self {
        Endpoints {
            resource_manager: "https://management.azure.com".to_owned(),
            login: "https://login.microsoftonline.com".to_owned(),
            audience: "https://management.azure.com".to_owned(),
            prices: "https://prices.azure.com".to_owned(),
        }
    }
}

/// Settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AzureOptions {
    /// Where Azure is.
    pub endpoints: Endpoints,
    /// Tenant of the identity.
    pub tenant_id: String,
    /// Client ID of the identity.
    pub client_id: String,
    /// Name of the cluster, by which machines are told from others'.
    pub cluster_name: String,
    /// Subscription and resource group of the nodes.
    pub place: Place,
    /// Location, overhead, network plugin.
    pub settings: Settings,
    /// Resource ID of the cluster's subnet.
    pub vnet_subnet_id: String,
    /// Who may log in to machines, and as whom they act.
    pub access: Access,
    /// Tags of everything that is created.
    pub additional_tags: BTreeMap<String, String>,
    /// The agent pool in which AKS makes machines; without one, none of its machines is seen.
    pub machine_pool: Option<MachinePool>,
    /// Agent pools that NodeClaims have machines in besides, which stay managed: the pool or the mode was another one when they were launched.
    pub former_pools: Vec<MachinePool>,
    /// The cluster as its nodes are told of it.
    pub cluster: Cluster,
    /// Template of custom data.
    pub bootstrap_template: String,
}
