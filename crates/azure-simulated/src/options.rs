//! How this Azure behaves.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use spokeshave_azure_cloud::{AzureOptions, Endpoints};
use spokeshave_provider_azure::aks_machines::MachinePool;
use spokeshave_provider_azure::bootstrap::Cluster;
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::instance_types::Settings;
use spokeshave_provider_azure::names::Place;
use spokeshave_provider_azure::requests::Access;

use crate::TEMPLATE;

/// The resource group of the nodes.
const NODE_RESOURCE_GROUP: &str = "rehearsal-nodes";
/// No machine here lets anybody in.
const NOBODY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA rehearsal";

/// How an Azure behaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The tenant.
    pub tenant: String,
    /// Client ID of the identity that may log in.
    pub client_id: String,
    /// What it must show for that.
    pub assertion: String,
    /// The subscription.
    pub subscription: String,
    /// The location.
    pub region: String,
    /// Resource group of the nodes.
    pub node_resource_group: String,
    /// The agent pool in which AKS makes machines, if there is one.
    pub machine_pool: Option<MachinePool>,
    /// Subnets that exist, by resource ID.
    pub subnets: Vec<String>,
    /// Versions of every image in the galleries, oldest first.
    pub image_versions: Vec<String>,
    /// vCPUs of each family that may be used; a family without entry has plenty.
    pub quota: BTreeMap<String, i64>,
    /// How long a token lasts.
    pub token_lasts: SignedDuration,
    /// How long a machine or a network interface takes to be made.
    pub making: SignedDuration,
    /// How long a machine takes to end.
    pub ending: SignedDuration,
    /// How long a machine that is made takes to start and to join the cluster.
    pub joining: SignedDuration,
    /// How far Resource Graph is behind.
    pub graph_lag: SignedDuration,
    /// Entries of a page.
    pub page: usize,
    /// Where this Azure is reached: links in its replies begin with it.
    pub base: String,
}

impl Options {
    /// An Azure that answers at once in everything.
    #[must_use]
    pub fn instant() -> Self {
        let network =
            "/subscriptions/sub/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/cluster";
        Options {
            tenant: "tenant".to_owned(),
            client_id: "client".to_owned(),
            assertion: "assertion".to_owned(),
            subscription: "sub".to_owned(),
            region: "southcentralus".to_owned(),
            node_resource_group: NODE_RESOURCE_GROUP.to_owned(),
            machine_pool: None,
            subnets: vec![format!("{network}/subnets/nodes")],
            image_versions: ["202607.1.0", "202608.1.0"].map(str::to_owned).into(),
            quota: BTreeMap::new(),
            token_lasts: SignedDuration::from_hours(1),
            making: SignedDuration::ZERO,
            ending: SignedDuration::ZERO,
            joining: SignedDuration::ZERO,
            graph_lag: SignedDuration::ZERO,
            page: 25,
            base: "https://azure.example".to_owned(),
        }
    }

    /// An Azure that takes its time.
    #[must_use]
    pub fn slow() -> Self {
        Options {
            making: SignedDuration::from_secs(40),
            ending: SignedDuration::from_secs(90),
            joining: SignedDuration::from_secs(30),
            graph_lag: SignedDuration::from_secs(60),
            ..Options::instant()
        }
    }

    /// The same with an agent pool in which AKS makes machines.
    #[must_use]
    pub fn with_machine_pool(self, cluster: &str) -> Self {
        let pool = MachinePool {
            subscription: self.subscription.clone(),
            resource_group: "rehearsal".to_owned(),
            cluster: cluster.to_owned(),
            name: "machines".to_owned(),
        };
        Options {
            machine_pool: Some(pool),
            ..self
        }
    }

    /// What a provider for this cluster is given to work here: AKS makes machines where it has an agent pool for them.
    #[must_use]
    pub fn provider_options(&self, cluster: Cluster) -> AzureOptions {
        AzureOptions {
            endpoints: Endpoints {
                resource_manager: self.base.clone(),
                login: self.base.clone(),
                audience: self.base.clone(),
                prices: self.base.clone(),
            },
            tenant_id: self.tenant.clone(),
            client_id: self.client_id.clone(),
            cluster_name: cluster.name.clone(),
            place: Place {
                subscription: self.subscription.clone(),
                resource_group: self.node_resource_group.clone(),
            },
            machine_pool: self.machine_pool.clone(),
            settings: Settings {
                region: self.region.clone(),
                node_resource_group: self.node_resource_group.clone(),
                mode: match self.machine_pool {
                    Some(_) => ProvisionMode::AksMachine,
                    None => ProvisionMode::Template,
                },
                ..Settings::default()
            },
            vnet_subnet_id: self.subnets[0].clone(),
            access: Access {
                admin_username: "azureuser".to_owned(),
                ssh_public_key: NOBODY.to_owned(),
                ..Access::default()
            },
            cluster,
            bootstrap_template: TEMPLATE.to_owned(),
            ..AzureOptions::default()
        }
    }
}

/// Machines that cannot be made, and what is said about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Size; `None` for all.
    pub size: Option<String>,
    /// Zone as ARM names it; `None` for all, and for none.
    pub zone: Option<String>,
    /// Whether only spot machines, or only others, are refused.
    pub spot: Option<bool>,
    /// HTTP status of the reply; `None` when the request is accepted and its operation fails.
    pub status: Option<u16>,
    /// Code.
    pub code: String,
    /// Message.
    pub message: String,
}
