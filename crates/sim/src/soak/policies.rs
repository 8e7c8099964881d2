//! DisruptionPolicies of a scenario: every field, sensible or not, drawn from a separate random stream, so a seed without policies is the same as before there
//! were any.

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::DeleteParams;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use spokeshave_api::{DisruptionPolicy, labels};
use spokeshave_runtime::Api;

use super::scenario::pick;
use crate::lab::Lab;

const NAMES: [&str; 3] = ["calm", "night", "zones"];

/// What becomes of the policies of a scenario.
#[derive(Debug)]
pub(super) struct Policies {
    chance: ChaCha8Rng,
}

/// The user was refused, or too late: nonsense is written on purpose.
fn forgive<T>(result: kube::Result<T>) -> Result<(), String> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 404 | 409 | 422 | 429 | 500) => Ok(()),
        Err(error) => Err(format!("the scenario cannot go on: {error}")),
    }
}

impl Policies {
    pub(super) fn new(lab: &Lab) -> Self {
        Self {
            chance: lab.entropy.child("soak").rng("policies"),
        }
    }

    /// Creates, changes or removes one.
    pub(super) async fn change(&mut self, lab: &Lab) -> Result<(), String> {
        let name = *pick(&mut self.chance, &NAMES);
        let api: Api<DisruptionPolicy> = Api::all(lab.client.clone());
        forgive(api.delete(name, &DeleteParams::default()).await)?;
        if self.chance.random_bool(0.25) {
            return Ok(());
        }
        let object = json!({"metadata": {"name": name}, "spec": self.spec(lab)});
        forgive(lab.create(&api, object).await)
    }

    /// What a workload asks for by annotation, sensible or not; an empty object where it asks for nothing.
    pub(super) fn wishes(&mut self) -> Value {
        let mut annotations = json!({});
        if self.is(0.3) {
            annotations[labels::QUIET_TIME] = self.one(&["30s", "3m", "20m", "400h", "0s", "a while"]);
        }
        if self.is(0.2) {
            annotations[labels::MOVES_PER_DAY] = self.one(&["0", "1", "5", "-1", "few"]);
        }
        if self.is(0.2) {
            annotations[labels::MOVE_WINDOWS] = self.one(&[
                "00:00-24:00",
                "Thu 00:10-00:20; Fri 12:00-13:00 Europe/Kyiv",
                "Mon-Wed 02:00-04:00",
                "at night",
            ]);
        }
        annotations
    }

    /// The workload, of so many, whose wishes change next; none of them where a policy changes instead.
    pub(super) fn place(&mut self, workloads: usize) -> usize {
        let none = workloads * 2 + 2;
        self.chance.random_range(0..none)
    }

    /// Changes what a workload, or all of a namespace, asks for.
    pub(super) async fn ask(&mut self, lab: &Lab, workload: &str) -> Result<(), String> {
        let client = lab.client.clone();
        let mut wishes = self.wishes();
        for key in [labels::QUIET_TIME, labels::MOVES_PER_DAY, labels::MOVE_WINDOWS] {
            if wishes[key].is_null() {
                wishes[key] = json!(null);
            }
        }
        let patch = json!({"metadata": {"annotations": wishes}});
        if self.is(0.1) {
            let api: Api<Namespace> = Api::all(client);
            return forgive(lab.merge(&api, "default", patch).await);
        }
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        forgive(lab.merge(&deployments, workload, patch.clone()).await)?;
        let sets: Api<StatefulSet> = Api::default_namespaced(client);
        forgive(lab.merge(&sets, workload, patch).await)
    }

    /// Removes all: a policy that stops disruption indefinitely would prevent a cluster from converging.
    pub(super) async fn thaw(&mut self, lab: &Lab) -> Result<(), String> {
        let api: Api<DisruptionPolicy> = Api::all(lab.client.clone());
        for name in NAMES {
            forgive(api.delete(name, &DeleteParams::default()).await)?;
        }
        Ok(())
    }

    fn is(&mut self, probability: f64) -> bool {
        self.chance.random_bool(probability)
    }

    fn one(&mut self, of: &[&str]) -> Value {
        json!(*pick(&mut self.chance, of))
    }

    fn reasons(&mut self) -> Value {
        self.one(&["Empty", "Drifted", "Expired", "Underutilized"])
    }

    fn spec(&mut self, lab: &Lab) -> Value {
        let mut spec = json!({});
        if self.is(0.3) {
            let selectors = [
                json!({"names": ["p0"]}),
                json!({"names": ["p1", "p2"]}),
                json!({"matchLabels": {"team": "nobody"}}),
                json!({"names": ["nowhere"]}),
            ];
            spec["nodePools"] = pick(&mut self.chance, &selectors).clone();
        }
        if self.is(0.3) {
            spec["timeZone"] = self.one(&[
                "UTC",
                "Europe/Kyiv",
                "Asia/Kathmandu",
                "Pacific/Auckland",
                "Europe/Atlantis",
            ]);
        }
        if self.is(0.15) {
            spec["freeze"] = json!({"reason": "incident"});
            if self.is(0.7) {
                let minutes = *pick(&mut self.chance, &[-5, 0, 2, 10, 45]);
                let until = lab.clock.now().saturating_add(SignedDuration::from_mins(minutes));
                spec["freeze"]["until"] = json!(
                    until
                        .unwrap_or_default()
                        .strftime("%Y-%m-%dT%H:%M:%SZ")
                        .to_string()
                );
            }
        }
        if self.is(0.35) {
            spec["hold"] = self.hold();
        }
        if self.is(0.6) {
            let count = self.chance.random_range(1..=3);
            spec["budgets"] = (0..count).map(|_| self.budget(lab)).collect();
        }
        if self.is(0.3) {
            spec["rollout"] = self.rollout(lab);
        }
        if self.is(0.2) {
            spec["circuitBreakers"] = json!({
                "notReady": {"percent": *pick(&mut self.chance, &[1, 30, 100]), "scope": self.one(&["Cluster", "Zone"])},
                "failedLaunches": {"count": self.chance.random_range(1..=3), "within": "15m"},
            });
            if self.is(0.5) {
                let failures = |count: i64| json!({"count": count, "within": "5m"});
                spec["circuitBreakers"]["cloud"] = failures(self.chance.random_range(1..=20));
                spec["circuitBreakers"]["apiServer"] = failures(self.chance.random_range(1..=20));
                spec["circuitBreakers"]["prices"] = json!({"olderThan": self.one(&["1m", "24h"])});
            }
        }
        if self.is(0.4) {
            spec["convergence"] = self.convergence();
        }
        if self.is(0.25) {
            let ages = [
                json!({"softPercent": 50}),
                json!({"softAfter": "5m", "jitter": "2m"}),
                json!({"softAfter": "20m", "jitter": "0s"}),
                json!({"softAfter": "5m", "softPercent": 50}),
            ];
            spec["expiry"] = pick(&mut self.chance, &ages).clone();
        }
        if self.is(0.25) {
            let drains = [
                json!({}),
                json!({"escalateAfter": "5m"}),
                json!({"escalateAfter": "0s"}),
            ];
            spec["blockedDrains"] = pick(&mut self.chance, &drains).clone();
        }
        if self.is(0.35) {
            let rules = [
                json!({}),
                json!({"maximumQuietTime": "10m", "statefulSets": "OneAtATime"}),
                json!({"minimumMovesPerDay": 3, "maximumClosed": "1h"}),
                json!({"statefulSets": "Perhaps"}),
            ];
            spec["workloads"] = pick(&mut self.chance, &rules).clone();
        }
        spec
    }

    fn hold(&mut self) -> Value {
        let mut hold = json!({"duration": self.one(&["0s", "30s", "5m", "20m"])});
        if self.is(0.3) {
            hold["initialDelay"] = self.one(&["0s", "20s", "10m"]);
        }
        if self.is(0.3) {
            hold["maximum"] = self.one(&["30s", "10m", "1h"]);
        }
        if self.is(0.4) {
            hold["scope"] = self.one(&["Cluster", "NodePool", "Zone"]);
        }
        if self.is(0.4) {
            hold["triggers"] = json!([self.one(&["Launch", "ScaleDown", "FailedLaunch", "FullMoon"])]);
        }
        if self.is(0.3) {
            hold["reasons"] = json!([self.reasons()]);
        }
        hold
    }

    fn budget(&mut self, lab: &Lab) -> Value {
        let mut budget = json!({});
        if self.is(0.6) {
            budget["limit"] = self.one(&["0", "1", "2", "10%", "50%", "100%", "many"]);
        }
        if self.is(0.3) {
            budget["perHour"] = json!(*pick(&mut self.chance, &[0, 1, 4, 20]));
        }
        if self.is(0.3) {
            budget["unit"] = self.one(&["Nodes", "CPU", "Pods"]);
        }
        if self.is(0.6) {
            budget["scope"] = self.one(&["Cluster", "NodePool", "Zone", "Label"]);
        }
        if budget["scope"] == "Label" || self.is(0.05) {
            budget["label"] = self.one(&[
                "topology.kubernetes.io/zone",
                "karpenter.sh/capacity-type",
                "no/such",
            ]);
        }
        if self.is(0.4) {
            budget["oneAtATime"] = json!(true);
        }
        if self.is(0.3) {
            budget["reasons"] = json!([self.reasons()]);
        }
        if self.is(0.4) {
            let count = self.chance.random_range(1..=2);
            budget["windows"] = (0..count).map(|_| self.window(lab)).collect();
            if self.is(0.4) {
                budget["outsideWindows"] = self.one(&["Nothing", "Unlimited"]);
            }
            if self.is(0.1) {
                budget["exceptDates"] = json!([lab.clock.now().strftime("%Y-%m-%d").to_string()]);
            }
        }
        budget
    }

    /// Around now, so that it opens or closes during the scenario, or at any time.
    fn window(&mut self, lab: &Lab) -> Value {
        let minute = lab.clock.now().as_second() / 60;
        let from = minute + self.chance.random_range(-40..=40);
        let to = from + *pick(&mut self.chance, &[0, 5, 20, 60, 600]);
        let text = |minute: i64| format!("{:02}:{:02}", minute / 60 % 24, minute % 60);
        let mut window = json!({"from": text(from), "to": text(to)});
        if self.is(0.3) {
            window["days"] = json!([self.one(&["Mon", "Thu", "Fri", "Sun"])]);
        }
        if self.is(0.1) {
            window["dates"] = json!([self.one(&["2026-01-01", "2020-02-29", "2026-02-30"])]);
        }
        window
    }

    fn rollout(&mut self, lab: &Lab) -> Value {
        let mut rollout =
            json!({"canary": self.chance.random_range(1..=2), "soak": self.one(&["0s", "1m", "10m"])});
        if self.is(0.4) {
            rollout["waves"] = json!([self.one(&["1", "50%", "100%", "0"])]);
        }
        if self.is(0.4) {
            rollout["order"] = json!([self.one(&["Zone", "Age", "Importance"])]);
        }
        if self.is(0.1) {
            rollout["paused"] = json!(true);
        }
        if self.is(0.15) {
            rollout["approval"] = self.one(&["Automatic", "Manual"]);
            rollout["approved"] = json!({"p0": 2});
        }
        if self.is(0.1) {
            rollout["resumedAt"] = json!(lab.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        if self.is(0.2) {
            rollout["deadline"] = self.one(&["1m", "48h"]);
        }
        if self.is(0.3) {
            rollout["health"] = json!({"restarts": self.chance.random_range(1..=3), "readyWithin": self.one(&["0s", "30s", "5m"])});
            if self.is(0.3) {
                let expression = self.one(&[
                    "self.status.phase == 'Active'",
                    "self.status.phase ==",
                    "self.no.such > 1",
                ]);
                let object = json!({"apiVersion": "v1", "resource": "namespaces", "name": "default", "expression": expression});
                rollout["health"]["objects"] = json!([object]);
            }
        }
        rollout
    }

    fn convergence(&mut self) -> Value {
        let mut convergence = json!({});
        if self.is(0.5) {
            convergence["rest"] = self.one(&["0s", "20s", "2m", "1h"]);
        }
        if self.is(0.3) {
            convergence["maximumRest"] = self.one(&["0s", "10m", "8h"]);
        }
        if self.is(0.3) {
            convergence["restartCost"] = self.one(&["0", "0.005", "12", "999999.999999999", "dear"]);
        }
        if self.is(0.3) {
            convergence["horizon"] = self.one(&["0s", "1m", "100h"]);
        }
        convergence
    }
}
