//! Scenarios drawn from a seed: a cluster, its workloads and its bad days, then calm, then the end of all workloads.
//!
//! A seed chooses what may happen at all (swarm testing: a run in which one thing never happens finds what a run with everything hides),
//! then what happens when. The checkers watch the whole time; afterwards the cluster must settle, and in the end nothing may be left.

mod policies;
mod scenario;
mod steps;
mod workloads;

use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) use scenario::pick;

use spokeshave_provider_grpc::Way;

use crate::invariants::Violation;
use crate::lab::{Asked, Lab, LabOptions, Operators, live};

/// What a run came to.
#[derive(Debug)]
pub struct SeedResult {
    /// Its seed.
    pub seed: u64,
    /// What the seed chose, in a line.
    pub scenario: String,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    /// How many commands the audit of operators has refused and where to look for the reasons, if there were any.
    pub refused: Option<String>,
    /// Why it did not complete, if it did not.
    pub stuck: Option<String>,
    /// The log of everything that was written and done.
    pub log: Vec<u8>,
    /// Virtual time that has passed.
    pub lasted: Duration,
    /// Things that the scenario did.
    pub steps: usize,
    /// Requests that the API server got.
    pub requests: u64,
    /// What operators have asked it for, where the log is kept.
    pub asked: BTreeSet<Asked>,
}

impl SeedResult {
    /// Of a seed that did not begin, and why.
    pub(crate) fn unlived(seed: u64, why: String) -> Self {
        Self {
            seed,
            scenario: String::new(),
            violations: Vec::new(),
            refused: None,
            stuck: Some(why),
            log: Vec::new(),
            lasted: Duration::ZERO,
            steps: 0,
            requests: 0,
            asked: BTreeSet::new(),
        }
    }

    /// Whether everything went as promised.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.refused.is_none() && self.stuck.is_none()
    }
}

/// A scenario makes some ten thousand requests; one that has made this many is spinning, perhaps without the clock advancing, and would never end.
pub const REQUEST_LIMIT: u64 = 2_000_000;

/// Runs one seed, in a separate runtime with paused time.
#[must_use]
pub fn run(seed: u64) -> SeedResult {
    run_with(seed, RunOptions::default())
}

/// How a seed is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Aborted after this many requests.
    pub request_limit: u64,
    /// Whether the log is kept, and what operators ask for, which costs memory and time.
    pub keep_log: bool,
    /// Whether it includes writes of scheduler, kubelets and workload controllers.
    pub log_cluster: bool,
    /// How operators reach their providers, which changes what happens when.
    pub provider_way: Way,
    /// Whether waiting pods name the nodes that they were planned on.
    pub nominate_pods: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            request_limit: REQUEST_LIMIT,
            keep_log: true,
            log_cluster: false,
            provider_way: Way::default(),
            nominate_pods: false,
        }
    }
}

/// [`run`], with options.
#[must_use]
pub fn run_with(seed: u64, options: RunOptions) -> SeedResult {
    match live(async |operators| story(seed, options, operators).await) {
        Ok((mut result, operators)) => {
            result.stuck = result.stuck.or_else(|| operators.outlived());
            result
        }
        Err(error) => SeedResult::unlived(seed, error),
    }
}

async fn story(seed: u64, options: RunOptions, operators: &mut Operators) -> SeedResult {
    let scenario = scenario::Scenario::draw(seed);
    let mut lab_options = LabOptions {
        keep_log: options.keep_log,
        log_cluster: options.log_cluster,
        provider_way: options.provider_way,
        ..scenario.lab_options()
    };
    lab_options.operator.nominate_pods = options.nominate_pods;
    let mut lab = Lab::new(lab_options).await;
    let start = lab.clock.now();
    let text = scenario.to_string();
    lab.log.note(&text);
    let mut days = steps::Days::new(scenario, &lab);
    let traffic = lab.traffic.clone();
    let stuck = tokio::select! {
        biased;
        () = traffic.exceeds(options.request_limit) => {
            Some(format!("given up after {} requests: something spins", options.request_limit))
        }
        lived = days.live(&mut lab) => lived.err(),
    };
    for (kind, count) in traffic.kinds() {
        lab.log.note(&format!("{count} requests: {kind}"));
    }
    let steps = days.steps;
    let outcome = SeedResult {
        seed,
        scenario: text,
        violations: lab.invariants.violations(),
        refused: lab.refused(),
        stuck,
        log: lab.log.bytes(),
        lasted: lab.clock.since(start),
        steps,
        requests: traffic.requests(),
        asked: traffic.asked(),
    };
    *operators = lab.end().await;
    outcome
}
