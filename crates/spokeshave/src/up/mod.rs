//! `spokeshave up`: a whole cluster in this process.
//!
//! Owns the order in which it comes up and stops. Builds without the feature `embedded` have no such command.

mod args;
mod azure;
mod demo;
mod ec2;
mod kubeconfig_file;
mod manifests;
mod narrator;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use spokeshave_apiserver::{ApiServer, Config, Listener, MetricsFn, kubeconfig};
use spokeshave_controllers::{DecisionLog, Observer, Operator, Options};
use spokeshave_ports::{Entropy, SharedClock, TokioClock};
use spokeshave_provider_kwok::{Catalog, KwokOptions, KwokProvider};
use spokeshave_runtime::client::{ClientOptions, from_service};
use spokeshave_runtime::{Api, Metrics, Shutdown, TaskGroup};
use tokio::sync::oneshot;

use crate::arguments::DefinitionsOf;
use crate::clouds::{self, Cloud};
use crate::connection::ClusterArgs;
use crate::look::Source;
use crate::plan::in_force::finding::{CATALOG, NAMESPACE_OF_UP, SETTINGS_OF_UP};
use crate::settings::{Environment, FeatureGates};
use crate::settings::{LogFormat, LogLevel, LogOutput};
use crate::text::say;
use crate::web::{self, Page};
use crate::{logging, signals};

pub(crate) use args::{EXAMPLES, UpArgs};

use args::UpLogLevel;
use kubeconfig_file::KubeconfigFile;
use narrator::Narrator;

const DEFAULTS: &str = include_str!("../../assets/default.yaml");
/// Label and metrics port of the operator's pod in a usual installation.
const OPERATOR_LABEL: (&str, &str) = ("app.kubernetes.io/name", "karpenter");
const OPERATOR_METRICS_PORT: u16 = 8080;
/// Time limit for a local cluster to respond.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);
/// How long parts may take to stop, in cluster time.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Runs the cluster until it is interrupted, its time is over, or its demo is told in the time that it has.
///
/// # Errors
/// What keeps it from coming up, or its demo from being told in the time that it has.
pub(crate) async fn run(args: UpArgs) -> Result<()> {
    let level = match args.log_level {
        UpLogLevel::Debug => LogLevel::Debug,
        UpLogLevel::Info => LogLevel::Info,
        UpLogLevel::Error => LogLevel::Error,
    };
    let clock: SharedClock = TokioClock::wall(args.speed).shared();
    logging::install(level, LogFormat::Text, &[LogOutput::Stderr], clock.clone())?;
    KubeconfigFile::check(&args.kubeconfig)?;
    refuse_if_taken(&args.kubeconfig).await?;
    check_cloud(&args)?;
    let own = manifests::read_all(&args.filenames)?;
    let catalog = match &args.catalog {
        Some(path) => Catalog::from_file(path)?,
        None => Catalog::default(),
    };
    let entropy = Entropy::new(args.seed);
    let cluster = Cluster::start(&args, &clock, &entropy).await?;
    let client = cluster.client.clone();
    install_definitions(&client, args.cloud).await?;
    if !args.bare {
        let defaults = match args.cloud {
            DefinitionsOf::Kwok => manifests::parse("default.yaml", DEFAULTS)?,
            DefinitionsOf::Aws => ec2::defaults(&args.cluster_name, &own)?,
            DefinitionsOf::Azure => azure::defaults(&own)?,
        };
        manifests::apply_all(&client, &clock, defaults).await?;
    }
    manifests::apply_all(&client, &clock, own.clone()).await?;

    let shutdown = Shutdown::new();
    let narrator = Narrator::default();
    let mut tasks = TaskGroup::new();
    let parts = spokeshave_cluster::Options {
        records: true,
        replication_controllers: true,
        ..spokeshave_cluster::Options::all()
    };
    tasks.spawn(
        "simulation",
        spokeshave_cluster::run(
            cluster.clients(&clock),
            clock.clone(),
            entropy.child("sim"),
            parts,
            shutdown.clone(),
        ),
    );
    let page = match args.no_web {
        true => None,
        false => Some(Page::listen(args.web, Vec::new()).await?),
    };
    let mut observer = None;
    if !args.no_operator {
        let cloud = match args.cloud {
            DefinitionsOf::Kwok => kwok(
                &client,
                (&clock, &entropy),
                catalog.clone(),
                &mut tasks,
                &shutdown,
            ),
            DefinitionsOf::Aws => {
                let described = cluster.described(&args.cluster_name);
                ec2::start(
                    &client,
                    (&clock, &entropy),
                    described,
                    &own,
                    &mut tasks,
                    &shutdown,
                )
                .await?
            }
            DefinitionsOf::Azure => {
                let described = cluster.described(&args.cluster_name);
                azure::start(&client, &clock, &described, &own, &mut tasks, &shutdown)?
            }
        };
        tell_settings(&client, &args).await?;
        let given = (cloud, args.feature_gates.unwrap_or_default());
        let (metrics, sees) =
            start_operator(&client, &clock, &entropy, given, &narrator, &mut tasks, &shutdown);
        serve_metrics(&cluster.server, &metrics);
        observer = Some(sees);
    }

    // The other one may have started in the meantime.
    refuse_if_taken(&args.kubeconfig).await?;
    let file = KubeconfigFile::write(
        &args.kubeconfig,
        &kubeconfig(
            cluster.listener.address(),
            cluster.listener.ca_pem(),
            &cluster.token,
        ),
    )?;
    greet(&args, &cluster, page.as_ref());
    if let Some(page) = page {
        let title = format!("up at {}", cluster.listener.address());
        let source = match observer {
            Some(observer) => Source::Operator(observer, None),
            None => Source::listing(
                crate::cluster::Cluster::reach(&cluster_of(&args.kubeconfig)).await?,
                catalog,
                None,
                Arc::default(),
            ),
        };
        tasks.spawn("page", page.run(source, title, shutdown.clone()));
    }
    let demo = start_demo(&args, &client, &clock, narrator, &mut tasks, &shutdown);
    let ended = until_the_end(args.exit_after, demo).await;
    drop(file);
    shutdown.request();
    let late = tasks.drain(&clock, STOP_LIMIT).await;
    if !late.is_empty() {
        tracing::debug!(tasks = late.join(", "), "cut off");
    }
    cluster.listener.stop().await;
    ended
}

/// What has become of a demo that is judged.
type Told = oneshot::Receiver<Result<()>>;

/// Starts the demo, if it is asked for. Where it has only so much time it is judged.
fn start_demo(
    args: &UpArgs,
    client: &Client,
    clock: &SharedClock,
    narrator: Narrator,
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> Option<Told> {
    if !args.demo {
        return None;
    }
    let (client, clock, stop) = (client.clone(), clock.clone(), shutdown.clone());
    let is_judged = args.exit_after.is_some();
    let (sender, told) = oneshot::channel();
    tasks.spawn("demo", async move {
        match stop.cut(demo::tell(&client, &clock, &narrator, is_judged)).await {
            Some(ended) if is_judged => drop(sender.send(ended.context("the demo cannot go on"))),
            Some(Err(error)) => say(&format!("the demo cannot go on: {error:#}")),
            Some(Ok(())) | None => {}
        }
    });
    is_judged.then_some(told)
}

/// Waits for a signal, the end of the time, or the end of a demo that is judged.
///
/// # Errors
/// The demo was not told in this time.
async fn until_the_end(limit: Option<Duration>, demo: Option<Told>) -> Result<()> {
    let (Some(limit), Some(told)) = (limit, demo) else {
        signals::wait(limit).await;
        return Ok(());
    };
    let ended = tokio::select! {
        biased;
        () = signals::wait(None) => return Ok(()),
        ended = tokio::time::timeout(limit, told) => ended,
    };
    // As at the end of any other wait, a Ctrl-C ends the process at once from here on.
    signals::wait(Some(Duration::ZERO)).await;
    match ended {
        Ok(Ok(told)) => told,
        Ok(Err(_)) => anyhow::bail!("the demo has ended in its middle"),
        Err(_) => {
            anyhow::bail!("the demo was not told within {limit:?}: its last scene does not come to its end")
        }
    }
}

/// Refuses what does not go together with a cloud.
fn check_cloud(args: &UpArgs) -> Result<()> {
    let name = match args.cloud {
        DefinitionsOf::Kwok => return Ok(()),
        DefinitionsOf::Aws => "EC2",
        DefinitionsOf::Azure => "Azure",
    };
    anyhow::ensure!(
        args.catalog.is_none(),
        "--catalog is for --cloud kwok: the simulated {name} offers {name}'s own types"
    );
    anyhow::ensure!(
        !args.no_operator,
        "--no-operator is for --cloud kwok: the simulated {name} runs in this process, and an operator of another one cannot reach it"
    );
    Ok(())
}

/// Refuses a kubeconfig that leads to a cluster which runs: two clusters under one name would be mistaken for each other.
async fn refuse_if_taken(path: &std::path::Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let written = cluster_of(path);
    let asked = crate::cluster::Cluster::reach(&written);
    if let Ok(Ok(_)) = tokio::time::timeout(LONGEST_ANSWER, asked).await {
        anyhow::bail!(
            "another `spokeshave up` is running: {} points to it; end it, or name another file with --kubeconfig",
            path.display()
        );
    }
    Ok(())
}

/// The cluster of a kubeconfig that `up` writes, which has one context.
fn cluster_of(path: &std::path::Path) -> ClusterArgs {
    ClusterArgs {
        kubeconfig: Some(path.to_owned()),
        ..ClusterArgs::default()
    }
}

/// The API server and how to reach it.
struct Cluster {
    client: Client,
    listener: Listener,
    server: Arc<ApiServer>,
    token: String,
}

impl Cluster {
    async fn start(args: &UpArgs, clock: &SharedClock, entropy: &Entropy) -> Result<Self> {
        let time = clock.clone();
        let mut config = Config::new(
            Arc::new(move || time.now()),
            entropy.child("apiserver").number("seed"),
        );
        let token = web::token();
        config.token = Some(token.clone());
        let server = ApiServer::new(config);
        let listener = Listener::start(&server, args.listen)
            .await
            .with_context(|| format!("--listen {}: the API server cannot start", args.listen))?;
        let client = client_of(&server, ClientOptions::default(), clock);
        Ok(Self {
            client,
            listener,
            server,
            token,
        })
    }

    /// The clients of the cluster's own components, each under its own name.
    fn clients(&self, clock: &SharedClock) -> spokeshave_cluster::Clients {
        spokeshave_cluster::Clients::named(|program| {
            let options = ClientOptions {
                user_agent: program.to_owned(),
                ..ClientOptions::default()
            };
            client_of(&self.server, options, clock)
        })
    }

    /// The cluster's address and certificates for its machines.
    fn described(&self, name: &str) -> ec2::Described {
        ec2::Described {
            name: name.to_owned(),
            endpoint: format!("https://{}", self.listener.address()),
            certificate_authority: STANDARD.encode(self.listener.ca_pem()),
        }
    }
}

/// A client without a limit.
fn client_of(server: &Arc<ApiServer>, options: ClientOptions, clock: &SharedClock) -> Client {
    let options = ClientOptions {
        rate: None,
        ..options
    };
    from_service(server.service(), "default", &options, clock.clone())
}

async fn install_definitions(client: &Client, cloud: DefinitionsOf) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in spokeshave_api::crds::crds_of(cloud.into()) {
        let name = definition.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &definition)
            .await
            .with_context(|| format!("cannot install the definition {name}"))?;
    }
    Ok(())
}

/// Says where commands that ask this cluster look for it what the operator has other than the defaults: no Deployment has its settings.
async fn tell_settings(client: &Client, args: &UpArgs) -> Result<()> {
    let mut settings = Environment::new();
    let gates = args.feature_gates.unwrap_or_default();
    if gates != FeatureGates::default() {
        settings.insert("FEATURE_GATES".to_owned(), gates.to_string());
    }
    if let Some(path) = &args.catalog {
        settings.insert(CATALOG.to_owned(), path.display().to_string());
    }
    let text = serde_json::to_string(&settings)?;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {SETTINGS_OF_UP: text}}}));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .patch(NAMESPACE_OF_UP, &PatchParams::default(), &patch)
        .await
        .context("the settings of the operator cannot be written down")?;
    Ok(())
}

fn kwok(
    client: &Client,
    (clock, entropy): (&SharedClock, &Entropy),
    catalog: Catalog,
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> Cloud {
    let options = KwokOptions {
        catalog,
        termination_delay: Duration::from_secs(1),
        ..KwokOptions::default()
    };
    let provider = Arc::new(KwokProvider::new(
        client.clone(),
        clock.clone(),
        &entropy.child("kwok"),
        options,
    ));
    let (cloud, stop) = (provider.clone(), shutdown.clone());
    tasks.spawn("kwok cloud", async move { cloud.run(stop.requested()).await });
    Cloud {
        label_rules: clouds::label_rules(&provider),
        provider,
        remote: None,
    }
}

fn start_operator(
    client: &Client,
    clock: &SharedClock,
    entropy: &Entropy,
    (cloud, gates): (Cloud, FeatureGates),
    narrator: &Narrator,
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> (Metrics, Observer) {
    let options = Options {
        label_rules: cloud.label_rules,
        disruption_threads: crate::settings::cores(),
        spot_to_spot_consolidation: gates.spot_to_spot_consolidation,
        feature_gates: crate::settings::gates_of(gates),
        commit: crate::logging::COMMIT.unwrap_or_default(),
        ..Options::default()
    };
    let speaker = narrator.clone();
    let operator = Operator::new(
        client.clone(),
        cloud.provider,
        clock.clone(),
        entropy.child("operator"),
        options,
    )
    .with_decisions(DecisionLog::new(move |decision| speaker.decision(decision)));
    let stop = shutdown.clone();
    let seen = (operator.metrics().clone(), operator.observer());
    tasks.spawn("operator", async move {
        if let Err(error) = operator.run(stop).await {
            say(&format!("the operator has ended: {error}"));
        }
    });
    seen
}

/// The operator's metrics are the cluster's `/metrics`, and those of the pod that represents the operator for dashboards.
fn serve_metrics(server: &ApiServer, metrics: &Metrics) {
    let own = metrics.clone();
    let text: MetricsFn = Arc::new(move || own.render());
    server.serve_metrics(text.clone());
    server.serve_pod_metrics(OPERATOR_LABEL, OPERATOR_METRICS_PORT, text);
}

fn greet(args: &UpArgs, cluster: &Cluster, page: Option<&Page>) {
    say(&format!(
        "Cluster ready at https://{}",
        cluster.listener.address()
    ));
    say(&format!("  export KUBECONFIG={}", shown(&args.kubeconfig)));
    say(match args.cloud {
        DefinitionsOf::Kwok => "  kubectl get nodes,pods,nodepools,nodeclaims,disruptions -A",
        DefinitionsOf::Aws => "  kubectl get nodes,pods,ec2nodeclasses,nodepools,nodeclaims,disruptions -A",
        DefinitionsOf::Azure => "  kubectl get nodes,pods,aksnodeclasses,nodepools,nodeclaims,disruptions -A",
    });
    if let Some(page) = page {
        say(&format!("Page: {}", page.url()));
    }
    say("Ctrl-C ends it.\n");
}

fn shown(path: &std::path::Path) -> String {
    std::path::absolute(path)
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Option<Duration> = Some(Duration::from_secs(90));

    #[tokio::test(start_paused = true)]
    async fn a_demo_with_so_much_time_ends_as_its_story_does() {
        let (sender, told) = oneshot::channel();
        sender.send(Ok(())).unwrap();
        until_the_end(LIMIT, Some(told)).await.unwrap();
        let (sender, told) = oneshot::channel();
        sender.send(Err(anyhow::anyhow!("a change was refused"))).unwrap();
        let error = until_the_end(LIMIT, Some(told)).await.unwrap_err();
        assert_eq!(error.to_string(), "a change was refused");
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_is_over_is_the_end_of_a_cluster_and_an_error_of_a_demo() {
        until_the_end(LIMIT, None).await.unwrap();
        let (_sender, told) = oneshot::channel();
        let error = until_the_end(LIMIT, Some(told)).await.unwrap_err();
        assert!(error.to_string().contains("not told within 90s"), "{error}");
        let (sender, told) = oneshot::channel();
        drop(sender);
        assert!(until_the_end(LIMIT, Some(told)).await.is_err(), "it has panicked");
    }
}
