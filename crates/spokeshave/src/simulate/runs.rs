//! All runs of a scenario, on as many threads as there are cores, in an order that no result depends on.
//!
//! Owns threads and progress. What a run does is the engine's.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Error, Result, anyhow};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use spokeshave_scenario::{Scenario, Timeline, generate};
use spokeshave_simulate::{Policy, Run, World};

use super::imports::protect;
use super::watch::{Life, Lived, Outputs};

/// What is to be simulated.
pub(crate) struct RunList {
    /// The scenario.
    pub(crate) scenario: Scenario,
    /// Recordings, by the workload that imports them; the dump that the scenario begins with has the empty name.
    pub(crate) recordings: BTreeMap<String, Timeline>,
    /// PodDisruptionBudgets of the manifests.
    pub(crate) budgets: Vec<Arc<PodDisruptionBudget>>,
    /// Cluster and cloud.
    pub(crate) world: World,
    /// What is compared.
    pub(crate) policies: Vec<Policy>,
    /// Seeds 1 to this number.
    pub(crate) seeds: u32,
}

/// A seed's timeline while policies still need it.
struct Shared {
    timeline: Option<Arc<Timeline>>,
    users: usize,
}

impl RunList {
    /// What the workloads do under a seed.
    ///
    /// # Errors
    /// It does not fit into memory.
    pub(crate) fn timeline(&self, seed: u64) -> Result<Timeline> {
        let mut timeline = generate(&self.scenario, seed, &self.recordings)?;
        if let Some(snapshot) = self.recordings.get("") {
            timeline.append(snapshot.clone());
            timeline.sort();
        }
        protect(&mut timeline, &self.budgets);
        Ok(timeline)
    }

    /// How many runs there are.
    pub(crate) fn count(&self) -> usize {
        self.policies.len() * self.seeds as usize
    }

    /// Lives every policy under every seed, of which the first has been made; after an interrupt only what had begun, marked as partial. The runs come with the
    /// first failure to write a file of theirs, which is no reason to lose them.
    ///
    /// # Errors
    /// A timeline does not fit into memory.
    pub(crate) fn live(
        &self,
        first: Timeline,
        jobs: usize,
        stop: &AtomicBool,
        outputs: &Outputs,
    ) -> Result<(Vec<Run>, Option<Error>)> {
        let seeds = u64::from(self.seeds);
        let policies = self.policies.len();
        let whole = self.count();
        let mut first = Some(Arc::new(first));
        let shared: BTreeMap<u64, Mutex<Shared>> = (1..=seeds)
            .map(|seed| {
                let shared = Shared {
                    timeline: first.take(),
                    users: policies,
                };
                (seed, Mutex::new(shared))
            })
            .collect();
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Result<Lived>)>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs.clamp(1, whole.max(1)) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= whole || stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let seed = (index / policies) as u64 + 1;
                        let run = self.take(&shared, seed).and_then(|timeline| {
                            outputs.live(&Life {
                                index,
                                world: &self.world,
                                timeline: &timeline,
                                policy: &self.policies[index % policies],
                                seed,
                                is_stopped: &|| stop.load(Ordering::Relaxed),
                            })
                        });
                        let mut done = lock(&done);
                        done.push((index, run));
                        progress(done.len(), whole);
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(index, _)| *index);
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        let has_log = |run: &Result<Lived>| run.as_ref().is_ok_and(|lived| lived.has_log);
        let are_whole = done.iter().all(|(_, run)| has_log(run));
        let finished: Vec<usize> = done.iter().map(|(index, _)| *index).collect();
        let written = outputs.finish(are_whole.then_some(finished.as_slice()), whole);
        let (mut runs, mut unwritten) = (Vec::new(), None);
        for (_, run) in done {
            let lived = run?;
            unwritten = unwritten.or(lived.unwritten);
            runs.push(lived.run);
        }
        Ok((runs, unwritten.or(written.err())))
    }

    /// The timeline of a seed: made by the first policy that needs it, unless it is there, and given back with the last.
    fn take(&self, shared: &BTreeMap<u64, Mutex<Shared>>, seed: u64) -> Result<Arc<Timeline>> {
        let shared = shared
            .get(&seed)
            .ok_or_else(|| anyhow!("seed {seed} is not one of the scenario's"))?;
        let mut shared = lock(shared);
        let timeline = match &shared.timeline {
            Some(timeline) => Arc::clone(timeline),
            None => Arc::new(self.timeline(seed)?),
        };
        shared.users -= 1;
        shared.timeline = (shared.users > 0).then(|| Arc::clone(&timeline));
        Ok(timeline)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn progress(done: usize, whole: usize) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{done} of {whole} runs");
    }
}
