//! Generated clusters as dumps: what the page says of their nodes, and of their nodes without what keeps them, is what `explain` and `plan` say.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use spokeshave_api::labels;
use spokeshave_example::random_world;
use spokeshave_model::{ClusterState, InstanceType};
use spokeshave_simulate::Objects;

use super::{Web, array, said};

/// When the worlds play.
const NOW: &str = "2026-01-01T00:00:00Z";
/// Seeds that are looked at at the same time.
const THREADS: u64 = 4;
const PROTECTED: &str = "karpenter.sh/do-not-disrupt";

/// Runs a check for each seed, a few at a time.
fn for_each_seed(seeds: u64, check: impl Fn(u64) + Sync) {
    let check = &check;
    std::thread::scope(|scope| {
        for first in 0..THREADS.min(seeds) {
            scope.spawn(move || {
                (first..seeds)
                    .filter(|seed| seed % THREADS == first)
                    .for_each(check)
            });
        }
    });
}

/// What an instance type is in a file for `--catalog`.
fn entry(kind: &InstanceType) -> Value {
    let is = |key: &str, value: Option<&str>| json!({"key": key, "operator": "In", "values": [value]});
    let offerings = kind.offerings.iter().map(|offering| {
        let capacity_type = offering.capacity_type().map(|one| one.as_str());
        let requirements = [
            is(labels::ZONE, offering.zone()),
            is(labels::CAPACITY_TYPE, capacity_type),
        ];
        json!({"Price": offering.price.dollars(), "Available": true, "Requirements": requirements})
    });
    let offerings: Vec<Value> = offerings.collect();
    json!({"name": kind.name, "architecture": "amd64", "operatingSystems": ["linux"],
        "resources": kind.capacity.to_quantities(), "offerings": offerings})
}

/// The objects of a generated cluster, as a dump has them.
fn written(state: &ClusterState) -> Vec<Value> {
    let objects = Objects {
        node_pools: state.node_pools.clone(),
        node_claims: state.node_claims.clone(),
        nodes: state.nodes.clone(),
        pods: state.pods.clone(),
        daemon_sets: state.daemon_sets.clone(),
        ..Objects::default()
    };
    let list = objects.to_list().expect("JSON");
    let mut items = array(&list["items"]).to_vec();
    // Generated NodeClaims name no class, which only a state need not have.
    let class = json!({"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"});
    for claim in each(&mut items, "NodeClaim") {
        claim["spec"] = json!({"nodeClassRef": class, "requirements": []});
    }
    items
}

fn each<'a>(items: &'a mut [Value], kind: &'a str) -> impl Iterator<Item = &'a mut Value> {
    items.iter_mut().filter(move |item| item["kind"] == kind)
}

/// Puts something in the way of many nodes.
fn hinder(items: &mut Vec<Value>, seed: u64) {
    for (kind, every) in [("Pod", 7), ("Node", 5)] {
        for (index, object) in (seed..).zip(each(items, kind)) {
            if index % every == 0 {
                object["metadata"]["annotations"] = json!({PROTECTED: "true"});
            }
        }
    }
    for (index, pool) in (seed..).zip(each(items, "NodePool")) {
        let disruption = &mut pool["spec"]["disruption"];
        match index % 4 {
            0 => disruption["budgets"] = json!([{"nodes": "0"}]),
            1 => disruption["consolidationPolicy"] = json!("WhenEmpty"),
            2 => disruption["consolidateAfter"] = json!("Never"),
            _ => {}
        }
    }
    if seed.is_multiple_of(3) {
        let status =
            json!({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1});
        items.push(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all", "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {}}, "status": status}));
    }
}

/// A generated cluster, in files.
struct World {
    folder: tempfile::TempDir,
    items: Vec<Value>,
    catalog: String,
}

impl World {
    fn of(seed: u64) -> Self {
        let state = random_world(seed);
        let folder = tempfile::tempdir().expect("a folder");
        let types = state
            .instance_types
            .values()
            .find_map(|types| types.as_ref().ok());
        let types: &Arc<[InstanceType]> = types.expect("NodePools have instance types, all the same");
        let entries: Vec<Value> = types.iter().map(entry).collect();
        let catalog = folder.path().join("catalog.json");
        std::fs::write(&catalog, json!(entries).to_string()).expect("written");
        let mut items = written(&state);
        hinder(&mut items, seed);
        World {
            folder,
            items,
            catalog: catalog.display().to_string(),
        }
    }

    /// Writes objects into a file of this name.
    fn file(&self, name: &str, items: &[Value]) -> String {
        let path: PathBuf = self.folder.path().join(name);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        std::fs::write(&path, list.to_string()).expect("written");
        path.display().to_string()
    }

    /// What a command says of a file, and of these instance types at this time.
    fn answer(&self, command: &[&str], file: &str) -> Value {
        let of = ["-f", file, "--catalog", &self.catalog, "--now", NOW, "-o", "json"];
        serde_json::from_str(&said(0, &[command, &of].concat())).expect("JSON")
    }

    fn web(&self, file: &str) -> Web {
        Web::running(&["web", "-f", file, "--catalog", &self.catalog, "--now", NOW])
    }
}

/// Whole nano-dollars; none for what is unknown.
fn nanos(dollars: &Value) -> Option<i64> {
    dollars.as_f64().map(|dollars| (dollars * 1e9).round() as i64)
}

/// What a verdict of `plan` says that it saves; none where it keeps the node, or the price is not known.
fn saves(verdict: &Value) -> Option<i64> {
    let is_known = verdict["decision"] != "keep" && verdict["priceUnknown"] != true;
    let prices = nanos(&verdict["priceBefore"]).zip(nanos(&verdict["priceAfter"]));
    prices.filter(|_| is_known).map(|(before, after)| before - after)
}

/// The parts of a verdict of `plan` that the view has of a node.
fn judged(verdict: &Value) -> Value {
    let keeps = verdict["decision"] == "keep";
    let blockers = array(&verdict["blockers"]).iter();
    let blockers = blockers.map(|one| json!([one["kind"], one["object"], one["message"]]));
    let blockers: Vec<Value> = blockers.collect();
    let then = verdict["ifRemoved"]["message"].as_str().unwrap_or_default();
    let replacement = if keeps {
        Value::Null
    } else {
        verdict["replacement"].clone()
    };
    json!([
        verdict["decision"],
        blockers,
        then,
        verdict["waits"],
        replacement,
        saves(verdict)
    ])
}

/// The same of the view's row.
fn seen(nodes: &Value, at: usize) -> Value {
    let repeated = |column: &str| {
        let place = nodes[column]["of"][at].as_u64();
        let place = place.and_then(|place| usize::try_from(place).ok());
        place.map_or(Value::Null, |place| nodes[column]["values"][place].clone())
    };
    let reasons = array(&nodes["reasons"][at]).iter().map(|place| {
        let place = usize::try_from(place.as_u64().expect("a place")).expect("a small one");
        let reason = &nodes["reasonTable"][place];
        json!([reason["code"], reason["object"], reason["message"]])
    });
    let reasons: Vec<Value> = reasons.collect();
    let then = repeated("ifRemoved");
    let (verdict, waits, replacement) = (repeated("verdict"), repeated("waits"), repeated("replacement"));
    let then = then.as_str().unwrap_or_default();
    json!([
        verdict,
        reasons,
        then,
        waits,
        replacement,
        nanos(&nodes["saves"][at])
    ])
}

/// The page's JSON of each node, and the programs' of the same dump.
#[test]
fn what_the_page_says_of_nodes_is_what_plan_and_explain_say() {
    let (kept, going, explained) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    for_each_seed(200, |seed| {
        let world = World::of(seed);
        let file = world.file("world.json", &world.items);
        let plan = world.answer(&["plan", "--verdicts"], &file);
        let web = world.web(&file);
        let view = web.json("/api/view");
        let (nodes, verdicts) = (&view["nodes"], array(&plan["disruption"]["verdicts"]));
        let names = array(&nodes["name"]);
        assert_eq!(names.len(), verdicts.len(), "seed {seed}");
        assert_eq!(view["header"]["price"], plan["cluster"]["price"], "seed {seed}");
        for verdict in verdicts {
            let at = names.iter().position(|name| *name == verdict["node"]);
            let row = seen(nodes, at.expect("each node has a row"));
            assert_eq!(row, judged(verdict), "seed {seed}: {}", verdict["node"]);
            let count = if verdict["decision"] == "keep" {
                &kept
            } else {
                &going
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        // Another one in each world: what all of them would take is minutes.
        let Some(verdict) = verdicts.get(usize::try_from(seed).expect("small") % verdicts.len().max(1))
        else {
            return;
        };
        let name = verdict["node"].as_str().expect("a name");
        let mut page = web.json(&format!("/api/node/{name}"));
        let mut explain = world.answer(&["explain", "node", name], &file);
        let taken = |document: &mut Value, field: &str| {
            let fields = document.as_object_mut().expect("an object");
            fields.remove(field).unwrap_or_default()
        };
        taken(&mut page, "story");
        let toggles = taken(&mut page, "toggles");
        // Of Events and NodeClasses the page reads nothing.
        taken(&mut explain, "told");
        assert_eq!(page, explain, "seed {seed}: {name}");
        let toggles = array(&toggles).iter();
        let toggles = toggles.map(|one| json!([one["code"], one["object"], one["message"]]));
        let toggles: Vec<Value> = toggles.collect();
        assert_eq!(json!(toggles), judged(verdict)[1], "seed {seed}: {name}");
        explained.fetch_add(1, Ordering::Relaxed);
    });
    let counts = [kept, going, explained].map(AtomicUsize::into_inner);
    assert!(counts.iter().all(|count| *count > 50), "{counts:?} prove little");
}

/// Changes the object of a blocker, as a person would who wants to be rid of it; false where nobody would.
fn edit(items: &mut Vec<Value>, toggle: &Value) -> bool {
    let (kind, name) = toggle["object"]
        .as_str()
        .and_then(|object| object.split_once(' '))
        .expect("a kind and a name");
    let is_it = |item: &Value| {
        let meta = &item["metadata"];
        let own = meta["name"].as_str().unwrap_or_default();
        let key = meta["namespace"]
            .as_str()
            .map(|namespace| format!("{namespace}/{own}"));
        item["kind"] == kind && key.as_deref().unwrap_or(own) == name
    };
    let at = items.iter().position(is_it).expect("it is there");
    let spec = "/spec/disruption";
    match toggle["code"].as_str().expect("a code") {
        "PodDoNotDisrupt" | "NodeDoNotDisrupt" => items[at]["metadata"]["annotations"] = json!({}),
        "Pod" | "PodDisruptionBudget" => drop(items.remove(at)),
        "ConsolidationDisabled" => set(&mut items[at], spec, "consolidateAfter", json!("0s")),
        "ConsolidationPolicy" => {
            let when = json!("WhenEmptyOrUnderutilized");
            set(&mut items[at], spec, "consolidationPolicy", when);
        }
        "Budget" => set(&mut items[at], spec, "budgets", json!([{"nodes": "100%"}])),
        "Limits" => {
            let spec = items[at]["spec"].as_object_mut().expect("an object");
            spec.remove("limits");
        }
        "MinValues" => {
            let requirements = items[at].pointer_mut("/spec/template/spec/requirements");
            let requirements = requirements.and_then(Value::as_array_mut).expect("requirements");
            for one in requirements {
                one.as_object_mut().expect("an object").remove("minValues");
            }
        }
        _ => return false,
    }
    true
}

fn set(item: &mut Value, place: &str, field: &str, value: Value) {
    item.pointer_mut(place).expect("it is there")[field] = value;
}

/// What nodes that may go would save: each alone, or the next commands together, whichever is more.
fn could_save(plan: &Value) -> i64 {
    let verdicts = array(&plan["disruption"]["verdicts"]).iter();
    let alone: i64 = verdicts.filter_map(saves).map(|saves| saves.max(0)).sum();
    let commands = array(&plan["disruption"]["commands"]).iter();
    let price = |command: &Value, field: &str| nanos(&command[field]).expect("a price");
    let together: i64 = commands
        .map(|command| price(command, "priceBefore") - price(command, "priceAfter"))
        .sum();
    alone.max(together)
}

fn decisions(plan: &Value) -> Vec<(String, &Value)> {
    let verdicts = array(&plan["disruption"]["verdicts"]).iter();
    verdicts
        .map(|verdict| (verdict["node"].as_str().expect("a name").to_owned(), verdict))
        .collect()
}

/// The blockers of a node, each of which has a switch, and something to edit.
fn sets_of_switches(world: &World, web: &Web, verdicts: &[(String, &Value)]) -> Vec<(String, Vec<Value>)> {
    let mut sets: Vec<(String, Vec<Value>)> = Vec::new();
    for (node, _) in verdicts {
        let toggles = array(&web.json(&format!("/api/node/{node}"))["toggles"]).to_vec();
        let keys: Option<Vec<String>> = toggles
            .iter()
            .map(|toggle| toggle["without"].as_str().map(|key| format!("without={key}")))
            .collect();
        let mut edited = world.items.clone();
        let Some(query) = keys.filter(|keys| !keys.is_empty()).map(|keys| keys.join("&")) else {
            continue;
        };
        let is_known = sets.iter().any(|(known, _)| *known == query);
        if !is_known && toggles.iter().all(|toggle| edit(&mut edited, toggle)) {
            sets.push((query, edited));
        }
    }
    sets
}

/// Everything that keeps a node assumed away on the page, and really changed in the dump.
#[test]
fn what_a_what_if_says_is_what_plan_says_of_the_changed_dump() {
    let asked = AtomicUsize::new(0);
    for_each_seed(20, |seed| {
        let world = World::of(seed);
        let file = world.file("world.json", &world.items);
        let before = world.answer(&["plan", "--verdicts"], &file);
        let (web, verdicts) = (world.web(&file), decisions(&before));
        for (query, edited) in sets_of_switches(&world, &web, &verdicts) {
            let told = web.json(&format!("/api/whatif?{query}"));
            let after = world.answer(&["plan", "--verdicts"], &world.file("edited.json", &edited));
            let changes = array(&told["verdicts"]);
            for (node, verdict) in decisions(&after) {
                let change = changes.iter().find(|change| change["node"] == node.as_str());
                let was = verdicts.iter().find(|(known, _)| *known == node);
                let (_, was) = was.expect("nodes stay");
                let decision = change.map_or(&was["decision"], |change| &change["after"]);
                assert_eq!(*decision, verdict["decision"], "seed {seed}: {node}, {query}");
                if let Some(change) = change {
                    assert_eq!(
                        nanos(&change["saves"]),
                        saves(verdict),
                        "seed {seed}: {node}, {query}"
                    );
                }
            }
            let (cluster, launched) = (&after["cluster"], &after["provisioning"]);
            let price = nanos(&cluster["price"]).zip(nanos(&launched["price"]));
            let price = price.map(|(nodes, launches)| nodes + launches);
            assert_eq!(nanos(&told["priceAfter"]), price, "seed {seed}: {query}");
            let could_save = Some(could_save(&after));
            assert_eq!(nanos(&told["couldSaveAfter"]), could_save, "seed {seed}: {query}");
            let claims = |plan: &Value| array(&plan["provisioning"]["nodeClaims"]).len();
            let launches = claims(&after).saturating_sub(claims(&before));
            assert_eq!(told["launches"], launches, "seed {seed}: {query}");
            let unplaced = array(&launched["unschedulable"]).len();
            assert_eq!(told["unplacedAfter"], unplaced, "seed {seed}: {query}");
            assert!(
                !changes.is_empty(),
                "seed {seed}: without all that keeps it, it goes: {query}"
            );
            asked.fetch_add(1, Ordering::Relaxed);
        }
    });
    let asked = asked.into_inner();
    assert!(asked > 30, "{asked} what-ifs prove little");
}
