//! `spokeshave operator`: the controllers against an existing cluster.
//!
//! Owns the order in which they start and stop. Kubelets without machines run beside them in builds with the feature `embedded` only.

mod args;
pub(crate) mod clock;
mod listeners;

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use spokeshave_aws_cloud::minor_version;
use spokeshave_controllers::shadow::Shadow;
use spokeshave_controllers::{EvictionRate, LeaderElectionOptions, Operator, OperatorError, Options};
use spokeshave_ports::{Entropy, SharedClock, SystemClock};
use spokeshave_runtime::{HttpServer, Metrics, Shutdown, TaskGroup, read_only};

use crate::connection::{ClusterArgs, certificates, configuration, connect, seed};
use crate::look::Source;
use crate::settings::{Environment, Settings, cores, gates_of};
use crate::signals::STOP_LIMIT;
use crate::web::Page;
use crate::{clouds, logging, remote_provider, scheduler_config, shadow, signals};

pub(crate) use args::{EXAMPLES, OperatorArgs};
use listeners::listen;

const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// What an operator does once it is connected, until shutdown.
type Work = BoxFuture<'static, Result<(), OperatorError>>;

/// Runs the controllers until they are stopped.
///
/// # Errors
/// A malformed setting, a cluster that cannot be reached, a port in use, a lost leadership, a task that panicked, or a system clock that was set by minutes.
pub(crate) async fn run(args: OperatorArgs, environment: &Environment) -> Result<()> {
    let settings = Settings::resolve(&args.settings, environment)?;
    let system = SystemClock::new();
    let clock = system.clone().shared();
    let (level, format) = (settings.log_level, settings.log_format);
    logging::install(level, format, &settings.log_output_paths, clock.clone())?;
    let shutdown = signals::shutdown();
    let mut tasks = TaskGroup::new();
    // From the beginning: a provider may be waited for for minutes.
    let mut off = std::pin::pin!(clock::too_far_off(system));
    let starting = start(args, &settings, &clock, &mut tasks, &shutdown);
    let started = tokio::select! {
        biased;
        why = &mut off => Some(Err(why)),
        started = shutdown.cut(starting) => started,
    };
    let outcome = match started {
        Some(Ok(work)) => finish(work, &tasks, off, &shutdown).await,
        Some(Err(error)) => Err(error),
        // It was told to stop before it had begun.
        None => Ok(()),
    };
    if let Err(error) = &outcome {
        // Whoever reads the log may not have standard error.
        tracing::error!(error = format!("{error:#}"), "ended by an error");
    }
    shutdown.request();
    drop(tasks.drain(&clock, STOP_LIMIT).await);
    outcome
}

/// Connects the operator with all that it needs, and serves what others ask of it.
///
/// # Errors
/// A cluster that cannot be reached, a port in use, or a cloud that cannot be started.
async fn start(
    args: OperatorArgs,
    settings: &Settings,
    clock: &SharedClock,
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> Result<Work> {
    let scheduler = scheduler_config::read(settings.scheduler_config.as_deref())?;
    let entropy = Entropy::new(seed());
    let config = configuration(&args.cluster).await?;
    let server = config.cluster_url.clone();
    let rate = Some((f64::from(settings.kube_client_qps), settings.kube_client_burst));
    let registry = Metrics::new(clock.clone());
    registry.register_process();
    let mut client = connect(&config, &args.cluster, rate, clock, Some(registry.clone()))?;
    if args.shadow {
        // No user of this client can write, including the provider.
        client = read_only(client);
    }
    let version = client
        .apiserver_version()
        .await
        .with_context(|| format!("the cluster at {server} does not answer"))?;
    tracing::info!(server = %server, version = version.git_version, "connected");
    for warning in settings.without_effect() {
        tracing::warn!("{warning}");
    }
    for warning in &scheduler.warnings {
        tracing::warn!("scheduler config: {warning}");
    }
    for remark in &scheduler.remarks {
        tracing::info!("scheduler config: {remark}");
    }

    let metrics_listener = listen(settings.metrics_port, "metrics (METRICS_PORT)").await?;
    let health_listener = listen(settings.health_probe_port, "health probes (HEALTH_PROBE_PORT)").await?;
    let (metrics, health) = (metrics_listener.local_addr()?, health_listener.local_addr()?);
    tracing::info!(%metrics, %health, "listening");
    // A provider may be waited for for minutes: until then the operator is alive, and not ready.
    let readiness = Operator::unready();
    let health = HttpServer {
        readiness: Some(readiness.clone()),
        ..HttpServer::default()
    };
    tasks.spawn("health", health.serve(health_listener, shutdown.clone()));
    let cloud = clouds::start(
        args.cloud_provider,
        &args.provider,
        settings,
        &clouds::Surroundings {
            client: client.clone(),
            certificates: certificates(&config),
            version: version.git_version.clone(),
            minor: minor_version(&version.minor).unwrap_or(0),
            clock: clock.clone(),
            entropy: entropy.clone(),
            shutdown: shutdown.clone(),
            reads_only: args.shadow,
        },
        tasks,
    )
    .await?;
    if args.shadow {
        let gates = &settings.feature_gates;
        for (name, is_on) in [
            ("NodeOverlay", gates.node_overlay),
            ("StaticCapacity", gates.static_capacity),
        ] {
            if is_on {
                tracing::warn!(
                    gate = name,
                    "a shadow leaves this out: what it does is not compared"
                );
            }
        }
        let options = Options {
            label_rules: cloud.label_rules,
            scheduler_profiles: scheduler.profiles,
            ..controller_options(settings)
        };
        let entropy = entropy.child("operator");
        let shadow = Shadow::new(&client, cloud.provider, clock.clone(), entropy, options, registry)
            .with_readiness(readiness);
        let metrics = shadow::metrics(&shadow);
        tasks.spawn("metrics", metrics.serve(metrics_listener, shutdown.clone()));
        tracing::info!("a shadow: it decides, reports under /shadow, and changes nothing");
        return Ok(Box::pin(shadow.run(shutdown.clone())));
    }
    if args.simulate_kubelets {
        simulate_kubelets(&config, &args.cluster, clock, &entropy, tasks, shutdown)?;
    }
    let options = Options {
        label_rules: cloud.label_rules,
        scheduler_profiles: scheduler.profiles,
        ..controller_options(settings)
    };
    let operator = Operator::new(
        client,
        cloud.provider,
        clock.clone(),
        entropy.child("operator"),
        options,
    )
    .with_metrics(registry)
    .with_readiness(readiness.clone())
    .with_lease_thread({
        let (config, cluster, clock) = (config.clone(), args.cluster.clone(), clock.clone());
        move || connect(&config, &cluster, None, &clock, None)
    });
    if let Some(address) = args.web {
        let page = Page::listen(address, args.web_host).await?;
        tracing::info!(url = page.url(), "the page is served");
        let source = Source::Operator(operator.observer(), None);
        tasks.spawn("page", page.run(source, server.to_string(), shutdown.clone()));
    }
    if let Some(remote) = cloud.remote {
        let watch = remote_provider::watch_readiness(remote, readiness, clock.clone(), shutdown.clone());
        tasks.spawn("provider", watch);
    }
    let metrics = HttpServer {
        metrics: Some(operator.metrics().clone()),
        profiling: settings.enable_profiling,
        ..HttpServer::default()
    };
    tasks.spawn("metrics", metrics.serve(metrics_listener, shutdown.clone()));
    Ok(Box::pin(operator.run(shutdown.clone())))
}

/// How the work ends. What runs beside it is missed as much: the provider, for one.
async fn finish(
    work: Work,
    tasks: &TaskGroup,
    off: impl Future<Output = anyhow::Error>,
    shutdown: &Shutdown,
) -> Result<()> {
    let mut running = tokio::spawn(work);
    let outcome = tokio::select! {
        biased;
        name = tasks.panicked() => {
            shutdown.request();
            let ended = running.await;
            ended.map(|ended| ended.and(Err(OperatorError::TaskPanicked(name))))
        }
        why = off => {
            shutdown.request();
            drop(running.await);
            return Err(why);
        }
        ended = &mut running => ended,
    };
    outcome
        .context("the operator panicked")?
        .context("the operator has ended")
}

/// Kubelets for nodes without machines.
#[cfg(feature = "embedded")]
fn simulate_kubelets(
    config: &kube::Config,
    cluster: &ClusterArgs,
    clock: &SharedClock,
    entropy: &Entropy,
    tasks: &mut TaskGroup,
    shutdown: &Shutdown,
) -> Result<()> {
    let kubelets = connect(config, cluster, None, clock, None)?;
    let options = spokeshave_cluster::Options::kubelets_only();
    let entropy = entropy.child("kubelets");
    tasks.spawn(
        "kubelets",
        spokeshave_cluster::run(kubelets, clock.clone(), entropy, options, shutdown.clone()),
    );
    Ok(())
}

/// This build has none.
#[cfg(not(feature = "embedded"))]
fn simulate_kubelets(
    _: &kube::Config,
    _: &ClusterArgs,
    _: &SharedClock,
    _: &Entropy,
    _: &mut TaskGroup,
    _: &Shutdown,
) -> Result<()> {
    anyhow::bail!(
        "--simulate-kubelets: this program was built without the embedded cluster; build it with the feature embedded"
    )
}

fn controller_options(settings: &Settings) -> Options {
    let leader_election = (!settings.disable_leader_election).then(|| {
        let in_cluster = std::fs::read_to_string(NAMESPACE_FILE)
            .ok()
            .map(|text| text.trim().to_owned());
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "spokeshave".to_owned());
        LeaderElectionOptions {
            namespace: settings
                .leader_election_namespace
                .clone()
                .or(in_cluster)
                .unwrap_or_else(|| "kube-system".to_owned()),
            name: settings.leader_election_name.clone(),
            identity: format!("{host}_{:016x}", seed()),
        }
    });
    Options {
        batch_max_duration: settings.batch_max_duration,
        batch_idle_duration: settings.batch_idle_duration,
        preference_policy: settings.preference_policy,
        min_values_policy: settings.min_values_policy,
        spot_to_spot_consolidation: settings.feature_gates.spot_to_spot_consolidation,
        consolidation_replacements: usize::try_from(settings.consolidation_replacements).unwrap_or(1),
        disruption_threads: cores(),
        leader_election,
        feature_gates: gates_of(settings.feature_gates),
        cpu_requests_milli: settings.cpu_requests_milli(),
        dynamic_resources: !settings.ignore_dra_requests,
        nominate_pods: settings.nominate_pods,
        object_metrics: !settings.disable_cluster_state_observability,
        eviction_rate: settings.eviction_rate().map(|(per_second, burst)| EvictionRate {
            per_second: f64::from(per_second),
            burst,
        }),
        commit: logging::COMMIT.unwrap_or_default(),
        ..Options::default()
    }
}
