//! The cloud that `operator` launches nodes at.
//!
//! Owns the choice of the provider and what each is given of the settings. What providers do is theirs.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::api::{Api, ListParams};
use spokeshave_api::NodeClaim;
use spokeshave_api::validation::LabelRules;
use spokeshave_aws_cloud::ports::Aws;
use spokeshave_aws_cloud::{AwsOptions, AwsProvider};
use spokeshave_azure_cloud::{AzureOptions, AzureProvider};
use spokeshave_ports::{CloudProvider, Entropy, SharedClock};
use spokeshave_provider_azure::aks_machines::{MachinePool, former_pools as former_pools_of};
use spokeshave_provider_grpc::GrpcProvider;
use spokeshave_provider_kwok::{Catalog, KwokOptions, KwokProvider};
use spokeshave_runtime::{Shutdown, TaskGroup, read_only};

use crate::arguments::OperatorCloud;
use crate::remote_provider::{self, AddressArgs};
use crate::settings::Settings;

/// A cloud, and what it adds to the rules about labels.
pub(crate) struct Cloud {
    pub(crate) provider: Arc<dyn CloudProvider>,
    pub(crate) label_rules: LabelRules,
    /// For an out-of-process provider: whether it is connected.
    pub(crate) remote: Option<GrpcProvider>,
}

/// What clouds are given besides settings.
pub(crate) struct Surroundings {
    pub(crate) client: Client,
    /// The certificates by which it knows the API server, PEM in base64.
    pub(crate) certificates: Option<String>,
    /// Version of Kubernetes.
    pub(crate) version: String,
    /// Minor version of Kubernetes.
    pub(crate) minor: u32,
    pub(crate) clock: SharedClock,
    pub(crate) entropy: Entropy,
    pub(crate) shutdown: Shutdown,
    /// The client is read-only: background writes of a cloud are left to the leader.
    pub(crate) reads_only: bool,
}

/// Starts a cloud.
///
/// # Errors
/// A setting that the cloud needs is missing, or a file cannot be read.
pub(crate) async fn start(
    name: OperatorCloud,
    address: &AddressArgs,
    settings: &Settings,
    surroundings: &Surroundings,
    tasks: &mut TaskGroup,
) -> Result<Cloud> {
    match name {
        OperatorCloud::Kwok => kwok(settings, surroundings, tasks),
        OperatorCloud::Aws => aws(settings, surroundings).await,
        OperatorCloud::Azure => azure(settings, surroundings).await,
        OperatorCloud::Grpc => grpc(address, settings, surroundings).await,
    }
}

fn kwok(settings: &Settings, surroundings: &Surroundings, tasks: &mut TaskGroup) -> Result<Cloud> {
    let catalog = match &settings.instance_types_file_path {
        Some(path) => Catalog::from_file(path)?,
        None => Catalog::default(),
    };
    let options = KwokOptions {
        catalog,
        ..KwokOptions::default()
    };
    let provider = Arc::new(KwokProvider::new(
        surroundings.client.clone(),
        surroundings.clock.clone(),
        &surroundings.entropy.child("kwok"),
        options,
    ));
    if !surroundings.reads_only {
        let (cloud, stop) = (provider.clone(), surroundings.shutdown.clone());
        tasks.spawn("kwok cloud", async move { cloud.run(stop.requested()).await });
    }
    Ok(Cloud {
        label_rules: label_rules(&provider),
        provider,
        remote: None,
    })
}

async fn aws(settings: &Settings, surroundings: &Surroundings) -> Result<Cloud> {
    let cluster_name = settings.cluster_name.as_deref().context(
        "CLUSTER_NAME (--cluster-name) is required with --cloud-provider aws: tags of instances carry it",
    )?;
    ensure!(
        !settings.aws_feature_gates.node_class_cel,
        "AWS_FEATURE_GATES (--aws-feature-gates): NodeClassCEL=true is not supported: this version evaluates no expressions in spec.kubelet of \
        EC2NodeClasses; write numbers there and leave the gate off"
    );
    let agent = format!("karpenter.sh-{}", env!("CARGO_PKG_VERSION"));
    let (clock, entropy) = (surroundings.clock.clone(), surroundings.entropy.child("aws"));
    let (region, services) = aws_services(&agent, clock, &entropy).await?;
    let mut options = AwsOptions::new(&region, cluster_name);
    options.cluster_endpoint.clone_from(&settings.cluster_endpoint);
    options.cluster_ca_bundle.clone_from(&settings.cluster_ca_bundle);
    options.own_ca_bundle.clone_from(&surroundings.certificates);
    options.cluster_dns = settings.cluster_dns_ip;
    options.kubernetes_minor = surroundings.minor;
    options.isolated_vpc = settings.isolated_vpc;
    options.types.vm_memory_overhead_percent = settings.vm_memory_overhead_percent;
    options.types.reserved_enis = settings.reserved_enis;
    options
        .interruption_queue
        .clone_from(&settings.interruption_queue);
    options.disable_dry_run = settings.disable_dry_run;
    options.reserved_capacity = settings.feature_gates.reserved_capacity;
    options.node_overlays = settings.feature_gates.node_overlay;
    options.zonal_shift = settings.enable_zonal_shift;
    options.ami_refresh_interval = settings.ami_refresh_interval;
    options.subnet_refresh_interval = settings.subnet_refresh_interval;
    tracing::info!(
        region = options.region,
        cluster = cluster_name,
        "launching nodes at AWS"
    );
    let provider = AwsProvider::new(
        services,
        read_only(surroundings.client.clone()),
        surroundings.clock.clone(),
        options,
    );
    Ok(Cloud {
        label_rules: aws_label_rules(&provider),
        provider: Arc::new(provider),
        remote: None,
    })
}

/// The region, and the services of AWS there.
#[cfg(feature = "aws")]
async fn aws_services(agent: &str, clock: SharedClock, entropy: &Entropy) -> Result<(String, Aws)> {
    let session = spokeshave_aws_http::load(None, agent, clock, entropy).await?;
    Ok((
        session.region().to_owned(),
        spokeshave_aws_http::services(&session),
    ))
}

#[cfg(not(feature = "aws"))]
#[expect(
    clippy::unused_async,
    reason = "the other build reads files and asks the instance"
)]
async fn aws_services(_: &str, _: SharedClock, _: &Entropy) -> Result<(String, Aws)> {
    anyhow::bail!(
        "--cloud-provider aws: this program was built without the calls to AWS; build it with cargo build --release --features aws, or use the \
        image or a release, which have them (up --cloud aws rehearses AWS without any)"
    )
}

async fn azure(settings: &Settings, surroundings: &Surroundings) -> Result<Cloud> {
    let (outside, mut options) = crate::azure::read(settings)?;
    options.former_pools = former_pools(&surroundings.client, &options).await?;
    tracing::info!(
        location = options.settings.region,
        cluster = options.cluster_name,
        "launching nodes at Azure"
    );
    let client = read_only(surroundings.client.clone());
    let provider = AzureProvider::of_cluster(outside, client, surroundings.clock.clone(), options);
    Ok(Cloud {
        label_rules: azure_label_rules(&provider),
        provider: Arc::new(provider),
        remote: None,
    })
}

/// Agent pools that NodeClaims of before have machines in. Without them a change of the mode or of the pool would let go of machines that run.
async fn former_pools(client: &Client, options: &AzureOptions) -> Result<Vec<MachinePool>> {
    let claims: Api<NodeClaim> = Api::all(client.clone());
    let claims = match claims.list(&ListParams::default()).await {
        Ok(list) => list.items,
        // There are none without their definition, whose absence is told elsewhere.
        Err(kube::Error::Api(status)) if status.is_not_found() => Vec::new(),
        Err(error) => return Err(error).context("list NodeClaims, of which some may have machines of AKS"),
    };
    let pools = former_pools_of(&claims, options.machine_pool.as_ref());
    for pool in &pools {
        tracing::warn!(
            pool = pool.id(),
            "machines that AKS has made in this agent pool stay managed, because NodeClaims have them: new ones are not made there"
        );
    }
    Ok(pools)
}

async fn grpc(address: &AddressArgs, settings: &Settings, surroundings: &Surroundings) -> Result<Cloud> {
    let (client, version) = (&surroundings.client, &surroundings.version);
    let provider = remote_provider::connect(address, settings, client, version, &surroundings.clock).await?;
    Ok(Cloud {
        label_rules: provider.label_rules(),
        provider: Arc::new(provider.clone()),
        remote: Some(provider),
    })
}

/// What Azure adds to the rules about labels (Z6).
pub(crate) fn azure_label_rules(provider: &AzureProvider) -> LabelRules {
    LabelRules {
        restricted_domains: vec!["karpenter.azure.com".to_owned()],
        well_known: provider.well_known_labels().into_iter().collect(),
        unsupported: Vec::new(),
    }
}

/// What AWS adds to the rules about labels (A1.7).
pub(crate) fn aws_label_rules(provider: &AwsProvider) -> LabelRules {
    LabelRules {
        restricted_domains: vec!["karpenter.k8s.aws".to_owned()],
        well_known: provider.well_known_labels().into_iter().collect(),
        unsupported: spokeshave_provider_aws::labels::unsupported(),
    }
}

/// What the kwok cloud adds to the rules about labels (P §1.7).
pub(crate) fn label_rules(provider: &KwokProvider) -> LabelRules {
    LabelRules {
        restricted_domains: vec!["karpenter.kwok.sh".to_owned()],
        well_known: provider.well_known_labels().iter().cloned().collect(),
        unsupported: Vec::new(),
    }
}
