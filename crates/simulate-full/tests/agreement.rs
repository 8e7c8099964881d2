//! The two engines on the same small scenarios: the fast one gives the commands, the cost and the evictions of the operator itself.

mod fixed;
mod read;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::PodSpec;
use spokeshave_api::validation::LabelRules;
use spokeshave_scenario::import::inventory::Inventory;
use spokeshave_scenario::import::objects::Object;
use spokeshave_scenario::{Budget, Change, DisruptionBudget, Event, OwnerId, OwnerKind, Timeline};
use spokeshave_simulate::dumped::Dumped;
use spokeshave_simulate::{Line, Model, Objects, ObjectsAt, Standing, Watch, live_watched};
use spokeshave_simulate_full::agreement::{KeptLine, Told, common};
use spokeshave_simulate_full::{Life, Refused, live};

const HOUR_MS: u64 = 3_600_000;

/// A scenario of this crate, cut to so many hours.
fn life(name: &str, seed: u64, hours: u64) -> Life {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("scenarios/{name}.yaml"));
    let mut scene = read::scene(&file).unwrap();
    scene.scenario.duration_ms = hours * HOUR_MS;
    let timeline = spokeshave_scenario::generate(&scene.scenario, seed, &BTreeMap::new()).unwrap();
    let mut world = (*scene.world).clone();
    world.duration_ms = hours * HOUR_MS;
    Life {
        world: Arc::new(world),
        timeline: Arc::new(timeline),
        policy: scene.policies.remove(0),
        overlays: scene.overlays,
        seed,
    }
}

fn fast(life: &Life) -> Told {
    let mut lines = Vec::new();
    let mut take = |line: Line<'_>| lines.push(KeptLine::from(line));
    let watch = Watch {
        lines: Some(&mut take),
        objects: None,
    };
    let (world, timeline) = (&life.world, &life.timeline);
    let policy = life.policy.under(world, &life.overlays, &LabelRules::default());
    let run = live_watched(world, timeline, &policy, life.seed, &|| false, watch);
    Told { run, lines }
}

fn full(life: &Life) -> Told {
    let lines: Arc<Mutex<Vec<KeptLine>>> = Arc::default();
    let sink = lines.clone();
    let take = move |line: Line<'_>| sink.lock().unwrap().push(KeptLine::from(line));
    let run = live(life, &|| false, Some(Box::new(take))).unwrap();
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    Told { run, lines }
}

/// What both engines must say alike to the millisecond.
fn agree(name: &str, seed: u64, hours: u64) -> Told {
    agree_on(&life(name, seed, hours), name)
}

fn agree_on(life: &Life, name: &str) -> Told {
    let seed = life.seed;
    let (fast, full) = (fast(life), full(life));
    let (of_fast, of_full) = (fast.commands(), full.commands());
    let same = common(&of_fast, &of_full);
    assert_eq!(of_fast, of_full, "{name}, seed {seed}: {same} commands agree");
    assert_eq!(fast.cost(), full.cost(), "{name}, seed {seed}");
    assert_eq!(fast.evictions(), full.evictions(), "{name}, seed {seed}");
    assert_eq!(
        fast.run.measured.pending_born_ms, full.run.measured.pending_born_ms,
        "{name}, seed {seed}"
    );
    assert_eq!(
        fast.run.measured.pending_left_ms, full.run.measured.pending_left_ms,
        "{name}, seed {seed}"
    );
    full
}

#[test]
fn a_cluster_that_does_not_change_costs_the_same() {
    let told = agree("1-constant", 1, 2);
    assert_eq!(told.run.measured.launches, 1);
    let work = told.run.work;
    assert_eq!((work.launches, work.commands, work.moves), (1, 0, 0));
    assert!(
        work.api_writes > Some(0),
        "a NodeClaim was made at least: {work:?}"
    );
    assert_eq!(work.what_ifs, None, "the operator does not tell them");
}

#[test]
fn nodes_that_are_taken_back_are_replaced_alike() {
    let told = agree("6-spot", 1, 24);
    assert!(told.evictions() > 0);
}

/// A seed in which both live alike although much is consolidated: what the fast engine makes of a command is what the operator makes of it.
#[test]
fn commands_are_those_of_the_operator() {
    let told = agree("4-budgets", 3, 12);
    assert!(told.commands().len() > 10, "{}", told.commands().len());
}

/// Jobs of which pods are evicted: their controller waits with the next one, longer each time.
#[test]
fn jobs_that_lose_their_pods_go_on_alike() {
    let told = agree("3-jobs", 1, 3);
    assert!(told.commands().len() > 10, "{}", told.commands().len());
}

/// NodeClaims that come to rest in one instant bring one turn, and a rollback is through before the scheduler binds what has waited.
#[test]
fn what_happens_in_one_instant_happens_in_one_order() {
    for (name, seed, hours) in [("4-budgets", 2, 6), ("2-rising", 1, 4)] {
        let told = agree(name, seed, hours);
        assert!(!told.commands().is_empty(), "{name}");
    }
}

/// Expiry evicts pods of StatefulSets, whose successors come when they are gone: to the nodes that were launched for those that went.
#[test]
fn pods_of_expired_nodes_get_one_node_in_both() {
    let told = agree("8-ordinals", 1, 7);
    assert!(told.evictions() > 0);
    assert_eq!(told.commands(), [""; 0], "nothing is launched in vain");
}

/// Three nodes that are there whatever pods wait expire together, and come again one after the other, as their limit has it.
#[test]
fn d_140_d_356_static_node_pools_have_their_number_in_both() {
    let told = agree("9-static", 1, 7);
    assert!(told.evictions() > 0);
    let made = |pool: &str| {
        let claims = told.lines.iter().filter(|line| line.what == "nodeclaim");
        claims.filter(|line| line.of.starts_with(pool)).count()
    };
    assert_eq!(made("edge-"), 9, "at the start, and after three and six hours");
    assert!(made("default-") > 0, "what has no place on three nodes");
}

/// The operator judges and applies NodeOverlays itself, and the fast engine is given what comes of them: both buy what is the cheapest by them, at their prices.
#[test]
fn p_187_node_overlays_choose_and_cost_alike() {
    let told = agree("10-overlays", 1, 4);
    let launched = told.lines.iter().filter(|line| line.what == "launched");
    let families: Vec<&str> = launched.map(|line| &line.more[..2]).collect();
    assert!(!families.is_empty());
    assert!(families.iter().all(|family| *family == "m-"), "{families:?}");
    let mut plain = life("10-overlays", 1, 4);
    plain.overlays.clear();
    let without = fast(&plain);
    assert!(without.cost() > told.cost(), "they make everything cheaper");
}

/// Pods that tolerate every taint are not evicted: they go with the instances that consolidation ends, and are counted as moved by it.
#[test]
fn d_319_pods_that_tolerate_the_taint_are_moved_by_what_removes_their_node() {
    let mut life = life("4-budgets", 3, 12);
    life.timeline = Arc::new(tolerant(&life));
    let measured = full(&life).run.measured;
    assert!(measured.pods_cut_short > 0, "instances end with pods on them");
    assert!(measured.evictions_voluntary > 0, "by consolidation");
}

/// Thirty of them share a large instance until five are left, which move to a smaller one.
#[test]
fn d_319_both_engines_count_pods_that_tolerate_the_taint_alike() {
    let mut life = life("1-constant", 1, 2);
    let mut timeline = tolerant(&life);
    timeline.events.push(Event {
        at_ms: HOUR_MS,
        owner: OwnerId(0),
        change: Change::Replicas(5),
    });
    life.timeline = Arc::new(timeline);
    let [fast, full] = evictions(&life);
    assert_eq!(fast, full);
    assert!(fast.0 > 0, "by consolidation");
}

/// The workload of a life with pods that tolerate every taint.
fn tolerant(life: &Life) -> Timeline {
    let mut timeline = (*life.timeline).clone();
    for owner in &mut timeline.owners {
        let mut template = (*owner.template).clone();
        let tolerations = serde_json::json!([{"operator": "Exists"}]);
        template.spec.get_or_insert_default().tolerations = serde_json::from_value(tolerations).unwrap();
        owner.template = Arc::new(template);
    }
    timeline
}

/// Puts the pods of `web` under a budget.
fn protect(timeline: &mut Timeline, amount: Budget) {
    let budget = DisruptionBudget {
        selector: serde_json::from_value(serde_json::json!({"matchLabels": {"app": "web"}})).unwrap(),
        amount: Some(amount),
    };
    let name = ("default".to_owned(), "web".to_owned());
    timeline.budgets.insert(name, budget);
}

/// Pods that each engine evicts, voluntarily and otherwise.
fn evictions(life: &Life) -> [(u64, u64); 2] {
    [fast(life), full(life)].map(|told| {
        let measured = told.run.measured;
        (measured.evictions_voluntary, measured.evictions_involuntary)
    })
}

/// Thirty pods of two Deployments share a large instance until five are left. These may move to a smaller one as long as four of them stay, and may not if all
/// of them have to.
#[test]
fn a_budget_over_two_workloads_holds_alike() {
    for (least, may_move) in [("4", true), ("5", false)] {
        let mut life = life("1-constant", 1, 2);
        let mut timeline = (*life.timeline).clone();
        timeline.owners.push(timeline.owners[0].clone());
        timeline.owners[1].name = "canary".to_owned();
        for (owner, track) in timeline.owners.iter_mut().zip(["stable", "canary"]) {
            let metadata = Arc::make_mut(&mut owner.template)
                .metadata
                .get_or_insert_default();
            let labels = metadata.labels.get_or_insert_default();
            labels.insert("track".to_owned(), track.to_owned());
        }
        let events = [(0, 0, 25), (0, 1, 5), (HOUR_MS, 0, 3), (HOUR_MS, 1, 2)];
        let events = events.map(|(at_ms, owner, replicas)| Event {
            at_ms,
            owner: OwnerId(owner),
            change: Change::Replicas(replicas),
        });
        timeline.events = events.into();
        protect(&mut timeline, Budget::MinAvailable(least.to_owned()));
        life.timeline = Arc::new(timeline);
        let [fast, full] = evictions(&life);
        assert_eq!(fast, full, "{least}");
        assert_eq!(fast.0 > 0, may_move, "{least}: by consolidation");
    }
}

/// The same with pods that were recorded one by one, of a controller that has a scale.
#[test]
fn pods_of_other_controllers_move_alike_under_a_share_of_them() {
    let mut life = life("1-constant", 1, 2);
    let mut timeline = (*life.timeline).clone();
    timeline.owners[0].kind = OwnerKind::Other;
    let begins = (0..30).map(|pod| (0, Change::Begin { pod, runs_ms: None }));
    let ends = (5..30).map(|pod| (HOUR_MS, Change::End { pod }));
    let events = begins.chain(ends).map(|(at_ms, change)| Event {
        at_ms,
        owner: OwnerId(0),
        change,
    });
    timeline.events = events.collect();
    protect(&mut timeline, Budget::MaxUnavailable("50%".to_owned()));
    life.timeline = Arc::new(timeline);
    let [fast, full] = evictions(&life);
    assert_eq!(fast, full);
    assert!(fast.0 > 0, "by consolidation");
}

/// The pods of a life with `replicas` are made from a template with twice the CPU after an hour, and from the first one again after two.
fn renewed(kind: OwnerKind, replicas: u32) -> Life {
    let mut life = life("1-constant", 1, 3);
    let mut timeline = (*life.timeline).clone();
    let owner = &mut timeline.owners[0];
    owner.kind = kind;
    let mut later = (*owner.template).clone();
    let spec = later.spec.get_or_insert_default();
    let resources = spec.containers[0].resources.get_or_insert_default();
    let requests = serde_json::json!({"cpu": "1", "memory": "1Gi"});
    resources.requests = serde_json::from_value(requests).unwrap();
    // What is gone from the template is gone from the pods as well, and so is what is gone again.
    spec.node_selector = Some(BTreeMap::from([(
        "kubernetes.io/os".to_owned(),
        "linux".to_owned(),
    )]));
    owner.later = vec![Arc::new(later)];
    let events = [
        (0, Change::Replicas(replicas)),
        (HOUR_MS, Change::Template(1)),
        (2 * HOUR_MS, Change::Template(0)),
    ];
    let events = events.map(|(at_ms, change)| Event {
        at_ms,
        owner: OwnerId(0),
        change,
    });
    timeline.events = events.into();
    life.timeline = Arc::new(timeline);
    life
}

/// Pods that a roll-out replaces are evicted by nobody. The controllers of the full engine and the arithmetic of the fast one share no code.
#[test]
fn rollouts_replace_pods_alike() {
    for (kind, replicas) in [(OwnerKind::Deployment, 30), (OwnerKind::StatefulSet, 5)] {
        let life = renewed(kind, replicas);
        let told = agree_on(&life, &format!("{kind:?}"));
        let born = told.lines.iter().filter(|line| line.what == "born").count() as u64;
        // At first, after an hour, and after two. A pod of a StatefulSet that is evicted meanwhile comes back as one of the new version.
        let least = 3 * u64::from(replicas);
        match kind {
            OwnerKind::Deployment => assert_eq!(born, least + told.evictions()),
            _ => assert!((least..=least + told.evictions()).contains(&born), "{born}"),
        }
    }
}

/// The same of a scenario file, on a curve, with Jobs beside it.
#[test]
fn changes_of_size_are_lived_alike() {
    let told = agree("11-rollouts", 1, 4);
    let born = |name: &str| {
        let births = told.lines.iter().filter(|line| line.what == "born");
        births.filter(|line| line.of.starts_with(name)).count()
    };
    assert!(
        born("default/web-0-") >= 3 * 6,
        "at first, after an hour, and after three"
    );
    assert!(born("default/db-") >= 2 * 2 * 3, "at first, and after two");
    assert!(told.run.measured.launches > 1);
}

/// A Job and a pod of another controller have the template of the time at which they begin.
#[test]
fn pods_that_begin_later_are_of_another_size_in_both() {
    for kind in [OwnerKind::Job, OwnerKind::Other] {
        let mut life = renewed(kind, 0);
        let mut timeline = (*life.timeline).clone();
        let begin = |pod| Change::Begin { pod, runs_ms: None };
        let events = [
            (0, begin(0)),
            (HOUR_MS, Change::Template(1)),
            (HOUR_MS + 1, begin(1)),
        ];
        let events = events.map(|(at_ms, change)| Event {
            at_ms,
            owner: OwnerId(0),
            change,
        });
        timeline.events = events.into();
        life.timeline = Arc::new(timeline);
        let told = agree_on(&life, &format!("{kind:?}"));
        let lower = fast(&life).run.measured.bound_micros;
        assert_eq!(told.run.measured.bound_micros, lower, "{kind:?}");
    }
}

#[test]
fn pods_with_a_priority_class_and_a_scheduler_of_their_own_run() {
    let told = agree("7-priority", 1, 1);
    assert!(told.cost() > 0);
}

/// As in a dump: a pod that an API server has admitted says what its class says, and the template beside it does not.
#[test]
fn a_pod_with_the_number_of_its_class_runs_beside_a_template_without() {
    let mut life = life("7-priority", 1, 1);
    let mut timeline = (*life.timeline).clone();
    let mut alone = timeline.owners[0].clone();
    alone.name = "alone".to_owned();
    alone.kind = OwnerKind::Bare;
    let mut template = (*alone.template).clone();
    template.metadata = None;
    let spec = template.spec.get_or_insert_default();
    spec.priority = Some(1_000);
    spec.preemption_policy = Some("Never".to_owned());
    alone.template = Arc::new(template);
    let owner = OwnerId(u32::try_from(timeline.owners.len()).unwrap());
    timeline.owners.push(alone);
    let change = Change::Begin {
        pod: 0,
        runs_ms: None,
    };
    timeline.events.insert(
        0,
        Event {
            at_ms: 0,
            owner,
            change,
        },
    );
    let owners = timeline.owners.len() as u64;
    life.timeline = Arc::new(timeline);
    assert_eq!(full(&life).run.measured.owners, owners);
}

/// Puts this into the specification of all pods of a life.
fn with(life: &mut Life, change: impl Fn(&mut PodSpec)) {
    let mut timeline = (*life.timeline).clone();
    for owner in &mut timeline.owners {
        change(Arc::make_mut(&mut owner.template).spec.get_or_insert_default());
    }
    life.timeline = Arc::new(timeline);
}

#[test]
fn pods_with_a_gate_wait_to_the_end_in_both() {
    let mut life = life("1-constant", 1, 2);
    with(&mut life, |spec| {
        let gates = serde_json::json!([{"name": "example.com/queue"}]);
        spec.scheduling_gates = serde_json::from_value(gates).unwrap();
    });
    let (fast, full) = (fast(&life).run.measured, full(&life).run.measured);
    assert_eq!((fast.launches, full.launches), (0, 0));
    assert_eq!(fast.pending_at_end_ms, full.pending_at_end_ms);
    assert_eq!(fast.pending_at_end_ms, [7_200_000; 30]);
}

/// Pods of a node that is not there are removed at once, and their ReplicaSet makes others as soon as they are.
#[test]
fn pods_that_fail_in_the_instant_in_which_they_are_made_end_the_run() {
    let mut life = life("1-constant", 1, 2);
    with(&mut life, |spec| spec.node_name = Some("nowhere".to_owned()));
    let refused = live(&life, &|| false, None).map(|run| run.digest);
    let Err(Refused::Broken(why)) = &refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains("the pods of default/web"), "{why}");
}

/// In the first hour: pods start, and nothing else is due for long.
#[test]
fn a_life_in_the_full_engine_is_interrupted_in_the_middle_of_an_hour() {
    let life = life("1-constant", 1, 2);
    let last_ms: Arc<AtomicU64> = Arc::default();
    let seen = last_ms.clone();
    let take = move |line: Line<'_>| seen.store(line.at_ms, Ordering::Relaxed);
    let is_interrupted = || last_ms.load(Ordering::Relaxed) > 0;
    let run = live(&life, &is_interrupted, Some(Box::new(take))).unwrap();
    assert!(run.partial);
    assert!(run.measured.span_ms < HOUR_MS, "{}", run.measured.span_ms);
}

#[test]
fn a_life_in_the_full_engine_can_be_repeated() {
    let life = life("2-rising", 5, 1);
    assert_eq!(full(&life).run.digest, full(&life).run.digest);
}

/// A life of so many hours that begins where another one stood: with its nodes and pods, of which those with these places in three are gone.
fn gone_on_with(name: &str, seed: u64, at_ms: u64, hours: u64, gone: &[usize]) -> Life {
    let mut life = life(name, seed, at_ms / HOUR_MS + 1);
    let mut found = None;
    let mut take = |all: &Objects| found = Some(all.clone());
    let watch = Watch {
        lines: None,
        objects: Some(ObjectsAt {
            at_ms,
            take: &mut take,
        }),
    };
    live_watched(&life.world, &life.timeline, &life.policy, seed, &|| false, watch);
    let objects = found.unwrap();
    let mut world = (*life.world).clone();
    world.duration_ms = hours * HOUR_MS;
    let dumped = Dumped {
        nodes: &objects.nodes,
        node_claims: &objects.node_claims,
        node_pools: &objects.node_pools,
        taken_at: objects.now,
    };
    let (standing, _) = Standing::of(&dumped, &world, std::slice::from_ref(&life.policy));
    world.standing = standing;
    let mut inventory = Inventory::default();
    let list = objects.to_list().unwrap();
    let pods = list["items"].as_array().unwrap().iter();
    let pods = pods.filter(|item| item["kind"] == "Pod").enumerate();
    for (_, pod) in pods.filter(|(place, _)| !gone.contains(&(place % 3))) {
        inventory.add(Object::read(&pod.to_string(), None).unwrap());
    }
    life.timeline = Arc::new(inventory.constant(world.start, world.duration_ms).unwrap());
    life.world = Arc::new(world);
    // It goes on with its seed, which draws names that stand already.
    life
}

/// Nodes that are not full, as in a cluster that has shrunk: both engines begin with them and their pods, and make the same of them. When the operator's first look
/// is, in the first seconds, is not the same to the millisecond: costs are by less than a thousandth.
#[test]
fn a_dump_is_gone_on_with_alike() {
    for (name, seed) in [("4-budgets", 3), ("2-rising", 1)] {
        let life = gone_on_with(name, seed, 4 * HOUR_MS, 6, &[0]);
        assert!(
            life.world.standing.nodes.len() > 1 && life.timeline.placements.len() > 5,
            "{name}"
        );
        let (fast, full) = (fast(&life), full(&life));
        let count = |told: &Told, what: &str| told.lines.iter().filter(|line| line.what == what).count();
        for what in ["standing", "placed"] {
            assert_eq!(count(&fast, what), count(&full, what), "{name}: {what}");
        }
        assert_eq!(
            count(&fast, "standing"),
            life.world.standing.nodes.len(),
            "{name}"
        );
        assert_eq!(fast.commands(), full.commands(), "{name}");
        assert!(
            !fast.commands().is_empty(),
            "{name}: nothing is made of half empty nodes"
        );
        assert_eq!(fast.evictions(), full.evictions(), "{name}");
        assert_eq!(fast.run.measured.launches, full.run.measured.launches, "{name}");
        let apart = fast.cost().abs_diff(full.cost());
        assert!(
            apart * 1_000 <= fast.cost(),
            "{name}: {} and {}",
            fast.cost(),
            full.cost()
        );
    }
}

/// A node that expires six hours after it was made does so five hours after a dump of its first hour.
#[test]
fn nodes_of_a_dump_expire_at_their_age_in_both() {
    let life = gone_on_with("5-expiry", 1, HOUR_MS, 10, &[]);
    let (fast, full) = (fast(&life), full(&life));
    assert!(!life.world.standing.nodes.is_empty());
    let first = fast.lines.iter().find(|line| line.what == "expired");
    let first_ms = first.map_or(0, |line| line.at_ms);
    let five_ms = 5 * HOUR_MS;
    assert!(
        (five_ms - 120_000..five_ms + 120_000).contains(&first_ms),
        "{first_ms}"
    );
    assert!(fast.evictions() > 0);
    // In ten hours nodes that were new would expire once: those that come in the place of the old ones do so after eleven.
    assert_eq!(fast.evictions(), full.evictions());
    let ended = |told: &Told| {
        let mut lines = told.lines.iter();
        lines
            .find(|line| line.what == "ended")
            .map_or(0, |line| line.at_ms)
    };
    assert!(
        ended(&full).abs_diff(ended(&fast)) < 60_000,
        "{} and {}",
        ended(&fast),
        ended(&full)
    );
    let apart = fast.cost().abs_diff(full.cost());
    assert!(
        apart * 1_000 <= fast.cost(),
        "{} and {}",
        fast.cost(),
        full.cost()
    );
}

#[test]
fn models_of_other_autoscalers_are_refused() {
    let mut life = life("1-constant", 1, 1);
    life.policy.model = Model::ClusterAutoscaler;
    let refused = live(&life, &|| false, None).map(|run| run.digest);
    assert_eq!(refused, Err(Refused::Model("now".to_owned())));
}
