//! `spokeshave operator`: the controllers against a cluster that is there.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use spokeshave_controllers::shadow::Shadow;
use spokeshave_controllers::{EvictionRate, FeatureGates, LeaderElectionOptions, Operator, Options};
use spokeshave_ports::{Entropy, SharedClock, TokioClock};
use spokeshave_runtime::client::{ClientOptions, from_config};
use spokeshave_runtime::{HttpServer, Metrics, Shutdown, TaskGroup, bind, read_only};

use crate::cli::OperatorArgs;
use crate::look::Source;
use crate::settings::{self, Environment, Settings};
use crate::web::Page;
use crate::{clouds, logging, providers, scheduler_config, shadow, signals};

const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Runs the controllers until they are told to stop.
///
/// # Errors
/// A malformed setting, a cluster that cannot be reached, a port in use, or a lost leadership.
pub(crate) async fn run(args: OperatorArgs, environment: &Environment) -> Result<()> {
    let settings = Settings::resolve(&args.settings, environment)?;
    let clock: SharedClock = TokioClock::wall(1.0).shared();
    let (level, format) = (settings.log_level, settings.log_format);
    logging::install(level, format, &settings.log_output_paths, clock.clone())?;
    let default_spread = match &settings.scheduler_config {
        Some(path) => scheduler_config::read(path)?,
        None => Vec::new(),
    };
    let entropy = Entropy::new(seed());
    let config = configuration(args.kubeconfig.as_deref()).await?;
    let server = config.cluster_url.clone();
    let rate = Some((f64::from(settings.kube_client_qps), settings.kube_client_burst));
    let registry = Metrics::new(clock.clone());
    registry.register_process();
    let mut client = connect(&config, rate, &clock, Some(registry.clone()))?;
    if args.shadow {
        // Whoever is given this client cannot write, the provider included.
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

    let metrics_listener = listen(settings.metrics_port, "metrics (METRICS_PORT)").await?;
    let health_listener = listen(settings.health_probe_port, "health probes (HEALTH_PROBE_PORT)").await?;
    let shutdown = Shutdown::new();
    let mut tasks = TaskGroup::new();
    let cloud = clouds::start(
        args.cloud_provider,
        &args.provider,
        &settings,
        &clouds::Surroundings {
            client: client.clone(),
            version: version.git_version.clone(),
            minor: clouds::minor_version(&version.minor),
            clock: clock.clone(),
            entropy: entropy.clone(),
            shutdown: shutdown.clone(),
            reads_only: args.shadow,
        },
        &mut tasks,
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
            default_spread,
            ..controller_options(&settings)
        };
        let entropy = entropy.child("operator");
        let shadow = Shadow::new(&client, cloud.provider, clock.clone(), entropy, options, registry);
        let ports = shadow::Ports {
            metrics: metrics_listener,
            health: health_listener,
        };
        shadow::run(shadow, ports, tasks, clock, shutdown).await;
        return Ok(());
    }
    if args.simulate_kubelets {
        let kubelets = connect(&config, None, &clock, None)?;
        let options = spokeshave_sim::Options::kubelets_only();
        tasks.spawn(
            "kubelets",
            spokeshave_sim::run(
                kubelets,
                clock.clone(),
                entropy.child("kubelets"),
                options,
                shutdown.clone(),
            ),
        );
    }
    let options = Options {
        label_rules: cloud.label_rules,
        default_spread,
        ..controller_options(&settings)
    };
    let operator = Operator::new(
        client,
        cloud.provider,
        clock.clone(),
        entropy.child("operator"),
        options,
    )
    .with_metrics(registry)
    .with_lease_thread({
        let (config, clock) = (config.clone(), clock.clone());
        move || connect(&config, None, &clock, None)
    });
    if let Some(address) = args.web {
        let page = Page::listen(address, args.web_host).await?;
        tracing::info!(url = page.url(), "the page is served");
        let source = Source::Operator(operator.observer(), None);
        tasks.spawn("page", page.run(source, server.to_string(), shutdown.clone()));
    }
    if let Some(remote) = cloud.remote {
        let (readiness, clock) = (operator.readiness().clone(), clock.clone());
        let stop = shutdown.clone();
        let watch = providers::watch_readiness(remote, readiness, clock, stop);
        tasks.spawn("provider", watch);
    }
    let metrics = HttpServer {
        metrics: Some(operator.metrics().clone()),
        profiling: settings.enable_profiling,
        ..HttpServer::default()
    };
    tasks.spawn("metrics", metrics.serve(metrics_listener, shutdown.clone()));
    let health = HttpServer {
        readiness: Some(operator.readiness().clone()),
        ..HttpServer::default()
    };
    tasks.spawn("health", health.serve(health_listener, shutdown.clone()));

    let stop = shutdown.clone();
    let mut running = tokio::spawn(operator.run(stop));
    let outcome = tokio::select! {
        biased;
        () = signals::wait(None) => {
            shutdown.request();
            running.await
        }
        ended = &mut running => ended,
    };
    shutdown.request();
    drop(tasks.drain(&clock, STOP_LIMIT).await);
    outcome
        .context("the operator panicked")?
        .context("the operator has ended")
}

async fn listen(port: u16, purpose: &str) -> Result<tokio::net::TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    Ok(bind(address, purpose).await?)
}

pub(crate) fn connect(
    config: &kube::Config,
    rate: Option<(f64, u32)>,
    clock: &SharedClock,
    metrics: Option<Metrics>,
) -> Result<Client> {
    let options = ClientOptions {
        rate,
        metrics,
        ..ClientOptions::default()
    };
    from_config(config.clone(), &options, clock.clone()).context("cannot make a client of the cluster")
}

/// What a kubeconfig, or else the environment, says about a cluster.
pub(crate) async fn configuration(path: Option<&Path>) -> Result<kube::Config> {
    let Some(path) = path else {
        return kube::Config::infer()
            .await
            .context("no kubeconfig and no service account; name a file with --kubeconfig");
    };
    let shown = path.display().to_string();
    let file = Kubeconfig::read_from(PathBuf::from(path))
        .with_context(|| format!("cannot read the kubeconfig {shown}"))?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("the kubeconfig {shown} cannot be used"))
}

/// Names and jitter of a production run differ from run to run.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish()
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
        object_metrics: !settings.disable_cluster_state_observability,
        eviction_rate: settings.eviction_rate().map(|(per_second, burst)| EvictionRate {
            per_second: f64::from(per_second),
            burst,
        }),
        ..Options::default()
    }
}

/// The gates that the controllers know.
pub(crate) fn gates_of(gates: settings::FeatureGates) -> FeatureGates {
    FeatureGates {
        reserved_capacity: gates.reserved_capacity,
        node_repair: gates.node_repair,
        static_capacity: gates.static_capacity,
        node_overlay: gates.node_overlay,
        capacity_buffer: gates.capacity_buffer,
    }
}

/// How many threads the machine can run at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
