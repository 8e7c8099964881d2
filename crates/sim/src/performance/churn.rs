//! Clusters that churn, with and without a DisruptionPolicy: what is launched, moved and paid while the workloads change, and what still moves once
//! they have come to rest.
//!
//! Cases are re-made from public reports, on virtual time and from a seed, so a figure depends on decisions only. If a report does not describe how its
//! workloads changed, the simplest similar change is used.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::DeleteParams;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{DisruptionPolicy, NodeOverlay};
use spokeshave_runtime::Api;

use super::settle::Seen;
use super::{Kind, Workload, deploy, prepare, workload};
use crate::lab::{Lab, LabOptions};

/// How often what is paid is added up.
const LOOK: Duration = Duration::from_secs(20);
/// After the last change the cluster has so long to settle: a hold begins again with each replacement, and pods that were moved rest for up to two hours,
/// so that one move after the other is made.
const SETTLING: Duration = Duration::from_secs(6 * 3600);
/// What it costs is added up for so long after the last change.
const PAID_MINUTES: u64 = 150;
/// Then it is watched for so long; nothing may move.
const WATCHED: Duration = Duration::from_secs(4 * 3600);
/// Things that begin at the same time are so far apart.
const SPREAD: Duration = Duration::from_secs(5);

/// A case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name in figures.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    change: Change,
    minutes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Jobs,
    Prices,
    Visitors,
    Tests,
    Sawtooth,
    Nothing,
}

/// All cases.
pub const CASES: [Case; 6] = [
    Case {
        name: "jobs",
        about: "node-holder's article: jobs of 10 to 30 minutes, some of hours, in three peaks a day; a day",
        change: Change::Jobs,
        minutes: 24 * 60,
    },
    Case {
        name: "k2388",
        about: "k#2388: full nodes replaced by others of the same size: prices of two families take turns every 30 minutes; 12 hours",
        change: Change::Prices,
        minutes: 12 * 60,
    },
    Case {
        name: "a8536",
        about: "a#8536: large pods come and go after 6 minutes, every 40 minutes, in a well-packed cluster; 6 hours",
        change: Change::Visitors,
        minutes: 6 * 60,
    },
    Case {
        name: "a7146",
        about: "a#7146: test workloads come and go every 10 minutes beside tools that never change; 6 hours",
        change: Change::Tests,
        minutes: 6 * 60,
    },
    Case {
        name: "k1019",
        about: "k#1019: replicas go up and down by a third every 8 minutes; 4 hours",
        change: Change::Sawtooth,
        minutes: 4 * 60,
    },
    Case {
        name: "z32",
        about: "z#32: workloads that are spread and never change",
        change: Change::Nothing,
        minutes: 30,
    },
];

/// Policies that each case is run with: their name, and the spec; `None` is without a policy.
pub const POLICIES: [(&str, Option<&str>); 3] = [
    ("none", None),
    ("hold: {duration: 20m}", Some(r#"{"hold": {"duration": "20m"}}"#)),
    ("convergence: {}", Some(r#"{"convergence": {}}"#)),
];

/// What a run has come to. Less is better in each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Churn {
    /// NodeClaims made.
    pub launches: usize,
    /// Pods evicted.
    pub evictions: usize,
    /// Commands.
    pub commands: usize,
    /// Nodes times minutes.
    pub node_minutes: u64,
    /// Micro-dollars paid.
    pub paid: i64,
    /// Minutes after the last change in which a pod was evicted for the last time; zero where none was.
    #[serde(default)]
    pub last_move_minutes: u64,
    /// Pods evicted once nothing had changed for six hours.
    pub moves_at_rest: usize,
}

/// By case, then by policy.
pub type Table = BTreeMap<String, BTreeMap<String, Churn>>;

impl Churn {
    /// What is worse than it was, one line each: counts by more than a half and six, money and time by more than a tenth; nothing may move at rest that
    /// did not.
    #[must_use]
    pub fn worse_than(&self, before: &Churn) -> Vec<String> {
        let count = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let amount = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let rows = [
            ("launches", count(self.launches), count(before.launches), 500, 6),
            (
                "evictions",
                count(self.evictions),
                count(before.evictions),
                500,
                6,
            ),
            ("commands", count(self.commands), count(before.commands), 500, 6),
            (
                "nodeMinutes",
                amount(self.node_minutes),
                amount(before.node_minutes),
                100,
                0,
            ),
            ("paid", self.paid, before.paid, 100, 0),
            (
                "lastMoveMinutes",
                amount(self.last_move_minutes),
                amount(before.last_move_minutes),
                500,
                30,
            ),
            (
                "movesAtRest",
                count(self.moves_at_rest),
                count(before.moves_at_rest),
                0,
                0,
            ),
        ];
        let worse = rows
            .into_iter()
            .filter_map(|(name, now, before, thousandths, least)| {
                let limit = before + (before * thousandths / 1000).max(least);
                (now > limit).then(|| format!("{name} is {now}, was {before} and may be {limit}"))
            });
        worse.collect()
    }
}

/// The text table.
#[must_use]
pub fn markdown(table: &Table) -> String {
    let mut text = String::from(
        "| Case | Policy | Launches | Evictions | Commands | Node-hours | Paid | Last move | Evictions at rest |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for case in CASES {
        for (index, (policy, _)) in POLICIES.iter().enumerate() {
            let Some(churn) = table.get(case.name).and_then(|runs| runs.get(*policy)) else {
                continue;
            };
            let about = if index == 0 { case.about } else { "" };
            let policy = if *policy == "none" {
                "none".to_owned()
            } else {
                format!("`{policy}`")
            };
            text += &format!(
                "| {about} | {policy} | {} | {} | {} | {} | ${}.{:02} | {} min | {} |\n",
                churn.launches,
                churn.evictions,
                churn.commands,
                churn.node_minutes.div_ceil(60),
                churn.paid / 1_000_000,
                churn.paid / 10_000 % 100,
                churn.last_move_minutes,
                churn.moves_at_rest
            );
        }
    }
    text
}

/// Runs a case with a policy. Each command is written to `log` as it is decided.
///
/// # Errors
/// The server's; or what was broken.
pub async fn live(
    case: &Case,
    policy: Option<&str>,
    seed: u64,
    log: Option<&(dyn Fn(&str) + Sync)>,
) -> Result<Churn, String> {
    let mut options = LabOptions::new(seed);
    options.cluster.spread = SPREAD;
    options.operator.feature_gates.node_overlay = case.change == Change::Prices;
    let mut lab = Lab::new(options).await;
    let answer = Life::new(&lab).live(&mut lab, case, policy).await;
    if let Some(log) = log {
        tell(&lab, log).await;
    }
    let broken = lab.invariants.violations();
    lab.end().await;
    match broken.first() {
        Some(first) => Err(format!("{}: {first}", case.name)),
        None => answer.map_err(|why| format!("{}: {why}", case.name)),
    }
}

/// The ledger of a run: a line for each command that still exists.
async fn tell(lab: &Lab, log: &(dyn Fn(&str) + Sync)) {
    for one in lab.list::<Disruption>().await {
        let spec = &one.spec;
        let message = one.status.as_ref().and_then(|status| status.message.as_deref());
        log(&format!(
            "{} {} {} -> {} for {} with {} pods: {}",
            spec.decided_at.0,
            spec.method,
            spec.node_summary,
            spec.replacement_summary,
            spec.savings,
            spec.evictions,
            message.unwrap_or_default()
        ));
    }
}

/// A run in progress.
struct Life {
    chance: ChaCha8Rng,
    seen: Seen,
    churn: Churn,
    /// Micro-dollars times seconds.
    spent: i64,
    node_seconds: u64,
    jobs: BTreeMap<String, Duration>,
}

impl Life {
    fn new(lab: &Lab) -> Self {
        Life {
            chance: lab.entropy.child("churn").rng("changes"),
            seen: Seen::default(),
            churn: Churn::default(),
            spent: 0,
            node_seconds: 0,
            jobs: BTreeMap::new(),
        }
    }

    async fn live(mut self, lab: &mut Lab, case: &Case, policy: Option<&str>) -> Result<Churn, String> {
        let told = |error: kube::Error| error.to_string();
        prepare(lab, 20).await.map_err(told)?;
        if let Some(spec) = policy {
            let spec: Value = serde_json::from_str(spec).map_err(|error| error.to_string())?;
            let object = json!({"metadata": {"name": "calm"}, "spec": spec});
            let policies: Api<DisruptionPolicy> = Api::all(lab.client.clone());
            lab.create(&policies, object).await.map_err(told)?;
        }
        lab.start("a");
        if case.change != Change::Jobs {
            deploy(lab, &furniture(case.change)).await.map_err(told)?;
        }
        for minute in 0..case.minutes {
            self.minute(lab, case.change, minute).await.map_err(told)?;
            self.pass(lab, Duration::from_secs(60)).await;
        }
        self.finish(lab, case.change).await.map_err(told)?;
        self.rest(lab).await;
        self.churn.launches = self.seen.launched;
        self.churn.evictions = self.seen.moved;
        self.churn.commands = self.seen.commands.len();
        self.churn.node_minutes = self.node_seconds / 60;
        self.churn.paid = self.spent / 3600;
        Ok(self.churn)
    }

    async fn pass(&mut self, lab: &Lab, length: Duration) {
        let looks = length.as_secs() / LOOK.as_secs();
        for _ in 0..looks {
            lab.clock.sleep(LOOK).await;
            self.seen.look(&lab.log);
            self.spent += lab.invariants.cost() * i64::try_from(LOOK.as_secs()).unwrap_or(0);
            self.node_seconds += lab.invariants.instances() * LOOK.as_secs();
        }
    }

    /// Lets the cluster settle, and watches it then.
    async fn rest(&mut self, lab: &Lab) {
        let all = (SETTLING + WATCHED).as_secs() / 60;
        let mut settled = self.seen.moved;
        for minute in 1..=all {
            let before = self.seen.moved;
            let (spent, node_seconds) = (self.spent, self.node_seconds);
            self.pass(lab, Duration::from_secs(60)).await;
            if minute > PAID_MINUTES {
                (self.spent, self.node_seconds) = (spent, node_seconds);
            }
            if self.seen.moved > before {
                self.churn.last_move_minutes = minute;
            }
            if minute == SETTLING.as_secs() / 60 {
                settled = self.seen.moved;
            }
        }
        self.churn.moves_at_rest = self.seen.moved - settled;
    }

    async fn minute(&mut self, lab: &Lab, change: Change, minute: u64) -> kube::Result<()> {
        match change {
            Change::Jobs => self.jobs(lab, minute).await,
            Change::Prices if minute % 30 == 20 => {
                let families = [["s", "m"], ["m", "s"]];
                let turn = usize::try_from(minute / 30 % 2).unwrap_or(0);
                prices(lab, families[turn]).await
            }
            Change::Visitors if minute % 40 == 20 => deploy(lab, &[visitors(6)]).await,
            Change::Visitors if minute % 40 == 26 => deploy(lab, &[visitors(0)]).await,
            Change::Tests if minute % 10 == 5 => {
                let replicas = if (minute / 10).is_multiple_of(2) {
                    self.chance.random_range(3..=9)
                } else {
                    0
                };
                deploy(lab, &[workload("tests", "1700m", "3Gi", Kind::Plain, replicas)]).await
            }
            Change::Sawtooth if minute % 8 == 7 => {
                let replicas = if (minute / 8).is_multiple_of(2) { 40 } else { 30 };
                deploy(lab, &[workload("web", "900m", "1900Mi", Kind::Plain, replicas)]).await
            }
            _ => Ok(()),
        }
    }

    /// Batches of pods: three peaks of two hours a day, and little in between.
    async fn jobs(&mut self, lab: &Lab, minute: u64) -> kube::Result<()> {
        let hour = minute / 60;
        let is_peak = [8, 9, 13, 14, 19, 20].contains(&hour);
        let api: Api<Job> = Api::default_namespaced(lab.client.clone());
        let now = lab
            .clock
            .now()
            .duration_since(jiff::Timestamp::UNIX_EPOCH)
            .unsigned_abs();
        self.delete_jobs(lab, |end| end < now).await?;
        if !minute.is_multiple_of(if is_peak { 3 } else { 15 }) {
            return Ok(());
        }
        let is_long = self.chance.random_bool(0.08);
        let minutes = if is_long {
            self.chance.random_range(90..=240)
        } else {
            self.chance.random_range(10..=30)
        };
        let parallel = if is_peak {
            self.chance.random_range(2..=5)
        } else {
            1
        };
        let cpu = ["900m", "1800m", "3500m"][self.chance.random_range(0..3)];
        let name = format!("job-{minute:04}");
        let object = json!({"metadata": {"name": name}, "spec": {"parallelism": parallel, "completions": parallel, "backoffLimit": 1000, "template": {
            "metadata": {"annotations": {"sim.spokeshave.dev/run-duration": format!("{minutes}m")}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}},
            ]},
        }}});
        lab.create(&api, object).await?;
        // What has ended is cleared away after a while, as controllers of jobs do.
        self.jobs.insert(name, now + Duration::from_secs(12 * 3600));
        Ok(())
    }

    async fn finish(&mut self, lab: &Lab, change: Change) -> kube::Result<()> {
        match change {
            Change::Visitors => deploy(lab, &[visitors(0)]).await,
            Change::Tests => deploy(lab, &[workload("tests", "1700m", "3Gi", Kind::Plain, 0)]).await,
            // Jobs that still run would end one by one for hours, and an evicted one starts over: the cluster would never be at rest.
            Change::Jobs => self.delete_jobs(lab, |_| true).await,
            _ => Ok(()),
        }
    }

    /// Deletes the jobs for which `is_due` holds, by the time at which they are to be deleted, with their pods.
    async fn delete_jobs(&mut self, lab: &Lab, is_due: impl Fn(Duration) -> bool) -> kube::Result<()> {
        let api: Api<Job> = Api::default_namespaced(lab.client.clone());
        let due: Vec<String> = self
            .jobs
            .iter()
            .filter(|(_, end)| is_due(**end))
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.jobs.remove(&name);
            match api.delete(&name, &DeleteParams::background()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn visitors(replicas: u32) -> Workload {
    workload("visitors", "3500m", "20Gi", Kind::Plain, replicas)
}

/// Permanent workloads.
fn furniture(change: Change) -> Vec<Workload> {
    let tools = |kind| {
        vec![
            workload("api", "700m", "1500Mi", kind, 18),
            workload("queue", "1200m", "4Gi", kind, 9),
            workload("cache", "400m", "6Gi", kind, 7),
        ]
    };
    match change {
        Change::Sawtooth => vec![
            workload("web", "900m", "1900Mi", Kind::Plain, 30),
            workload("prometheus", "2500m", "14Gi", Kind::Plain, 1),
        ],
        Change::Nothing => tools(Kind::ZoneSpread),
        _ => tools(Kind::Plain),
    }
}

/// One family gets a quarter cheaper, the other what it was.
async fn prices(lab: &Lab, [cheap, dear]: [&str; 2]) -> kube::Result<()> {
    let api: Api<NodeOverlay> = Api::all(lab.client.clone());
    let spec = |family: &str, change: &str| json!({"requirements": [{"key": "karpenter.kwok.sh/instance-family", "operator": "In", "values": [family]}], "priceAdjustment": change});
    for (family, change) in [(cheap, "-25%"), (dear, "+0%")] {
        let name = format!("market-{family}");
        let object = json!({"metadata": {"name": name}, "spec": spec(family, change)});
        match lab.create(&api, object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                drop(
                    lab.merge(&api, &name, json!({"spec": spec(family, change)}))
                        .await?,
                );
            }
            other => drop(other?),
        }
    }
    Ok(())
}
