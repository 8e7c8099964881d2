//! What a seed chooses before anything happens.

use std::fmt;
use std::time::Duration;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use spokeshave_ports::Entropy;
use spokeshave_provider_kwok::{Failures, KwokOptions, SlowRegistration};

use crate::lab::{LabOptions, Rates};

/// One of several.
pub(crate) fn pick<'a, T>(chance: &mut ChaCha8Rng, from: &'a [T]) -> &'a T {
    &from[chance.random_range(0..from.len())]
}

/// The choices of a seed.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) replicas: usize,
    pub(crate) pools: usize,
    pub(crate) workloads: usize,
    pub(crate) minutes: u64,
    pub(crate) rates: Rates,
    pub(crate) watch_gaps: bool,
    pub(crate) cuts: bool,
    pub(crate) kills: bool,
    pub(crate) short_history: bool,
    pub(crate) cloud_troubles: bool,
    pub(crate) budgets_for_pods: bool,
    pub(crate) do_not_disrupt: bool,
    pub(crate) drift: bool,
    pub(crate) deletes: bool,
    pub(crate) cordons: bool,
    pub(crate) volumes: bool,
    pub(crate) deadlines: bool,
    pub(crate) expiry: bool,
    pub(crate) tampering: bool,
    pub(crate) underutilized: bool,
    pub(crate) policies: bool,
}

impl Scenario {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut chance = Entropy::new(seed).child("soak").rng("scenario");
        let chance = &mut chance;
        let half = |chance: &mut ChaCha8Rng| chance.random_bool(0.5);
        let weather = half(chance);
        let rate = |chance: &mut ChaCha8Rng| {
            if weather && chance.random_bool(0.6) {
                *pick(chance, &[0.005, 0.02, 0.06])
            } else {
                0.0
            }
        };
        let rates = Rates {
            too_many: rate(chance),
            server_error: rate(chance),
            conflict: rate(chance),
            lost_request: rate(chance) / 4.0,
            lost_answer: rate(chance) / 2.0,
        };
        Self {
            seed,
            replicas: 1 + usize::from(chance.random_bool(0.4)),
            pools: chance.random_range(1..=3),
            workloads: chance.random_range(2..=6),
            minutes: *pick(chance, &[10, 20, 40, 90]),
            rates,
            watch_gaps: half(chance),
            cuts: chance.random_bool(0.3),
            kills: half(chance),
            short_history: chance.random_bool(0.3),
            cloud_troubles: half(chance),
            budgets_for_pods: half(chance),
            do_not_disrupt: half(chance),
            drift: half(chance),
            deletes: chance.random_bool(0.7),
            cordons: half(chance),
            volumes: chance.random_bool(0.4),
            deadlines: half(chance),
            expiry: chance.random_bool(0.3),
            tampering: chance.random_bool(0.2),
            underutilized: half(chance),
            // A separate random stream: seeds without policies are unaffected.
            policies: Entropy::new(seed)
                .child("soak")
                .rng("has policies")
                .random_bool(0.35),
        }
    }

    pub(crate) fn lab_options(&self) -> LabOptions {
        let mut options = LabOptions::new(self.seed);
        options.leader_election = self.replicas > 1;
        // What no pool of a scenario allows would only cost time.
        options.cloud.catalog = options.cloud.catalog.only(|it| {
            it.name.ends_with("amd64-linux")
                && !["48x", "64x", "128x", "192x", "256x"]
                    .iter()
                    .any(|size| it.name.contains(size))
        });
        if self.short_history {
            options.history_limit = 40;
        }
        if self.cloud_troubles {
            options.cloud = self.cloud(options.cloud);
            options.expectations.launch_within = Duration::from_secs(15 * 60);
        }
        options
    }

    fn cloud(&self, calm: KwokOptions) -> KwokOptions {
        let mut chance = Entropy::new(self.seed).child("soak").rng("cloud");
        let chance = &mut chance;
        let mut options = calm;
        // Never everything at once: some machine can always be had.
        for pattern in ["*/test-zone-a/spot", "*/*/spot", "c-*/test-zone-b", "s-*"] {
            if chance.random_bool(0.3)
                && let Ok(pattern) = pattern.parse()
            {
                options.insufficient_capacity.push(pattern);
            }
        }
        if chance.random_bool(0.5) {
            options.launch_errors = Failures::Rate(*pick(chance, &[0.05, 0.3]));
        }
        if chance.random_bool(0.3) {
            options.hanging_calls = Failures::Rate(*pick(chance, &[0.02, 0.1]));
        }
        if chance.random_bool(0.4) {
            options.never_register_failures = Failures::Rate(*pick(chance, &[0.05, 0.2]));
        }
        if chance.random_bool(0.3)
            && let Ok(pattern) = "*/test-zone-c".parse()
        {
            // Below the fifteen minutes that a registration may take: pods that a selector or a volume ties to the zone could have no machine at
            // all otherwise, and those that would merely rather be there are sent there again and again. Instances that never register are
            // what `never_register_failures` is for.
            let delay = Duration::from_secs(*pick(chance, &[30, 240, 600]));
            options.slow_register.push(SlowRegistration { pattern, delay });
        }
        options.launch_delay = Duration::from_millis(*pick(chance, &[0, 800, 5_000]));
        options
    }

    /// For how long nodes may live. If some take minutes to launch, or never join, a short lifetime would leave some of them always on
    /// their way, and the cluster would never be calm.
    fn lifetimes(&self) -> &'static [&'static str] {
        let cloud = self.cloud(KwokOptions::default());
        let fails = !matches!(cloud.never_register_failures, Failures::None);
        let slow = cloud
            .slow_register
            .iter()
            .any(|slow| slow.delay > Duration::from_secs(60));
        if self.cloud_troubles && (fails || slow) {
            &["2h"]
        } else {
            &["12m", "30m", "2h"]
        }
    }

    /// A NodePool. The first has no limits, so every pod of a scenario fits it.
    pub(crate) fn pool(&self, index: usize, chance: &mut ChaCha8Rng) -> Value {
        let largest = *pick(chance, &["9", "17", "33"]);
        let mut template = json!({
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": [largest]},
            ],
            "expireAfter": "Never",
        });
        if self.deadlines && chance.random_bool(0.7) {
            template["terminationGracePeriod"] = json!(*pick(chance, &["0s", "20s", "90s", "10m"]));
        }
        if self.expiry {
            template["expireAfter"] = json!(*pick(chance, self.lifetimes()));
        }
        let mut spec = json!({
            "template": {"spec": template},
            "weight": chance.random_range(1..=3),
            "disruption": {
                "consolidateAfter": *pick(chance, &["0s", "15s", "60s", "Never"]),
                "consolidationPolicy": if self.underutilized && chance.random_bool(0.7) { "WhenEmptyOrUnderutilized" } else { "WhenEmpty" },
                "budgets": budgets(chance),
            },
        });
        if index > 0 && chance.random_bool(0.6) {
            spec["limits"] = json!({"cpu": *pick(chance, &["8", "24", "64"])});
        }
        json!({"metadata": {"name": format!("p{index}")}, "spec": spec})
    }
}

/// Budgets of a NodePool.
pub(crate) fn budgets(chance: &mut ChaCha8Rng) -> Value {
    let mut list = vec![json!({"nodes": *pick(chance, &["1", "2", "10%", "50%", "100%"])})];
    if chance.random_bool(0.3) {
        list.push(json!({
            "nodes": *pick(chance, &["0", "1", "30%"]),
            "reasons": [*pick(chance, &["Empty", "Underutilized", "Drifted"])],
        }));
    }
    if chance.random_bool(0.2) {
        list.push(json!({
            "nodes": *pick(chance, &["0", "1"]),
            "schedule": *pick(chance, &["*/20 * * * *", "@hourly", "5,35 * * * thu"]),
            "duration": *pick(chance, &["5m", "12m"]),
        }));
    }
    json!(list)
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {}: {} replica(s), {} pool(s), {} workload(s), {} minutes",
            self.seed, self.replicas, self.pools, self.workloads, self.minutes
        )?;
        if self.rates != Rates::default() {
            write!(f, ", {:?}", self.rates)?;
        }
        for (holds, name) in [
            (self.watch_gaps, "watch gaps"),
            (self.cuts, "cuts"),
            (self.kills, "kills"),
            (self.short_history, "short history"),
            (self.cloud_troubles, "cloud troubles"),
            (self.budgets_for_pods, "PDBs"),
            (self.do_not_disrupt, "do-not-disrupt"),
            (self.drift, "drift"),
            (self.deletes, "deletes"),
            (self.cordons, "cordons"),
            (self.volumes, "volumes"),
            (self.deadlines, "deadlines"),
            (self.expiry, "expiry"),
            (self.tampering, "tampering"),
            (self.underutilized, "underutilized"),
            (self.policies, "policies"),
        ] {
            if holds {
                write!(f, ", {name}")?;
            }
        }
        Ok(())
    }
}
