//! `up --cloud aws`: the shipped AWS provider on an EC2 that runs in this process.
//!
//! Owns how the two are put together, and the EC2NodeClass and NodePool that are made when no file brings any. How the EC2 behaves is
//! `ec2-simulated`'s.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::Client;
use spokeshave_api::EC2NodeClass;
use spokeshave_aws_cloud::{AwsOptions, AwsProvider, minor_version};
use spokeshave_ec2_simulated::{Options, REGION, SimulatedEc2};
use spokeshave_ports::{Entropy, SharedClock};
use spokeshave_runtime::{Shutdown, TaskGroup, read_only};

use crate::clouds::{self, Cloud};
use crate::up::manifests::{self, Manifest};

const DEFAULTS: &str = include_str!("../../assets/default-aws.yaml");
/// Placeholder for the name of the cluster in the defaults.
const CLUSTER: &str = "CLUSTER";

/// The cluster that EKS is to describe.
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) endpoint: String,
    /// PEM in base64.
    pub(crate) certificate_authority: String,
}

/// What is made for a cluster of this name: without a kind that the files bring.
///
/// # Errors
/// The name of the cluster is invalid.
pub(crate) fn defaults(cluster_name: &str, own: &[Manifest]) -> Result<Vec<Manifest>> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
    anyhow::ensure!(
        !cluster_name.is_empty() && cluster_name.len() <= 100 && cluster_name.chars().all(is_plain),
        "--cluster-name {cluster_name:?}: expected up to 100 letters, digits, - and _, as EKS allows"
    );
    let kind_of = |manifest: &Manifest| manifest.object.types.as_ref().map(|types| types.kind.clone());
    let mut made = manifests::parse("default-aws.yaml", &DEFAULTS.replace(CLUSTER, cluster_name))?;
    made.retain(|one| own.iter().all(|own| kind_of(own) != kind_of(one)));
    Ok(made)
}

/// Starts the simulated EC2, whose account has what the classes of the files select, and the provider on it.
///
/// # Errors
/// The API server does not say its version.
pub(crate) async fn start(
    client: &Client,
    (clock, entropy): (&SharedClock, &Entropy),
    described: Described,
    own: &[Manifest],
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> Result<Cloud> {
    let version = client.apiserver_version().await;
    let version = version.context("the API server does not say its version")?;
    let minor = minor_version(&version.minor).unwrap_or(0);
    let cloud = SimulatedEc2::new(
        clock.clone(),
        Options {
            seed: entropy.child("ec2").number("seed"),
            endpoint: described.endpoint,
            certificate_authority: described.certificate_authority,
            kubernetes_minor: minor,
            ..Options::new(&described.name)
        },
    );
    for manifest in own {
        let class = serde_json::to_value(&manifest.object).and_then(serde_json::from_value::<EC2NodeClass>);
        let is_class = manifest
            .object
            .types
            .as_ref()
            .is_some_and(|types| types.kind == EC2NodeClass::KIND);
        // One that cannot be read is refused by the API server, which says why.
        if let (true, Ok(class)) = (is_class, class) {
            cloud.fit(&class);
        }
    }
    let mut options = AwsOptions::new(REGION, &described.name);
    options.kubernetes_minor = minor;
    options.interruption_queue = Some(described.name);
    options.zonal_shift = true;
    let provider = Arc::new(AwsProvider::new(
        cloud.services(),
        read_only(client.clone()),
        clock.clone(),
        options,
    ));
    let (client, stop) = (client.clone(), shutdown.clone());
    tasks.spawn("simulated EC2", async move {
        cloud.join(client, stop.requested()).await;
    });
    Ok(Cloud {
        label_rules: clouds::aws_label_rules(&provider),
        provider,
        remote: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(manifests: &[Manifest]) -> Vec<String> {
        let kinds = manifests.iter().filter_map(|one| one.object.types.as_ref());
        kinds.map(|types| types.kind.clone()).collect()
    }

    #[test]
    fn defaults_are_made_for_the_cluster_and_give_way_to_files() {
        let all = defaults("blue", &[]).unwrap();
        assert_eq!(kinds(&all), ["EC2NodeClass", "NodePool"]);
        assert_eq!(all[0].object.data["spec"]["role"], "KarpenterNodeRole-blue");
        let class = &all[..1];
        assert_eq!(kinds(&defaults("blue", class).unwrap()), ["NodePool"]);
        assert!(defaults("blue", &all).unwrap().is_empty());
        for wrong in ["", "a b", "${CLUSTER_NAME}"] {
            let error = defaults(wrong, &[]).unwrap_err().to_string();
            assert!(error.starts_with("--cluster-name"), "{error}");
        }
    }
}
