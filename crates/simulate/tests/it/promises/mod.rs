//! What the fast engine promises, judged from its log in random worlds, with nothing but what the worlds are like.
//!
//! It shares no code with the engine or with what decides, and reads no decision but which nodes a command names: only what happened to pods, nodes and money.
//! Which invariants this is, and which a log cannot show, is in `docs/simulate-engine.md`. The tests of this crate and the laboratory's example `engine-seeds` are
//! built of it.

mod commands;
mod ends;
mod evictions;
mod launches;
mod objects;
mod places;
mod policies;
mod replay;
pub mod report;
pub mod worlds;

use spokeshave_simulate::{Line, Objects, ObjectsAt, Run, Watch, live_watched};

use replay::State;
use report::{Entry, Promise, Report};
use worlds::Scene;

/// A life, with all that is judged.
pub struct Lived {
    pub run: Run,
    pub log: Vec<Entry>,
    /// The NodeClaims that there are in the end, and whether they say that they have an instance.
    pub claims: Vec<(String, bool)>,
}

impl Scene {
    /// Lives it with the luck of a seed.
    pub fn live(&self, seed: u64) -> Lived {
        let (world, timeline, policy) = (self.world(), self.timeline(), self.policy());
        let (mut log, mut claims) = (Vec::new(), Vec::new());
        let mut take = |line: Line<'_>| log.push(Entry::from(line));
        let mut show = |objects: &Objects| {
            claims.extend(objects.node_claims.iter().map(|claim| {
                let status = claim.status.as_ref();
                let is_launched = status.is_some_and(|status| status.provider_id.is_some());
                (claim.metadata.name.clone().unwrap_or_default(), is_launched)
            }));
        };
        let watch = Watch {
            lines: Some(&mut take),
            objects: Some(ObjectsAt {
                at_ms: world.duration_ms,
                take: &mut show,
            }),
        };
        let run = live_watched(&world, &timeline, &policy, seed, &|| false, watch);
        Lived { run, log, claims }
    }

    /// Judges a log line by line. What is there in the end is returned.
    fn follow(&self, log: &[Entry], report: &mut Report) -> State<'_> {
        let mut state = State::new(self);
        for entry in log {
            let is_forward = state.advance(entry.at_ms);
            launches::judge(&state, entry, report);
            places::judge(&state, entry, report);
            evictions::judge(&state, entry, report);
            commands::judge(&state, entry, report);
            policies::judge(&state, entry, report);
            let is_there = state.take(entry);
            let is_known = is_forward && is_there;
            report.judge(Promise::Log, entry, is_known, || {
                format!("{:?} makes no sense", entry.more)
            });
        }
        state
    }

    /// Judges a life.
    pub fn judge(&self, lived: &Lived) -> Report {
        let mut report = Report::default();
        let mut state = self.follow(&lived.log, &mut report);
        state.advance(worlds::LIFE);
        ends::judge(&state, lived, &mut report);
        report
    }
}

/// Lives the world of a seed and judges its life. Of ten worlds one is lived twice.
pub fn judge(seed: u64) -> (Lived, Report) {
    let scene = Scene::draw(seed);
    let lived = scene.live(seed);
    let mut report = scene.judge(&lived);
    if seed.is_multiple_of(10) {
        let is_same = scene.live(seed).run == lived.run;
        report.judge_end(Promise::Same, is_same, || "another life".to_owned());
    }
    (lived, report)
}
