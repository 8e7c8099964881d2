//! `up --cloud azure`: the shipped Azure provider on an Azure that runs in this process.
//!
//! Owns how the two are put together, and the AKSNodeClass and NodePool that are made when no file brings any. How the Azure behaves is
//! `azure-simulated`'s.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::Client;
use spokeshave_api::AKSNodeClass;
use spokeshave_azure_cloud::{AzureOptions, AzureProvider, Outside};
use spokeshave_azure_simulated::{Azure, Options};
use spokeshave_ports::SharedClock;
use spokeshave_provider_azure::bootstrap::Cluster;
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_runtime::{Shutdown, TaskGroup, read_only};

use crate::clouds::{Cloud, azure_label_rules};
use crate::up::ec2::Described;
use crate::up::manifests::{self, Manifest};

const DEFAULTS: &str = include_str!("../../assets/default-azure.yaml");

/// What is made: without a kind that the files bring.
///
/// # Errors
/// Never, unless this build is broken.
pub(crate) fn defaults(own: &[Manifest]) -> Result<Vec<Manifest>> {
    let kind_of = |manifest: &Manifest| manifest.object.types.as_ref().map(|types| types.kind.clone());
    let mut made = manifests::parse("default-azure.yaml", DEFAULTS)?;
    made.retain(|one| own.iter().all(|own| kind_of(own) != kind_of(one)));
    Ok(made)
}

/// Starts the simulated Azure, whose network has the subnets that the classes of the files name, and the provider on it.
///
/// # Errors
/// The certificates of the cluster are no text, or PROVISION_MODE is no mode.
pub(crate) fn start(
    client: &Client,
    clock: &SharedClock,
    described: &Described,
    own: &[Manifest],
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> Result<Cloud> {
    let mode = crate::azure::provision_mode(&|name| std::env::var(name).ok().filter(|it| !it.is_empty()))?;
    let options = match mode {
        ProvisionMode::Template => Options::slow(),
        ProvisionMode::AksMachine => Options::slow().with_machine_pool(&described.name),
    };
    let azure = Azure::new(options.clone(), clock.clone());
    for subnet in own.iter().filter_map(subnet_of) {
        azure.add_subnet(&subnet);
    }
    let outside = Outside {
        http: Arc::new(azure.clone()),
        assertion: Arc::new(azure.clone()),
    };
    let settings = provider_options(&options, described)?;
    let provider = AzureProvider::of_cluster(outside, read_only(client.clone()), clock.clone(), settings);
    let (client, stop) = (client.clone(), shutdown.clone());
    tasks.spawn("simulated Azure", async move {
        azure.join(client, stop.requested()).await;
    });
    Ok(Cloud {
        label_rules: azure_label_rules(&provider),
        provider: Arc::new(provider),
        remote: None,
    })
}

/// The subnet that a class names. A class that cannot be read is refused by the API server, which says why.
fn subnet_of(manifest: &Manifest) -> Option<String> {
    let kind = &manifest.object.types.as_ref()?.kind;
    if kind != AKSNodeClass::KIND {
        return None;
    }
    let class = serde_json::to_value(&manifest.object).ok()?;
    let class: AKSNodeClass = serde_json::from_value(class).ok()?;
    class.spec.vnet_subnet_id
}

fn provider_options(options: &Options, described: &Described) -> Result<AzureOptions> {
    use base64::Engine as _;
    let certificates = base64::engine::general_purpose::STANDARD.decode(&described.certificate_authority);
    let certificates = certificates.context("the cluster's certificates are no base64")?;
    Ok(options.provider_options(Cluster {
        name: described.name.clone(),
        endpoint: described.endpoint.clone(),
        ca_bundle: String::from_utf8(certificates).context("the cluster's certificates are no text")?,
        ..Cluster::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_give_way_to_files() {
        let all = defaults(&[]).unwrap();
        let kinds = |all: &[Manifest]| -> Vec<String> {
            let kinds = all.iter().filter_map(|one| one.object.types.as_ref());
            kinds.map(|types| types.kind.clone()).collect()
        };
        assert_eq!(kinds(&all), ["AKSNodeClass", "NodePool"]);
        assert_eq!(kinds(&defaults(&all[..1]).unwrap()), ["NodePool"]);
        assert!(defaults(&all).unwrap().is_empty());
    }

    #[test]
    fn subnets_of_classes_exist() {
        let text = "apiVersion: karpenter.azure.com/v1beta1\nkind: AKSNodeClass\nmetadata: {name: x}\nspec: {vnetSubnetID: /subscriptions/s}\n";
        let own = manifests::parse("class.yaml", text).unwrap();
        assert_eq!(
            own.iter().filter_map(subnet_of).collect::<Vec<_>>(),
            ["/subscriptions/s"]
        );
    }
}
