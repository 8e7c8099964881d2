//! Workloads grow, then shrink, or their nodes drift: what the cluster costs, how many pods are moved, and how long it takes until nothing changes any more.
//!
//! Everything is on virtual time and drawn from a seed, so a figure depends on the decisions and not on the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_runtime::Api;

use super::figures::Figures;
use super::{Kind, Workload, deploy, large, layout, prepare, running, small, wide, workload};
use crate::lab::{Lab, LabOptions, RunLog};

/// How often the cluster is sampled.
const LOOK: Duration = Duration::from_secs(2);
/// Nothing has changed for so long: it rests (the three minutes of upstream's performance suites).
const REST: Duration = Duration::from_secs(3 * 60);
/// Whatever has not come to rest by then does not.
const LIMIT: Duration = Duration::from_secs(3600);
/// What the cluster costs is added up for so long after the workloads have shrunk.
const PAID: Duration = Duration::from_secs(15 * 60);
/// Between the last pod that runs and the shrinking, as in upstream's bench.
const BETWEEN: Duration = Duration::from_secs(45);

/// How far apart things are that begin at the same time.
const SPREAD: Duration = Duration::from_secs(10);

/// What a write takes where processes share two busy cores, as in `e2e/suites/bench.sh`: 500 pods take about as long to be bound here as there.
const WRITE_TIME: Duration = Duration::from_millis(5);

/// Workloads at their largest and afterwards.
#[derive(Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Steps in which the workloads grow.
    pub steps: u32,
    /// Time between two steps.
    pub pause: Duration,
    /// Seconds until a node registers.
    pub registration_seconds: u32,
    /// How much longer than a second pods take to start and to stop, and nodes to become ready, by chance.
    pub spread: Duration,
    /// The longest that a write to the API server takes.
    pub write_time: Duration,
    /// Seeds it is run with.
    pub seeds: &'static [u64],
    /// Workloads that run before these, if any: what grows then displaces what shrinks.
    pub earlier: Vec<Workload>,
    /// The workloads at their largest.
    pub before: Vec<Workload>,
    /// What becomes of them.
    pub change: Change,
}

/// What happens once the workloads are at their largest.
#[derive(Clone, Debug)]
pub enum Change {
    /// They shrink to these.
    Shrink(Vec<Workload>),
    /// The NodePool's template changes, and all nodes have drifted.
    Drift,
}

/// The scenario that `cargo test` lives; `just settle` lives all of them.
pub const BENCH: &str = "bench";

/// Pods of the bench that was run beside upstream's operator (`e2e/suites/bench.sh`).
fn bench(replicas: u32) -> Vec<Workload> {
    let pods = |name, cpu, memory| Workload {
        grace_seconds: 30,
        ..workload(name, cpu, memory, Kind::Plain, replicas)
    };
    vec![pods("small", "950m", "3900Mi"), pods("large", "3800m", "31Gi")]
}

/// All scenarios.
#[must_use]
pub fn scenarios() -> Vec<Scenario> {
    let at_once = |name, seeds, before, after| Scenario {
        name,
        steps: 1,
        pause: Duration::ZERO,
        registration_seconds: 10,
        spread: SPREAD,
        write_time: Duration::ZERO,
        seeds,
        earlier: Vec::new(),
        before,
        change: Change::Shrink(after),
    };
    let mix = |kind, replicas| vec![small(kind, replicas), large(Kind::Plain, replicas)];
    let protected = |mut workloads: Vec<Workload>| {
        workloads.push(workload("protected", "900m", "450Mi", Kind::DoNotDisrupt, 100));
        workloads
    };
    vec![
        Scenario {
            registration_seconds: 1,
            ..at_once(BENCH, &[1, 2, 3], bench(250), bench(150))
        },
        Scenario {
            registration_seconds: 1,
            spread: Duration::ZERO,
            ..at_once("bench-in-lockstep", &[1], bench(250), bench(150))
        },
        Scenario {
            registration_seconds: 1,
            spread: Duration::ZERO,
            write_time: WRITE_TIME,
            // Weights and write time were chosen on seeds 1 to 3.
            ..at_once("bench-by-the-wall-clock", &[11, 12, 13], bench(250), bench(150))
        },
        Scenario {
            steps: 10,
            pause: Duration::from_secs(2),
            registration_seconds: 1,
            ..at_once("bench-in-steps", &[1], bench(250), bench(150))
        },
        at_once("basic", &[1], mix(Kind::Plain, 500), mix(Kind::Plain, 350)),
        Scenario {
            spread: Duration::ZERO,
            write_time: WRITE_TIME * 4,
            ..at_once(
                "basic-by-the-wall-clock",
                &[11, 12, 13],
                mix(Kind::Plain, 500),
                mix(Kind::Plain, 350),
            )
        },
        at_once(
            "host-name-spreading",
            &[1],
            mix(Kind::HostSpread, 250),
            mix(Kind::HostSpread, 175),
        ),
        at_once(
            "do-not-disrupt",
            &[1],
            protected(mix(Kind::HostSpread, 500)),
            protected(mix(Kind::HostSpread, 250)),
        ),
        Scenario {
            change: Change::Drift,
            ..at_once("drift", &[1], mix(Kind::HostSpread, 300), Vec::new())
        },
        Scenario {
            earlier: vec![small(Kind::HostAnti, 500)],
            ..at_once(
                "interference",
                &[1],
                vec![small(Kind::HostAnti, 250), large(Kind::HostAnti, 500)],
                vec![small(Kind::HostAnti, 400), large(Kind::HostAnti, 200)],
            )
        },
        at_once("wide-deployments", &[1], wide(35, 30), wide(25, 20)),
    ]
}

/// Statistics of the operator from the log of a run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How much of the log was read.
    bytes: usize,
    pub(super) moved: usize,
    pub(super) launched: usize,
    ended: usize,
    /// NodeClaims that came as replacements.
    replacements: BTreeSet<String>,
    /// Nodes of commands, by the name of the command.
    pub(super) commands: BTreeMap<String, Vec<String>>,
    /// Commands that were rolled back.
    taken_back: BTreeSet<String>,
}

impl Seen {
    /// Reads what has been written since.
    pub(super) fn look(&mut self, log: &RunLog) {
        let tail = log.after(self.bytes);
        self.bytes += tail.len();
        for line in String::from_utf8_lossy(&tail).lines() {
            // Seconds, "operator", its name, method, path, body, answer.
            let words: Vec<&str> = line.trim_start().splitn(6, ' ').collect();
            let [_, "operator", _, method, path, rest] = words[..] else {
                continue;
            };
            let path = path.split('?').next().unwrap_or(path);
            let Some((body, answer)) = rest
                .rsplit_once(" -> ")
                .filter(|(_, answer)| answer.starts_with('2'))
            else {
                continue;
            };
            match method {
                "POST" if path.ends_with("/eviction") => self.moved += usize::from(answer == "201"),
                "POST" if path.ends_with("/nodeclaims") => self.launched += 1,
                "POST" if path.ends_with("/disruptions") => self.command(body),
                "DELETE" if path.contains("/nodeclaims/") => self.ended += 1,
                "PATCH" if path.ends_with("/status") && body.contains("\"phase\":\"RolledBack\"") => {
                    let name = path.trim_end_matches("/status").rsplit('/').next();
                    self.taken_back.insert(name.unwrap_or_default().to_owned());
                }
                _ => {}
            }
        }
    }

    fn command(&mut self, body: &str) {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let claims = |list: &str| -> Vec<String> {
            let all = body["spec"][list].as_array().cloned().unwrap_or_default();
            let names = all.iter().filter_map(|one| one["nodeClaim"].as_str());
            names.map(ToOwned::to_owned).collect()
        };
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        self.commands.insert(name.to_owned(), claims("nodes"));
        self.replacements.extend(claims("replacements"));
    }

    /// Replacements that a later command took away again.
    fn disrupted_again(&self) -> usize {
        let stood = self
            .commands
            .iter()
            .filter(|(name, _)| !self.taken_back.contains(*name));
        stood
            .flat_map(|(_, nodes)| nodes)
            .filter(|node| self.replacements.contains(*node))
            .count()
    }
}

/// A sample on the way to convergence.
#[derive(Debug)]
pub struct Moment {
    /// Seconds since the workloads have shrunk.
    pub seconds: u64,
    /// Price of the nodes in micro-dollars an hour.
    pub price: i64,
    /// NodeClaims made and deleted so far.
    pub launched: usize,
    /// The same.
    pub ended: usize,
    /// Pods evicted so far.
    pub moved: usize,
    /// Commands so far.
    pub commands: usize,
    /// Which pods share which nodes, where it has changed and was asked for.
    pub layout: Option<String>,
}

/// What of a run is not said by its scenario.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Pending pods name the node that they were planned on.
    pub nominate_pods: bool,
    /// Samples tell which pods share which nodes.
    pub layouts: bool,
}

/// Runs a scenario; `moment` is called with samples after the scale-down.
///
/// # Errors
/// The server's; or that pods did not run, that it never came to rest, or what it broke.
pub async fn live(
    scenario: &Scenario,
    seed: u64,
    options: Options,
    mut moment: impl FnMut(&Moment),
) -> Result<Figures, String> {
    let mut lab_options = LabOptions::new(seed);
    lab_options.operator.nominate_pods = options.nominate_pods;
    lab_options.cluster.spread = scenario.spread;
    lab_options.write_time = scenario.write_time;
    let mut lab = Lab::new(lab_options).await;
    let answer = live_in(&mut lab, scenario, options.layouts, &mut moment).await;
    let broken = lab.invariants.violations();
    lab.end().await;
    match broken.first() {
        Some(first) => Err(format!("{} seed {seed}: {first}", scenario.name)),
        None => answer.map_err(|why| format!("{} seed {seed}: {why}", scenario.name)),
    }
}

fn pods(workloads: &[Workload]) -> u32 {
    workloads.iter().map(|one| one.replicas).sum()
}

async fn live_in(
    lab: &mut Lab,
    scenario: &Scenario,
    layouts: bool,
    moment: &mut impl FnMut(&Moment),
) -> Result<Figures, String> {
    let told = |error: kube::Error| error.to_string();
    prepare(lab, scenario.registration_seconds).await.map_err(told)?;
    lab.start("a");
    grow(lab, scenario).await?;
    let mut before = Seen::default();
    before.look(&lab.log);
    let mut figures = Figures {
        launch_nodes: before.launched,
        launch_price: lab.invariants.cost(),
        ..Figures::default()
    };
    lab.clock.sleep(BETWEEN).await;
    before.look(&lab.log);
    let mut seen = Seen {
        bytes: before.bytes,
        ..Seen::default()
    };
    match &scenario.change {
        Change::Shrink(after) => deploy(lab, after).await.map_err(told)?,
        Change::Drift => {
            let annotation = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
            let pools: Api<NodePool> = Api::all(lab.client.clone());
            lab.merge(&pools, "default", annotation).await.map_err(told)?;
        }
    }
    settle(lab, scenario, layouts, &mut seen, &mut figures, moment).await?;
    figures.price = lab.invariants.cost();
    figures.nodes = lab.list_values::<NodeClaim>().await.len();
    figures.moved = seen.moved;
    figures.commands = seen.commands.len();
    figures.launched = seen.launched;
    figures.disrupted_again = seen.disrupted_again();
    Ok(figures)
}

/// Lets the workloads grow until all their pods run.
async fn grow(lab: &Lab, scenario: &Scenario) -> Result<(), String> {
    let began = lab.clock.now();
    if !scenario.earlier.is_empty() {
        deploy(lab, &scenario.earlier)
            .await
            .map_err(|error| error.to_string())?;
        until_running(lab, &scenario.earlier, began).await?;
    }
    for step in 1..=scenario.steps {
        let part = |one: &Workload| Workload {
            replicas: one.replicas * step / scenario.steps,
            ..one.clone()
        };
        let part: Vec<Workload> = scenario.before.iter().map(part).collect();
        deploy(lab, &part).await.map_err(|error| error.to_string())?;
        if step < scenario.steps {
            lab.clock.sleep(scenario.pause).await;
        }
    }
    until_running(lab, &scenario.before, began).await
}

/// Waits until all pods of these workloads run.
async fn until_running(lab: &Lab, workloads: &[Workload], began: Timestamp) -> Result<(), String> {
    while running(lab).await != pods(workloads) {
        if lab.clock.since(began) > LIMIT {
            return Err("not all pods run after an hour".to_owned());
        }
        lab.clock.sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until nothing is launched, deleted, moved or ends any more and all pods run, and adds up what is paid.
async fn settle(
    lab: &Lab,
    scenario: &Scenario,
    layouts: bool,
    seen: &mut Seen,
    figures: &mut Figures,
    moment: &mut impl FnMut(&Moment),
) -> Result<(), String> {
    let start = lab.clock.now();
    let wanted = match &scenario.change {
        Change::Shrink(after) => pods(after),
        Change::Drift => pods(&scenario.before),
    };
    let (mut last, mut state) = (Duration::ZERO, (0, 0, 0, 0));
    let mut paid: i64 = 0;
    let mut told = String::new();
    for look in 0_u64.. {
        let elapsed = lab.clock.since(start);
        seen.look(&lab.log);
        let cost = lab.invariants.cost();
        let now = (seen.launched, seen.ended, seen.moved, cost);
        if now != state {
            (state, last) = (now, elapsed);
        }
        if elapsed < PAID {
            paid += cost * i64::try_from(LOOK.as_secs()).unwrap_or(1);
        }
        if look.is_multiple_of(5) {
            let mut layout = None;
            if layouts {
                layout = Some(layout::layout(lab).await).filter(|now| *now != told);
                told = layout.clone().unwrap_or(told);
            }
            moment(&Moment {
                seconds: elapsed.as_secs(),
                price: cost,
                launched: seen.launched,
                ended: seen.ended,
                moved: seen.moved,
                commands: seen.commands.len(),
                layout,
            });
        }
        let is_rest = elapsed.saturating_sub(last) > REST && elapsed >= PAID;
        if is_rest && running(lab).await == wanted {
            figures.paid = paid / 3600;
            figures.seconds = last.as_secs();
            return Ok(());
        }
        if elapsed > LIMIT {
            break;
        }
        lab.clock.sleep(LOOK).await;
    }
    Err("it has not come to rest after an hour".to_owned())
}
