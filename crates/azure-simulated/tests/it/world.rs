//! A provider and the Azure that it asks, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use kube::api::DynamicObject;
use spokeshave_api::{
    AKSNodeClass, AKSNodeClassSpec, NodeClaim, NodeClaimSpec, NodeClassRef, NodePool, NodePoolSpec, Operator,
    Requirement,
};
use spokeshave_azure_cloud::{AzureOptions, AzureProvider, Endpoints, Outside};
use spokeshave_azure_simulated::{Azure, Options};
use spokeshave_ports::{CloudProvider as _, NoWrites, SharedClock, TokioClock};
use spokeshave_provider_azure::bootstrap::{Cluster, KUBEADM};
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::instance_types::Settings;
use spokeshave_provider_azure::names::Place;
use spokeshave_provider_azure::requests::Access;

pub(crate) const CLUSTER: &str = "cluster";

pub(crate) struct World {
    pub(crate) azure: Azure,
    pub(crate) provider: AzureProvider,
    pub(crate) clock: SharedClock,
    leader: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(leader) = &self.leader {
            leader.abort();
        }
    }
}

/// An Azure in which AKS makes machines.
pub(crate) fn with_aks(options: Options) -> Options {
    Options {
        node_resource_group: "Nodes".to_owned(),
        ..options.with_machine_pool(CLUSTER)
    }
}

pub(crate) fn provider_options(options: &Options) -> AzureOptions {
    AzureOptions {
        endpoints: Endpoints {
            resource_manager: options.base.clone(),
            login: options.base.clone(),
            audience: options.base.clone(),
            prices: options.base.clone(),
        },
        tenant_id: options.tenant.clone(),
        client_id: options.client_id.clone(),
        cluster_name: CLUSTER.to_owned(),
        place: Place {
            subscription: options.subscription.clone(),
            resource_group: "Nodes".to_owned(),
        },
        machine_pool: options.machine_pool.clone(),
        settings: Settings {
            region: options.region.clone(),
            node_resource_group: "Nodes".to_owned(),
            mode: match options.machine_pool {
                Some(_) => ProvisionMode::AksMachine,
                None => ProvisionMode::Template,
            },
            ..Settings::default()
        },
        vnet_subnet_id: options.subnets[0].clone(),
        access: Access {
            admin_username: "azureuser".to_owned(),
            ssh_public_key: "ssh-ed25519 AAAA".to_owned(),
            ..Access::default()
        },
        cluster: Cluster {
            name: CLUSTER.to_owned(),
            endpoint: "https://api.example:6443".to_owned(),
            ca_bundle: "certificate".to_owned(),
            bootstrap_token: "abcdef.0123456789abcdef".to_owned(),
            ..Cluster::default()
        },
        bootstrap_template: KUBEADM.to_owned(),
        ..AzureOptions::default()
    }
}

/// What a provider of this Azure is given.
pub(crate) fn outside(azure: &Azure) -> Outside {
    Outside {
        http: Arc::new(azure.clone()),
        assertion: Arc::new(azure.clone()),
    }
}

/// A class as core shows it to the provider.
pub(crate) fn shown(class: &AKSNodeClass) -> DynamicObject {
    let value = serde_json::to_value(class).unwrap();
    serde_json::from_value(value).unwrap()
}

impl World {
    /// An Azure, a provider that leads, and a class that is ready.
    pub(crate) async fn new(options: Options) -> Self {
        let mut world = World::without_leader(options);
        let provider = world.provider.clone();
        world.leader = Some(tokio::spawn(
            async move { provider.lead(Arc::new(NoWrites)).await },
        ));
        world.pass(15).await;
        let class = world.class("class", AKSNodeClassSpec::default()).await;
        world.provider.put_class(class);
        world
    }

    pub(crate) fn without_leader(options: Options) -> Self {
        let clock = TokioClock::new("2026-09-01T00:00:00Z".parse().unwrap(), 1.0).shared();
        let provider_options = provider_options(&options);
        let azure = Azure::new(options, clock.clone());
        let provider = AzureProvider::new(outside(&azure), clock.clone(), provider_options);
        World {
            azure,
            provider,
            clock,
            leader: None,
        }
    }

    /// Another provider at the same Azure, which leads from now on and has a class that is ready.
    pub(crate) async fn give_provider(&mut self, options: AzureOptions) {
        if let Some(leader) = self.leader.take() {
            leader.abort();
        }
        self.provider = AzureProvider::new(outside(&self.azure), self.clock.clone(), options);
        let provider = self.provider.clone();
        self.leader = Some(tokio::spawn(
            async move { provider.lead(Arc::new(NoWrites)).await },
        ));
        self.pass(15).await;
        let class = self.class("class", AKSNodeClassSpec::default()).await;
        self.provider.put_class(class);
    }

    /// A class with the status that the provider gives it.
    pub(crate) async fn class(&self, name: &str, spec: AKSNodeClassSpec) -> AKSNodeClass {
        let class = AKSNodeClass::new(name, spec);
        self.provider
            .reconcile_class(&class, Some("v1.34.1"), true)
            .await
            .0
    }

    pub(crate) async fn pass(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Sizes and states of machines.
    pub(crate) fn machines(&self) -> Vec<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let machines = self.azure.machines();
        let machines = machines.iter().map(|machine| {
            let properties = &machine["properties"];
            (
                text(&properties["hardwareProfile"]["vmSize"]),
                text(&properties["provisioningState"]),
            )
        });
        machines.collect()
    }

    /// How often something was asked.
    pub(crate) fn asked(&self, start: &str) -> usize {
        self.azure
            .log()
            .iter()
            .filter(|line| line.starts_with(start))
            .count()
    }
}

fn class_ref(name: &str) -> NodeClassRef {
    NodeClassRef {
        group: AKSNodeClass::GROUP.to_owned(),
        kind: AKSNodeClass::KIND.to_owned(),
        name: name.to_owned(),
    }
}

pub(crate) fn pool() -> NodePool {
    let mut spec = NodePoolSpec::default();
    spec.template.spec.node_class_ref = class_ref("class");
    NodePool::new("pool", spec)
}

pub(crate) fn claim(name: &str, requirements: &[(&str, &[&str])]) -> NodeClaim {
    let requirement = |(key, values): &(&str, &[&str])| Requirement::new(key, Operator::In, values);
    let mut claim = NodeClaim::new(
        name,
        NodeClaimSpec {
            requirements: requirements.iter().map(requirement).collect(),
            node_class_ref: class_ref("class"),
            ..NodeClaimSpec::default()
        },
    );
    claim.metadata.uid = Some(format!("uid-{name}"));
    claim.metadata.labels = Some([("karpenter.sh/nodepool".to_owned(), "pool".to_owned())].into());
    claim
}

/// A claim for one size, bought on demand.
pub(crate) fn on_demand(name: &str, size: &str) -> NodeClaim {
    on_demand_of(name, &[size])
}

/// The same for one of these sizes.
pub(crate) fn on_demand_of(name: &str, sizes: &[&str]) -> NodeClaim {
    claim(
        name,
        &[
            (spokeshave_api::labels::INSTANCE_TYPE, sizes),
            (spokeshave_api::labels::CAPACITY_TYPE, &["on-demand"]),
        ],
    )
}
