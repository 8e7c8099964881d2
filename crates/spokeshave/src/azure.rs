//! The environment variables of the provider for Azure (Z9): the names are those that the workload identity webhook and Karpenter's provider use.
//!
//! Owns the reading. What the values mean is `azure-cloud`'s.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use spokeshave_azure_cloud::{AzureOptions, Endpoints, Outside};
use spokeshave_azure_http::{HttpClient, TokenFile};
use spokeshave_provider_azure::aks_machines::MachinePool;
use spokeshave_provider_azure::bootstrap::Cluster;
use spokeshave_provider_azure::instance_types::ProvisionMode;
use spokeshave_provider_azure::instance_types::{NetworkPlugin, Settings as TypeSettings};
use spokeshave_provider_azure::names::Place;
use spokeshave_provider_azure::requests::Access;

use crate::settings::{Settings, parse_bool};

/// Looks a variable up.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Variables without which nothing can be launched.
const REQUIRED: [&str; 9] = [
    "AZURE_CLIENT_ID",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_NODE_RESOURCE_GROUP",
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_TENANT_ID",
    "CLUSTER_ENDPOINT",
    "CLUSTER_NAME",
    "LOCATION",
    "VNET_SUBNET_ID",
];
/// Those without which the provider can make no virtual machine.
const REQUIRED_BY_TEMPLATE: [&str; 2] = ["BOOTSTRAP_TEMPLATE_FILE", "SSH_PUBLIC_KEY"];
/// Those without which machines of AKS are not found.
const REQUIRED_BY_AKS: [&str; 2] = ["AKS_MACHINES_POOL_NAME", "ARM_RESOURCE_GROUP"];
/// What AKS takes from the cluster: these have no meaning where it makes machines.
const WITHOUT_MEANING_TO_AKS: [&str; 6] = [
    "BOOTSTRAP_TEMPLATE_FILE",
    "KUBELET_BOOTSTRAP_TOKEN",
    "LINUX_ADMIN_USERNAME",
    "NODE_IDENTITIES",
    "NODE_OSDISK_DISKENCRYPTIONSET_ID",
    "SSH_PUBLIC_KEY",
];

/// The outside and the settings of the provider, from the process's environment.
///
/// # Errors
/// When variables are missing, all of them by name, or name what cannot be read.
pub(crate) fn read(settings: &Settings) -> Result<(Outside, AzureOptions)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut options = options(settings, &variable)?;
    match options.settings.mode {
        ProvisionMode::Template => {
            let file = variable("BOOTSTRAP_TEMPLATE_FILE").unwrap_or_default();
            options.bootstrap_template = std::fs::read_to_string(&file)
                .with_context(|| format!("BOOTSTRAP_TEMPLATE_FILE: cannot read {file}"))?;
        }
        ProvisionMode::AksMachine => {
            let set = WITHOUT_MEANING_TO_AKS.into_iter();
            let set: Vec<&str> = set.filter(|name| variable(name).is_some()).collect();
            if !set.is_empty() {
                let names = set.join(", ");
                tracing::info!("PROVISION_MODE is aksmachineapi: AKS decides what {names} would say");
            }
        }
    }
    if let Some(file) = variable("AZURE_ENVIRONMENT_FILEPATH") {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("AZURE_ENVIRONMENT_FILEPATH: cannot read {file}"))?;
        options.endpoints = endpoints(&text, &file)?;
    }
    let token = variable("AZURE_FEDERATED_TOKEN_FILE").unwrap_or_default();
    let outside = Outside {
        http: Arc::new(HttpClient::new().context("reading this machine's certificates")?),
        assertion: Arc::new(TokenFile(PathBuf::from(token))),
    };
    Ok((outside, options))
}

fn endpoints(text: &str, file: &str) -> Result<Endpoints> {
    spokeshave_azure_http::endpoints(text)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("AZURE_ENVIRONMENT_FILEPATH {file}"))
}

/// Who makes machines, under the names that Karpenter's provider has for it.
///
/// # Errors
/// The mode is none, or one that is not built.
pub(crate) fn provision_mode(variable: Variables<'_>) -> Result<ProvisionMode> {
    match variable("PROVISION_MODE").as_deref() {
        None | Some("aksscriptless") => Ok(ProvisionMode::Template),
        Some("aksmachineapi") => Ok(ProvisionMode::AksMachine),
        Some(mode @ ("aksmachineapiheaderbatch" | "bootstrappingclient")) => {
            bail!(
                "PROVISION_MODE is {mode}, which is not built; use aksmachineapi, or aksscriptless with a bootstrap template"
            )
        }
        Some(mode) => bail!("PROVISION_MODE is {mode:?}; expected aksscriptless or aksmachineapi"),
    }
}

/// Whether machines of AKS stay managed where others are launched.
fn manages_existing(variable: Variables<'_>) -> Result<bool> {
    const NAME: &str = "MANAGE_EXISTING_AKS_MACHINES";
    let Some(text) = variable(NAME) else {
        return Ok(false);
    };
    let text = text.to_lowercase();
    parse_bool(&text).with_context(|| format!("{NAME} is {text:?}; expected true or false"))
}

fn options(settings: &Settings, variable: Variables<'_>) -> Result<AzureOptions> {
    let mode = provision_mode(variable)?;
    let sees_aks = mode == ProvisionMode::AksMachine || manages_existing(variable)?;
    let by_mode: &[&str] = match mode {
        ProvisionMode::Template => &REQUIRED_BY_TEMPLATE,
        ProvisionMode::AksMachine => &[],
    };
    let by_aks: &[&str] = if sees_aks { &REQUIRED_BY_AKS } else { &[] };
    let known = |name: &str| match name {
        "CLUSTER_NAME" => settings.cluster_name.clone(),
        "CLUSTER_ENDPOINT" => settings.cluster_endpoint.clone(),
        _ => variable(name),
    };
    let missing: Vec<&str> = REQUIRED
        .iter()
        .chain(by_mode)
        .chain(by_aks)
        .copied()
        .filter(|name| known(name).is_none())
        .collect();
    if !missing.is_empty() {
        bail!(
            "--cloud-provider azure needs these settings, which are not set: {}",
            missing.join(", ")
        );
    }
    let get = |name: &str| known(name).unwrap_or_default();
    Ok(AzureOptions {
        endpoints: Endpoints::default(),
        tenant_id: get("AZURE_TENANT_ID"),
        client_id: get("AZURE_CLIENT_ID"),
        cluster_name: get("CLUSTER_NAME"),
        place: Place {
            subscription: get("AZURE_SUBSCRIPTION_ID"),
            resource_group: get("AZURE_NODE_RESOURCE_GROUP"),
        },
        settings: TypeSettings {
            region: get("LOCATION").to_lowercase(),
            node_resource_group: get("AZURE_NODE_RESOURCE_GROUP"),
            vm_memory_overhead_percent: settings.vm_memory_overhead_percent,
            network_plugin: network_plugin(variable)?,
            mode,
        },
        machine_pool: sees_aks.then(|| MachinePool {
            subscription: get("AZURE_SUBSCRIPTION_ID"),
            resource_group: get("ARM_RESOURCE_GROUP"),
            cluster: get("CLUSTER_NAME"),
            name: get("AKS_MACHINES_POOL_NAME"),
        }),
        former_pools: Vec::new(),
        vnet_subnet_id: get("VNET_SUBNET_ID"),
        access: Access {
            admin_username: variable("LINUX_ADMIN_USERNAME").unwrap_or_else(|| "azureuser".to_owned()),
            ssh_public_key: get("SSH_PUBLIC_KEY"),
            identities: list(&get("NODE_IDENTITIES")).map(str::to_owned).collect(),
            disk_encryption_set_id: variable("NODE_OSDISK_DISKENCRYPTIONSET_ID"),
        },
        additional_tags: tags(&get("ADDITIONAL_TAGS"))?,
        cluster: Cluster {
            name: get("CLUSTER_NAME"),
            endpoint: get("CLUSTER_ENDPOINT"),
            ca_bundle: ca_bundle(settings)?,
            bootstrap_token: get("KUBELET_BOOTSTRAP_TOKEN"),
            dns_service_ip: settings
                .cluster_dns_ip
                .map(|ip| ip.to_string())
                .unwrap_or_default(),
            kubernetes_version: String::new(),
        },
        bootstrap_template: String::new(),
    })
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|one| !one.is_empty())
}

/// The setting is in base64, and the template wants what is in it.
fn ca_bundle(settings: &Settings) -> Result<String> {
    use base64::Engine as _;
    let Some(encoded) = &settings.cluster_ca_bundle else {
        return Ok(String::new());
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(encoded.trim())
        .context("CLUSTER_CA_BUNDLE is no base64")?;
    String::from_utf8(bytes).context("CLUSTER_CA_BUNDLE is no text in base64")
}

fn network_plugin(variable: Variables<'_>) -> Result<NetworkPlugin> {
    let plugin = variable("NETWORK_PLUGIN");
    let mode = variable("NETWORK_PLUGIN_MODE");
    match (plugin.as_deref(), mode.as_deref()) {
        (Some("none"), _) => Ok(NetworkPlugin::None),
        (None | Some("azure"), None | Some("overlay")) => Ok(NetworkPlugin::AzureOverlay),
        (_, Some(mode)) => bail!("NETWORK_PLUGIN_MODE is {mode:?}; only overlay is built"),
        (Some(plugin), None) => bail!("NETWORK_PLUGIN is {plugin:?}; expected azure or none"),
    }
}

/// As Karpenter's provider reads them: a value with a comma cannot be said, and the chart refuses it.
fn tags(text: &str) -> Result<BTreeMap<String, String>> {
    let tag = |pair: &str| -> Result<(String, String)> {
        let (key, value) = pair.split_once('=').with_context(|| {
            format!("ADDITIONAL_TAGS: {pair:?} is no KEY=VALUE; a comma begins the next tag")
        })?;
        Ok((key.to_owned(), value.to_owned()))
    };
    list(text).map(tag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Environment, SettingsArgs};

    fn unset() -> Settings {
        Settings::resolve(&SettingsArgs::default(), &Environment::default()).unwrap()
    }

    fn set(name: &str) -> Option<String> {
        let value = match name {
            "ADDITIONAL_TAGS" => "team=a, cost/center=1",
            "LOCATION" => "WestEurope",
            "NODE_IDENTITIES" => "/one,/two",
            "NETWORK_PLUGIN"
            | "NETWORK_PLUGIN_MODE"
            | "LINUX_ADMIN_USERNAME"
            | "PROVISION_MODE"
            | "MANAGE_EXISTING_AKS_MACHINES" => return None,
            other => other,
        };
        Some(value.to_owned())
    }

    fn settings() -> Settings {
        let mut settings = unset();
        settings.cluster_name = Some("cluster".to_owned());
        settings.cluster_endpoint = Some("https://api".to_owned());
        settings
    }

    #[test]
    fn z_058_everything_that_is_missing_is_named_at_once() {
        let error = options(&unset(), &|_| None).unwrap_err().to_string();
        let all = || REQUIRED.iter().chain(&REQUIRED_BY_TEMPLATE);
        assert!(all().all(|name| error.contains(name)), "{error}");
        assert!(
            !REQUIRED_BY_AKS.iter().any(|name| error.contains(name)),
            "{error}"
        );
    }

    #[test]
    fn z_040_the_mode_decides_what_is_needed() {
        let with = |pairs: &'static [(&'static str, &'static str)]| {
            move |asked: &str| {
                let own = pairs.iter().find(|(name, _)| *name == asked);
                own.map(|(_, value)| (*value).to_owned())
            }
        };
        let error = options(&unset(), &with(&[("PROVISION_MODE", "aksmachineapi")])).unwrap_err();
        let error = error.to_string();
        assert!(
            REQUIRED
                .iter()
                .chain(&REQUIRED_BY_AKS)
                .all(|name| error.contains(name)),
            "{error}"
        );
        assert!(
            !REQUIRED_BY_TEMPLATE.iter().any(|name| error.contains(name)),
            "{error}"
        );
        let both = with(&[("MANAGE_EXISTING_AKS_MACHINES", "true")]);
        let error = options(&unset(), &both).unwrap_err().to_string();
        let all = REQUIRED_BY_AKS.iter().chain(&REQUIRED_BY_TEMPLATE);
        assert!(all.clone().all(|name| error.contains(name)), "{error}");
        for (mode, problem) in [
            ("aksmachineapiheaderbatch", "which is not built"),
            ("bootstrappingclient", "which is not built"),
            ("other", "expected aksscriptless or aksmachineapi"),
        ] {
            let variable = move |asked: &str| (asked == "PROVISION_MODE").then(|| mode.to_owned());
            let error = options(&unset(), &variable).unwrap_err().to_string();
            assert!(error.contains(problem) && error.contains(mode), "{error}");
        }
        let machines = |asked: &str| match asked {
            "PROVISION_MODE" => Some("aksmachineapi".to_owned()),
            other => set(other),
        };
        let found = options(&settings(), &machines).unwrap();
        assert_eq!(found.settings.mode, ProvisionMode::AksMachine);
        let pool = found.machine_pool.unwrap();
        assert_eq!(
            pool.id(),
            "/subscriptions/AZURE_SUBSCRIPTION_ID/resourceGroups/ARM_RESOURCE_GROUP/providers/Microsoft.ContainerService/managedClusters/cluster/agentPools/AKS_MACHINES_POOL_NAME"
        );
        assert_eq!(options(&settings(), &set).unwrap().machine_pool, None);
    }

    #[test]
    fn z_058_settings_of_the_environment() {
        let found = options(&settings(), &set).unwrap();
        assert_eq!(found.settings.region, "westeurope");
        assert_eq!(found.access.identities, ["/one", "/two"]);
        assert_eq!(found.access.admin_username, "azureuser");
        assert_eq!(found.additional_tags["cost/center"], "1");
        assert_eq!(found.settings.network_plugin, NetworkPlugin::AzureOverlay);
        let wrong = |name: &'static str, value: &'static str| {
            let variable = move |asked: &str| {
                if asked == name {
                    Some(value.to_owned())
                } else {
                    set(asked)
                }
            };
            options(&settings(), &variable).unwrap_err().to_string()
        };
        assert!(wrong("NETWORK_PLUGIN", "kubenet").contains("\"kubenet\""));
        assert!(wrong("NETWORK_PLUGIN_MODE", "pods").contains("only overlay"));
        assert!(wrong("ADDITIONAL_TAGS", "team").contains("\"team\" is no KEY=VALUE"));
        let with_comma = wrong("ADDITIONAL_TAGS", "owner=a,b,team=platform");
        assert!(with_comma.contains("\"b\" is no KEY=VALUE; a comma begins the next tag"));
    }
}
