//! `spokeshave plan`: what would be launched and disrupted, for a dump or the current cluster.
//!
//! It runs the very functions that the controllers run and changes nothing. Reading is in `dump`, what has to be assumed in `world`, the
//! machine-readable form in `format`, the text form in `table`.

mod args;
mod autoscalers;
mod disruption;
pub(crate) mod documents;
pub(crate) mod dump;
pub(crate) mod ec2;
mod expired;
pub(crate) mod files;
pub(crate) mod format;
mod further;
#[cfg(test)]
mod fuzz;
pub(crate) mod in_force;
mod item;
mod kwok;
mod later;
pub(crate) mod live;
mod notes;
pub(crate) mod object;
mod regions;
mod replicas;
pub(crate) mod schema;
mod table;
pub(crate) mod twice;
mod unjudged;
mod unreadable;
mod workloads;
pub(crate) mod world;
mod written;

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jiff::Timestamp;
use kube::Client;
use spokeshave_model::snapshot::NodeView;
use spokeshave_model::{LiveSnapshot, Snapshot, trim};
use spokeshave_plan::disrupt::{Outcome, Stage, decide_each_alone};
use spokeshave_plan::{Policy, provision};
use spokeshave_provider_kwok::Catalog;
use spokeshave_story::expired::Expired;
use spokeshave_story::prices;
use spokeshave_story::replicas::Replicas;

use crate::arguments::OutputFormat;
use crate::text::{count, say, visible};
use crate::{cluster, scheduler_config};
use ec2::Ec2;
use format::{API_VERSION, Cluster, Disruption, Plan, Provisioning, Stats, WhatIfs};
use in_force::InForce;
use world::{Origin, World, mark_held};

pub(crate) use args::{EXAMPLES, PlanArgs, SourceArgs};
pub(crate) use item::Item;
pub(crate) use written::Written;

/// A plan, and how it is to be printed.
#[derive(Debug)]
pub(crate) struct Planned {
    plan: Plan,
    output: OutputFormat,
}

/// Plans.
///
/// # Errors
/// The dump or the catalog cannot be read, or the cluster does not answer.
pub(crate) async fn run(args: &PlanArgs) -> Result<Planned> {
    let start = Instant::now();
    let Loaded {
        mut world,
        now,
        objects,
        instance_types,
        client,
        in_force,
        ..
    } = load(&args.source).await?;
    let mut knows_commands = world.knows_commands();
    // With DisruptionPolicies they have been read.
    if let Some(client) = client.filter(|_| world.state.disruption_policies.is_empty()) {
        match live::commands(&client).await {
            Ok(dump) => {
                for one in &dump.unreadable {
                    say(&format!("note: {}", one.note("planned as if it were absent")));
                }
                knows_commands = dump.unreadable.is_empty();
                world.state.disruptions = dump.disruptions;
            }
            Err(problem) => {
                say(&format!("note: {problem}"));
                knows_commands = false;
            }
        }
    }
    let commands = world.state.disruptions.clone();
    mark_held(&mut world.state, &commands);
    let mut stats = Stats {
        objects,
        instance_types,
        read_ns: nanoseconds(start),
        ..Stats::default()
    };
    let mut replicas = Replicas::of(&world.state, &commands, now);
    if !knows_commands {
        // One that nobody knows may be replacing what looks like one node too many: an operator deletes none then.
        replicas.excess.clear();
    }
    let expired = Expired::of(&world.state, now);
    let start = Instant::now();
    let mut live = LiveSnapshot::new(world.state);
    stats.lower_ns = nanoseconds(start);
    let snapshot = live.snapshot_for_a_look();
    if let Some(note) = spot_note(snapshot) {
        say(&format!("note: {note}"));
    }
    if let Some(note) = replicas::note(&replicas, snapshot) {
        say(&format!("note: {note}"));
    }
    // Nodes are lowered again when commands begin, pods are not.
    trim::lowered(snapshot);
    let policy = policy(args, &in_force);
    let (mut plan, disrupted) = decide(snapshot, &policy, &replicas, &expired, now, &mut stats);
    plan.settings = in_force.told;
    replicas::tell(replicas, snapshot, &mut plan);
    expired::tell(&expired, snapshot, &mut plan);
    if args.stats {
        stats.what_if_ns = candidates(snapshot, &policy, now);
    }
    let start = Instant::now();
    let later = further::commands(&mut live, disrupted, &policy, now);
    (plan.disruption.later, plan.disruption.is_cut) = later;
    stats.later_ns += nanoseconds(start);
    if args.stats {
        stats.peak_rss_bytes = peak_rss_bytes();
        plan.stats = Some(stats);
    }
    Ok(Planned {
        plan,
        output: args.output,
    })
}

/// A state to decide about.
pub(crate) struct Loaded {
    /// The state; its notes were printed.
    pub(crate) world: World,
    /// The instant to decide at.
    pub(crate) now: Timestamp,
    /// Objects read.
    pub(crate) objects: usize,
    /// Instance types that a NodePool is offered.
    pub(crate) instance_types: usize,
    /// The cluster, if that was read.
    pub(crate) client: Option<Client>,
    /// Objects of files that no decision reads and `explain` does, as they were written.
    pub(crate) written: Vec<Written>,
    /// The settings to decide with; their notes were printed.
    pub(crate) in_force: InForce,
}

/// Reads the dump or, without one, the cluster with the settings of its operator, and prints assumptions to standard error.
///
/// # Errors
/// The dump or the catalog cannot be read, or the cluster does not answer.
pub(crate) async fn load(source: &SourceArgs) -> Result<Loaded> {
    // What is wrong with the command line is said before anything is read.
    let mut ec2 = Ec2::unless(source.catalog.as_deref(), source.region.as_deref())?;
    files::check(&source.filenames)?;
    source.settings.check()?;
    let mut scheduler = Arc::new(scheduler_config::read(source.scheduler_config.as_deref())?);
    let mut catalog = match &source.catalog {
        Some(path) => Arc::new(Catalog::from_file(path)?),
        None => Arc::default(),
    };
    let mut in_force = InForce::of_files(&source.settings)?;
    let (mut dump, now, client) = if source.filenames.is_empty() {
        let cluster = cluster::Cluster::reach(&source.cluster).await?;
        in_force = InForce::of_cluster(&cluster.client, source).await?;
        scheduler = in_force.scheduler_under(source, scheduler);
        catalog = in_force.catalog_under(source, catalog);
        let spread = scheduler.profiles.have_default_constraints();
        let (dump, refusal) = live::read(&cluster.client, spread).await?;
        ec2 = ec2.map(|ec2| ec2.of_cluster(refusal));
        (dump, cluster.now, Some(cluster.client))
    } else {
        (files::read(&source.filenames)?, Timestamp::now(), None)
    };
    let origin = match client {
        Some(_) => Origin::Cluster,
        None => Origin::Files {
            own_catalog: source.catalog.is_some(),
        },
    };
    let now = source.now.unwrap_or(now);
    let objects = dump.objects;
    let written = std::mem::take(&mut dump.written);
    let (checked, written) = written.into_iter().partition(Written::is_checked);
    dump.written = checked;
    let types = catalog.instance_types();
    ec2 = ec2.map(|ec2| ec2.under(in_force.aws));
    let left_out = in_force.gates.leave_out(&mut dump);
    let gaps = match origin {
        Origin::Files { .. } | Origin::Scenario { .. } => notes::gaps(&dump),
        Origin::Cluster => Vec::new(),
    };
    let profiles = Arc::clone(&scheduler.profiles);
    let mut world = World::new(dump, origin, types, ec2.as_ref(), profiles, now);
    if in_force.knows_catalog {
        let taken = world.taken_types.take();
        world.notes.retain(|note| taken.as_ref() != Some(note));
    }
    world.notes.extend(left_out);
    world.notes.extend(in_force.gates.apply(&mut world.state, now));
    world.notes.extend(gaps);
    world.notes.extend(scheduler.notes());
    for note in in_force.notes().iter().chain(&world.notes) {
        say(&format!("note: {note}"));
    }
    let offered = world
        .state
        .instance_types
        .values()
        .flatten()
        .map(|types| types.len());
    let instance_types = offered.max().unwrap_or(types.len());
    Ok(Loaded {
        world,
        now,
        objects,
        instance_types,
        client,
        written,
        in_force,
    })
}

/// The operator's settings, and the requested options.
fn policy(args: &PlanArgs, in_force: &InForce) -> Policy {
    let mut policy = in_force.policy();
    policy.disrupt.verdicts = args.verdicts;
    if !args.methods.is_empty() {
        policy.disrupt.methods = args.methods.iter().map(|name| name.method()).collect();
    }
    policy
}

fn decide(
    snapshot: &mut Snapshot,
    policy: &Policy,
    replicas: &Replicas,
    expired: &Expired,
    now: Timestamp,
    stats: &mut Stats,
) -> (Plan, Outcome) {
    let start = Instant::now();
    let outcome = provision(snapshot, policy, now);
    stats.provision_ns = nanoseconds(start);
    stats.attempts = outcome.report.statistics.attempts;
    stats.nodes_tried = outcome.report.statistics.nodes_tried;
    stats.node_claims_tried = outcome.report.statistics.claims_tried;
    let derivations = outcome.explain(snapshot, policy);
    let start = Instant::now();
    let later = later::launches(snapshot, &outcome, &derivations, policy, now);
    stats.later_ns = nanoseconds(start);
    let provisioning = Provisioning::of(snapshot, &outcome, &derivations, later, policy);
    let nominated = outcome.nominate(snapshot, now);
    // They are large, and not needed once they are told.
    drop((outcome, derivations));
    let start = Instant::now();
    let mut disrupted = disruption::decide(snapshot, policy, now, &nominated);
    replicas.tell(snapshot, &mut disrupted.verdicts);
    expired.tell(snapshot, &mut disrupted.verdicts);
    stats.disrupt_ns = nanoseconds(start);
    stats.what_ifs = disrupted.statistics.what_ifs;
    let plan = Plan {
        api_version: API_VERSION,
        kind: "Plan",
        now,
        cluster: Cluster::of(snapshot),
        provisioning,
        disruption: Disruption::of(snapshot, &disrupted, policy.disrupt.verdicts, now),
        settings: None,
        stats: None,
    };
    (plan, disrupted)
}

/// With which prices spot nodes count where those of spot capacity are not known.
fn spot_note(snapshot: &Snapshot) -> Option<String> {
    let spot = snapshot
        .nodes
        .iter()
        .filter(|node| node.is_managed() && prices::is_taken_for_on_demand(snapshot, node));
    let (told, untold): (Vec<&NodeView>, Vec<&NodeView>) =
        spot.partition(|node| prices::instead(snapshot, node).is_some());
    let parts = [
        (told.len(), "the price at launch"),
        (
            untold.len(),
            "the price of on-demand, because no NodeClaim says what they cost at launch",
        ),
    ];
    let parts = parts.iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> = parts
        .map(|(number, price)| format!("{} counted with {price}", count(*number, "spot node")))
        .collect();
    let parts = parts.join("; ");
    (!parts.is_empty()).then(|| format!("prices of spot are not known here: {parts}"))
}

impl Planned {
    /// Writes it bit by bit: the JSON of a large plan is larger than the cluster that it is for.
    ///
    /// # Errors
    /// What it is written to takes no more.
    pub(crate) fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        match self.output {
            OutputFormat::Table => out.write_all(visible(&table::render(&self.plan)).as_bytes()),
            OutputFormat::Json => {
                serde_json::to_writer_pretty(&mut *out, &self.plan)?;
                out.write_all(b"\n")
            }
            OutputFormat::Yaml => {
                let text = serde_saphyr::to_string(&self.plan).map_err(std::io::Error::other)?;
                out.write_all(text.as_bytes())
            }
        }
    }
}

/// How long the decision about each single candidate takes, made as single-node consolidation makes it.
fn candidates(snapshot: &Snapshot, policy: &Policy, now: Timestamp) -> WhatIfs {
    let begin = Instant::now();
    let mut times: Vec<u64> = Vec::new();
    let mut start = Instant::now();
    decide_each_alone(snapshot, policy, now, |stage| {
        if stage == Stage::Decided {
            times.push(nanoseconds(start));
        }
        start = Instant::now();
    });
    let total = nanoseconds(begin);
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get(times.len() * percent / 100);
        time.copied().unwrap_or_default()
    };
    WhatIfs {
        count: times.len() as u64,
        median: at(50),
        p99: at(99),
        total,
    }
}

fn nanoseconds(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Peak memory of this process, if the system reports it.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}
