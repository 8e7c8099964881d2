//! What the page says of money is the cloud's bill: its curve, each change of the price, and what commands have saved.
//!
//! The bill is kept from the cloud's own record of its machines, which no decision reads and no page shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::{Value, json};
use spokeshave_api::disruption::{Disruption, DisruptionPhase};
use spokeshave_api::{KWOKInstance, NodeClaim};
use spokeshave_controllers::{Observed, Seen};
use spokeshave_model::Price;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::Interruption;
use spokeshave_runtime::Api;
use spokeshave_view::{Account, Header, History, Judged, Range, View, World};
use tokio::task::JoinHandle;

use super::bill::nano_dollars;
use crate::faulty::{Cluster, Running, Setup, message};
use crate::killable::stories::at_once;
use crate::words::*;

/// How often cloud and page are looked at: each start and end of a machine is seen so late at most.
const STEP: Duration = Duration::from_secs(1);
/// A cent, in billionths of a dollar.
const CENT: i128 = 10_000_000;

/// A machine, in the cloud's record.
struct Machine {
    claim: String,
    /// Billionths of a dollar per hour.
    price: i64,
    from: Timestamp,
    until: Option<Timestamp>,
}

/// All machines that there were, by name.
#[derive(Clone, Default)]
struct Bill(Arc<Mutex<BTreeMap<String, Machine>>>);

impl Bill {
    /// The bill of a cluster, from now on.
    fn of(cluster: &Cluster) -> Self {
        let bill = Self::default();
        let machines: Api<KWOKInstance> = Api::all(cluster.client.clone());
        let (clock, kept) = (cluster.clock.clone(), bill.clone());
        tokio::spawn(async move {
            loop {
                let found = machines.list(&ListParams::default()).await.unwrap().items;
                kept.note(&found, clock.now());
                clock.sleep(STEP).await;
            }
        });
        bill
    }

    fn note(&self, found: &[KWOKInstance], now: Timestamp) {
        let mut machines = self.0.lock().unwrap();
        for one in found {
            machines.entry(one.name().to_owned()).or_insert_with(|| Machine {
                claim: one.spec.node_claim_name.clone(),
                price: nano_dollars(&one.spec.price),
                from: now,
                until: None,
            });
        }
        let names: BTreeSet<&str> = found.iter().map(KWOKInstance::name).collect();
        for (name, machine) in machines.iter_mut() {
            if !names.contains(name.as_str()) {
                machine.until.get_or_insert(now);
            }
        }
    }

    /// What some of the machines cost an hour.
    fn price(&self, is_meant: impl Fn(&Machine) -> bool) -> i64 {
        let machines = self.0.lock().unwrap();
        let meant = machines.values().filter(|machine| is_meant(machine));
        meant.map(|machine| machine.price).sum()
    }

    fn count(&self, is_meant: impl Fn(&Machine) -> bool) -> usize {
        let machines = self.0.lock().unwrap();
        machines.values().filter(|machine| is_meant(machine)).count()
    }

    fn price_of(&self, claim: &str) -> i64 {
        self.price(|machine| machine.claim == claim)
    }

    /// What all of them have cost in a time.
    fn amount(&self, from: Timestamp, until: Timestamp) -> i128 {
        let machines = self.0.lock().unwrap();
        let cost = |machine: &Machine| {
            let end = machine.until.unwrap_or(until).min(until);
            cost_of(machine.price, machine.from.max(from), end)
        };
        machines.values().map(cost).sum()
    }
}

/// What something costs in a time, by its price an hour.
fn cost_of(price: i64, from: Timestamp, until: Timestamp) -> i128 {
    let length = until.duration_since(from).as_millis().max(0);
    i128::from(price) * length / 3_600_000
}

/// What a curve of prices comes to, each of which holds until the next.
fn area(curve: &[(Timestamp, i64)], until: Timestamp) -> i128 {
    let ends = curve.iter().skip(1).map(|(next, _)| *next).chain([until]);
    let steps = curve.iter().zip(ends);
    steps
        .map(|((from, price), end)| cost_of(*price, *from, end))
        .sum()
}

/// What has been seen on a page.
#[derive(Default)]
struct Shown {
    ledger: spokeshave_view::Ledger,
    history: History,
    curve: Vec<(Timestamp, i64)>,
    /// How often no price was known: the first machine is there, and does not say yet of which type it is.
    untold: usize,
    last: Option<Header>,
}

impl Shown {
    fn look(&mut self, observed: Observed) {
        let world = World {
            state: observed.state,
            attachments: observed.attachments,
            disruptions: observed.disruptions,
            is_of_operator: true,
            now: observed.now,
            ..World::default()
        };
        let judged = Judged::of(world, &observed.policy);
        let header = View::take(&judged, &mut self.ledger, &mut self.history, 1).header;
        match &header.account {
            Some(account) => {
                let sum = account.price();
                assert_eq!(sum, header.price.0, "at {}: {account:?}", header.now);
                self.curve.push((header.now, header.price.0.0));
            }
            None => self.untold += 1,
        }
        self.last = Some(header);
    }

    /// What was seen last; enough was seen for it.
    fn header(&self) -> Header {
        let (told, untold) = (self.curve.len(), self.untold);
        assert!(told > 20 * untold, "{told} looks, and {untold} in vain");
        self.last.clone().unwrap()
    }

    /// The samples of the last hour.
    fn samples(&self) -> Vec<(Timestamp, i64)> {
        let samples = self.history.samples(Range::Hour);
        samples.map(|sample| (sample.at, sample.price.0)).collect()
    }
}

/// The page of an operator, drawn anew when something has changed.
struct Page {
    shown: Arc<Mutex<Shown>>,
    drawing: JoinHandle<()>,
}

impl Page {
    fn of(cluster: &Cluster, operator: &Running) -> Self {
        let shown = Arc::<Mutex<Shown>>::default();
        let (observer, clock) = (operator.observer.clone(), cluster.clock.clone());
        let drawn = Arc::clone(&shown);
        let drawing = tokio::spawn(async move {
            let mut seen: Option<Seen> = None;
            loop {
                let is_same = match &seen {
                    Some(seen) => observer.is_same(seen).await,
                    None => false,
                };
                if !is_same && let Some(observed) = observer.observe().await {
                    seen = Some(observed.seen.clone());
                    drawn.lock().unwrap().look(observed);
                }
                clock.sleep(STEP).await;
            }
        });
        Self { shown, drawing }
    }

    /// Closes it. What did not add up fails the test.
    async fn close(self) -> Shown {
        self.drawing.abort();
        if let Err(error) = self.drawing.await {
            assert!(error.is_cancelled(), "{error}");
        }
        std::mem::take(&mut *self.shown.lock().unwrap())
    }
}

/// Then, launched, replacements, ended by commands, ended otherwise, repriced: in billionths of a dollar per hour.
fn parts(account: Account) -> [i64; 6] {
    let parts = [
        account.price_then,
        account.launched,
        account.replacements,
        account.ended_by_commands,
        account.ended_otherwise,
        account.repriced,
    ];
    parts.map(|part| part.0.0)
}

fn on_demand() -> Value {
    json!([
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["9"]},
    ])
}

/// Some nodes expire after less than half an hour and are consolidated at once; others stay.
async fn pools(cluster: &Cluster) {
    let template = json!({"spec": {"requirements": on_demand(), "expireAfter": "25m"}});
    cluster
        .pool("default", json!({"template": template, "disruption": at_once()}))
        .await;
    let taints = json!([{"key": "steady", "effect": "NoSchedule"}]);
    let template = json!({"spec": {"requirements": on_demand(), "taints": taints}});
    cluster.pool("steady", json!({"template": template})).await;
}

/// A node of eight cores with a large pod and a small one, of `web`.
async fn one_large_node(cluster: &Cluster) {
    cluster.deploy("large", 1, "6").await;
    cluster.deploy("web", 1, "500m").await;
    cluster.until_running_of("large", 1).await;
    cluster.until_running_of("web", 1).await;
    assert_eq!(
        cluster.claim_of_pod("large").await,
        cluster.claim_of_pod("web").await
    );
}

async fn until_machines(cluster: &Cluster, count: usize) {
    cluster
        .until(&format!("{count} machines"), async |cluster| {
            cluster.list::<KWOKInstance>().await.len() == count
        })
        .await;
}

/// Without its large pod a node is too large: waits until a command has launched another one for the small pod.
async fn until_replaced_by_one_that_comes(cluster: &Cluster) {
    let before = cluster.list::<KWOKInstance>().await.len();
    cluster.scale("large", 0).await;
    cluster.until_phase(DisruptionPhase::Replacing).await;
    until_machines(cluster, before + 1).await;
}

async fn until_ended(cluster: &Cluster, reason: &str, phase: DisruptionPhase) {
    cluster
        .until(&format!("a command has {phase}"), async |cluster| {
            cluster.ended(reason, phase.clone()).await > 0
        })
        .await;
}

/// The node of `web` goes by what the caller does, and its pod has another one.
async fn until_web_has_left(cluster: &Cluster, claim: &str) {
    cluster.until_gone::<NodeClaim>(claim).await;
    cluster.until_running_of("web", 1).await;
}

fn realised(command: &Disruption) -> i64 {
    let status = command.status.as_ref();
    let text = status.and_then(|status| status.realised_savings.as_deref());
    nano_dollars(text.expect("what it has saved is known"))
}

/// A story with everything by which machines come and go, until all is quiet again.
async fn story(cluster: &Cluster, operator: &Running, cloud: &UnboundedSender<Interruption>) {
    cluster.pass(5).await;
    // Nodes come for pods; twelve of them stay, so that an hour costs some dollars.
    let steady = json!({"spec": {
        "nodeSelector": {"karpenter.sh/nodepool": "steady"}, "tolerations": [{"key": "steady", "operator": "Exists"}],
    }});
    cluster
        .deploy_with("steady", 12, template("steady", "6", steady))
        .await;
    cluster.until_running_of("steady", 12).await;
    one_large_node(cluster).await;
    cluster.run("batch", 3, "6").await;
    // Commands delete empty ones.
    cluster.scale("batch", 0).await;
    until_machines(cluster, 13).await;
    until_ended(cluster, "Empty", DisruptionPhase::Succeeded).await;
    // One that replaces a node is rolled back when its replacement is launched, and the next one is not.
    until_replaced_by_one_that_comes(cluster).await;
    let pod = cluster.pod_of("web").await.name_any();
    let protected = "karpenter.sh/do-not-disrupt";
    cluster.annotate::<Pod>(&pod, protected, "true").await;
    until_ended(cluster, "Underutilized", DisruptionPhase::RolledBack).await;
    until_machines(cluster, 13).await;
    cluster.annotate::<Pod>(&pod, protected, Value::Null).await;
    cluster
        .until("a node has been replaced", async |cluster| {
            let replaces = |one: &Disruption| one.spec.decision.to_string() == "Replace";
            let mut ledger = cluster.ledger().await.into_iter();
            ledger.any(|one| replaces(&one) && one.phase() == DisruptionPhase::Succeeded)
        })
        .await;
    cluster.until_running_of("web", 1).await;
    // The cloud takes a node back, a user deletes the next one, and the last one expires.
    let claim = cluster.claim_of_pod("web").await;
    let id = cluster
        .get::<NodeClaim>(&claim)
        .await
        .provider_id()
        .unwrap()
        .to_owned();
    let notice = message("ours", &id, Ok(InterruptionKind::ScheduledChange));
    cloud.unbounded_send(notice).unwrap();
    until_web_has_left(cluster, &claim).await;
    let claim = cluster.claim_of_pod("web").await;
    cluster.delete::<NodeClaim>(&claim).await;
    until_web_has_left(cluster, &claim).await;
    let claim = cluster.claim_of_pod("web").await;
    until_web_has_left(cluster, &claim).await;
    let expired = "karpenter_nodeclaims_disrupted_total";
    assert_counted_once(&operator.metrics, expired, "reason=\"expired\"");
    cluster.pass(60).await;
    cluster.assert_at_rest().await;
}

/// Whatever comes and goes: the curve is the bill, each change of the price is in one sum of the account, and commands have saved what the cloud has in its record
/// of the machines that they name.
#[tokio::test(start_paused = true)]
async fn capability_21_every_change_of_the_price_is_accounted_for_and_the_curve_is_the_bill() {
    let cluster = Cluster::new(61).await;
    pools(&cluster).await;
    let bill = Bill::of(&cluster);
    let cloud = cluster.faults.speak();
    let operator = cluster.operator(Setup::default());
    let page = Page::of(&cluster, &operator);
    story(&cluster, &operator, &cloud).await;
    let shown = page.close().await;
    let (header, now) = (shown.header(), cluster.clock.now());

    let mut done = cluster.ledger().await;
    done.retain(|one| one.phase() == DisruptionPhase::Succeeded);
    let decisions: BTreeSet<String> = done.iter().map(|one| one.spec.decision.to_string()).collect();
    assert_eq!(decisions.len(), 2, "{:?}", cluster.ledger_text().await);
    let named = done.iter().flat_map(|one| &one.spec.nodes);
    let named: BTreeSet<&str> = named.map(|one| one.node_claim.as_str()).collect();
    let brought = done.iter().flat_map(|one| &one.spec.replacements);
    let brought: BTreeSet<&str> = brought.map(|one| one.node_claim.as_str()).collect();
    let is_named = |machine: &Machine| named.contains(machine.claim.as_str());
    let is_brought = |machine: &Machine| brought.contains(machine.claim.as_str());

    let has_gone_otherwise = |machine: &Machine| machine.until.is_some() && !is_named(machine);

    // In billionths of a dollar: nothing is rounded.
    let saved = bill.price(is_named) - bill.price(is_brought);
    assert_eq!(done.iter().map(realised).sum::<i64>(), saved);
    assert_eq!(header.done.realised.0, Price(saved));
    let expected = [
        0,
        bill.price(|machine| !is_brought(machine)),
        bill.price(is_brought),
        bill.price(is_named),
        bill.price(has_gone_otherwise),
        0,
    ];
    assert_eq!(header.account.map(parts), Some(expected));
    assert_eq!(header.price.0.0, bill.price(|machine| machine.until.is_none()));
    // The replacement of the command that was rolled back, and the nodes that were interrupted, deleted and expired.
    assert_eq!(bill.count(has_gone_otherwise), 4);

    // To the cent where each change is seen; samples are of five seconds.
    let from = shown.curve[0].0;
    let billed = bill.amount(from, now);
    assert!(billed > 100 * CENT, "{billed}");
    let curve = area(&shown.curve, now);
    assert!((billed - curve).abs() < CENT, "{billed} billed, {curve} shown");
    let samples = area(&shown.samples(), now);
    assert!(
        (billed - samples).abs() < 2 * CENT,
        "{billed} billed, {samples} kept"
    );
    cluster.assert_no_leak().await;
}

/// A program that begins in the middle of a command tells of it what it has seen, and no more: what that saves, and nothing of what was saved before.
#[tokio::test(start_paused = true)]
async fn capability_21_after_a_restart_no_more_is_accounted_for_than_was_seen() {
    let cluster = Cluster::new(62).await;
    pools(&cluster).await;
    let bill = Bill::of(&cluster);
    let first = cluster.operator(Setup::default());
    let page = Page::of(&cluster, &first);
    cluster.pass(5).await;
    cluster.run("batch", 1, "6").await;
    cluster.scale("batch", 0).await;
    cluster.until_empty().await;
    until_ended(&cluster, "Empty", DisruptionPhase::Succeeded).await;
    one_large_node(&cluster).await;
    let old = cluster.claim_of_pod("web").await;
    until_replaced_by_one_that_comes(&cluster).await;
    cluster.pass(2).await;
    let before = page.close().await.header();
    first.end().await;

    let second = cluster.operator(Setup::default());
    let (page, from) = (Page::of(&cluster, &second), cluster.clock.now());
    until_ended(&cluster, "Underutilized", DisruptionPhase::Succeeded).await;
    cluster.pass(30).await;
    cluster.assert_at_rest().await;
    let shown = page.close().await;
    let (header, now) = (shown.header(), cluster.clock.now());
    let ledger = cluster.ledger().await;
    assert_eq!(ledger.len(), 2, "{:?}", cluster.ledger_text().await);
    let new = &ledger[1].spec.replacements[0].node_claim;
    let (old, new) = (bill.price_of(&old), bill.price_of(new));
    assert_eq!(header.account.map(parts), Some([old, 0, new, old, 0, 0]));
    assert_eq!(realised(&ledger[1]), old - new);
    // The first has seen the rest: a node that came and went, and two that came.
    let batch = realised(&ledger[0]);
    let until_then = [0, batch + old, new, batch, 0, 0];
    assert_eq!(before.account.map(parts), Some(until_then));
    // Commands are told by their objects, which outlive the program.
    assert_eq!(header.done.realised.0, Price(batch + old - new));
    let (billed, curve) = (bill.amount(from, now), area(&shown.curve, now));
    assert!((billed - curve).abs() < CENT, "{billed} billed, {curve} shown");
}
