//! Upstream's performance suites (P App. C.2: seven tests; C.3: two) in the simulated cluster, on virtual time:
//! `cargo run --release -p spokeshave-sim --example performance [NAME…]`. Prints a Markdown table for docs/benchmarks.md.
//!
//! Pods, NodePool and limits are upstream's. Cores and memory are those of the whole process (API server, scheduler, kubelets, cloud and operator),
//! so they are upper bounds for the operator's own.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use serde_json::json;
use spokeshave_api::{NodeClaim, NodePool};
use spokeshave_runtime::Api;
use spokeshave_sim::lab::{Lab, LabOptions};
use spokeshave_sim::performance::{
    Kind, Workload, complex, deploy, evictions, large, prepare, running, small, wide, workload,
};

/// As in the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Until all pods run.
    Running,
    /// Until nothing has moved for three minutes.
    Rest,
    /// The same after the template has changed.
    Drift,
}

/// One phase of a test, with upstream's limits: minutes, share of CPU and memory that is requested.
struct Phase {
    name: &'static str,
    workloads: Vec<Workload>,
    measure: Measure,
    minutes: u64,
    utilisation: Option<(f64, f64)>,
}

fn phase(
    name: &'static str,
    measure: Measure,
    minutes: u64,
    utilisation: Option<(f64, f64)>,
    workloads: Vec<Workload>,
) -> Phase {
    Phase {
        name,
        workloads,
        measure,
        minutes,
        utilisation,
    }
}

const NAMES: [&str; 9] = [
    "basic",
    "hostNameSpreading",
    "hostNameSpreadingXL",
    "doNotDisrupt",
    "drift",
    "interference",
    "wideDeployments",
    "regressionSimple",
    "regressionComplex",
];

fn phases(test: &str) -> Vec<Phase> {
    use Kind::{DoNotDisrupt, HostAnti, HostSpread, Plain};
    use Measure::{Drift, Rest, Running};
    let spread = Some((0.38, 0.40));
    let protected = || workload("protected", "900m", "450Mi", DoNotDisrupt, 100);
    match test {
        "basic" => vec![
            phase(
                "scaleOut",
                Running,
                2,
                Some((0.53, 0.65)),
                vec![small(Plain, 500), large(Plain, 500)],
            ),
            phase(
                "consolidation",
                Rest,
                20,
                None,
                vec![small(Plain, 350), large(Plain, 350)],
            ),
        ],
        "hostNameSpreading" => vec![
            phase(
                "scaleOut",
                Running,
                5,
                spread,
                vec![small(HostSpread, 500), large(Plain, 500)],
            ),
            phase(
                "consolidation",
                Rest,
                30,
                spread,
                vec![small(HostSpread, 350), large(Plain, 350)],
            ),
        ],
        "hostNameSpreadingXL" => vec![
            phase(
                "scaleOut",
                Running,
                35,
                spread,
                vec![small(HostSpread, 1000), large(Plain, 1000)],
            ),
            phase(
                "consolidation",
                Rest,
                35,
                spread,
                vec![small(HostSpread, 700), large(Plain, 700)],
            ),
        ],
        "doNotDisrupt" => vec![
            phase(
                "scaleOut",
                Running,
                4,
                spread,
                vec![small(HostSpread, 500), large(Plain, 500), protected()],
            ),
            phase(
                "consolidation",
                Rest,
                35,
                spread,
                vec![small(HostSpread, 250), large(Plain, 250), protected()],
            ),
        ],
        "drift" => vec![
            phase(
                "initial",
                Running,
                5,
                None,
                vec![small(HostSpread, 300), large(Plain, 300)],
            ),
            phase(
                "drift",
                Drift,
                50,
                None,
                vec![small(HostSpread, 300), large(Plain, 300)],
            ),
        ],
        "interference" => vec![
            phase("scaleOut", Running, 5, spread, vec![small(HostAnti, 500)]),
            phase(
                "interference",
                Running,
                10,
                spread,
                vec![small(HostAnti, 250), large(HostAnti, 500)],
            ),
            phase(
                "consolidation",
                Rest,
                25,
                spread,
                vec![small(HostAnti, 400), large(HostAnti, 200)],
            ),
        ],
        "wideDeployments" => vec![
            phase("scaleOut", Running, 5, Some((0.20, 0.20)), wide(35, 30)),
            phase("consolidation", Rest, 40, Some((0.20, 0.20)), wide(25, 20)),
        ],
        "regressionSimple" => {
            let pods = || vec![workload("simple", "1", "100Mi", Plain, 100)];
            vec![
                phase("provisioning", Running, 10, None, pods()),
                phase("drift", Drift, 10, None, pods()),
            ]
        }
        _ => vec![
            phase("provisioning", Running, 10, None, complex()),
            phase("drift", Drift, 10, None, complex()),
        ],
    }
}

/// Longest virtual time of a phase.
const LIMIT: Duration = Duration::from_secs(2 * 3600);
/// Nothing has moved for so long: it rests (upstream's three minutes).
const REST: Duration = Duration::from_secs(3 * 60);
/// How often the cluster is sampled.
const LOOK: Duration = Duration::from_secs(2);

/// Waits until so many pods run; gives the time it took.
async fn until_running(lab: &Lab, pods: u32) -> Option<Duration> {
    let start = lab.clock.now();
    while lab.clock.since(start) <= LIMIT {
        if running(lab).await == pods {
            return Some(lab.clock.since(start));
        }
        lab.clock.sleep(LOOK).await;
    }
    None
}

/// Waits until NodeClaims no longer come or go and all pods run; gives the time of the last change.
async fn until_rest(lab: &Lab, pods: u32) -> Option<Duration> {
    let start = lab.clock.now();
    let (mut last, mut seen) = (Duration::ZERO, Vec::new());
    while lab.clock.since(start) <= LIMIT {
        let claims = lab.list::<NodeClaim>().await;
        let mut now: Vec<String> = claims
            .iter()
            .map(|claim| format!("{} {}", claim.name(), claim.is_deleting()))
            .collect();
        let count = running(lab).await;
        now.push(count.to_string());
        let elapsed = lab.clock.since(start);
        if now != seen {
            (seen, last) = (now, elapsed);
        }
        if elapsed.saturating_sub(last) > REST && count == pods {
            return Some(last);
        }
        lab.clock.sleep(LOOK).await;
    }
    None
}

/// A quantity as a number.
fn amount(quantity: Option<&Quantity>) -> f64 {
    let text = quantity.map_or("0", |quantity| quantity.0.as_str());
    let units = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("m", 0.001),
    ];
    let found = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = found.unwrap_or((text, 1.0));
    number.parse::<f64>().unwrap_or(0.0) * factor
}

/// Mean over all nodes of what is requested of their CPU and memory.
#[expect(clippy::cast_precision_loss, reason = "for reading")]
async fn utilisation(lab: &Lab) -> (f64, f64) {
    let mut used: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for pod in lab.list::<Pod>().await {
        let Some(spec) = pod.spec else { continue };
        let entry = used.entry(spec.node_name.unwrap_or_default()).or_default();
        let requests = spec
            .containers
            .iter()
            .filter_map(|one| one.resources.as_ref()?.requests.as_ref());
        for request in requests {
            entry.0 += amount(request.get("cpu"));
            entry.1 += amount(request.get("memory"));
        }
    }
    let nodes = lab.list::<Node>().await;
    let mut sum = (0.0, 0.0);
    for node in &nodes {
        let allocatable = node
            .status
            .as_ref()
            .and_then(|status| status.allocatable.as_ref());
        let used = used.get(&node.name_any()).copied().unwrap_or_default();
        if let Some(all) = allocatable {
            sum.0 += used.0 / amount(all.get("cpu")).max(1e-9);
            sum.1 += used.1 / amount(all.get("memory")).max(1e-9);
        }
    }
    let count = nodes.len().max(1) as f64;
    (sum.0 / count, sum.1 / count)
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

#[expect(clippy::cast_precision_loss, reason = "for reading")]
fn dollars(micros: i64) -> String {
    format!("${:.2}", micros as f64 / 1e6)
}

/// Seconds of processor time of this process.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| {
        fields
            .get(index)
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

/// Resident megabytes of this process.
fn resident_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1000.0
}

/// Does what a phase does, and gives the time it took.
async fn live(lab: &Lab, phase: &Phase) -> kube::Result<Option<Duration>> {
    let pods = phase.workloads.iter().map(|one| one.replicas).sum();
    deploy(lab, &phase.workloads).await?;
    Ok(match phase.measure {
        Measure::Running => until_running(lab, pods).await,
        Measure::Rest => until_rest(lab, pods).await,
        Measure::Drift => {
            lab.clock.sleep(Duration::from_secs(30)).await;
            let change = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
            let pools: Api<NodePool> = Api::all(lab.client.clone());
            lab.merge(&pools, "default", change).await?;
            until_rest(lab, pods).await
        }
    })
}

async fn tell(test: &str) -> kube::Result<bool> {
    let mut lab = Lab::new(LabOptions::new(1)).await;
    prepare(&lab, 10).await?;
    lab.start("a");
    let mut all_met = true;
    for phase in phases(test) {
        let (cost, nodes) = (lab.invariants.cost(), lab.list::<Node>().await.len());
        let (before, busy, began) = (evictions(&lab.log.bytes()), processor_seconds(), lab.clock.now());
        let took = live(&lab, &phase).await?;
        let (cpu, memory) = utilisation(&lab).await;
        let lived = lab.clock.since(began).as_secs_f64().max(1.0);
        let in_time = took.is_some_and(|took| took.as_secs() < phase.minutes * 60);
        let used_well = phase
            .utilisation
            .is_none_or(|(least_cpu, least_memory)| cpu > least_cpu && memory > least_memory);
        all_met &= in_time && used_well && lab.invariants.violations().is_empty();
        println!(
            "| {test}/{} | {} | {} | {} | {:.2} / {:.2} | {} | {} → {} | {} → {} | {:.2} | {:.0} | {} |",
            phase.name,
            phase.workloads.iter().map(|one| one.replicas).sum::<u32>(),
            took.map_or("not in 2 h".to_owned(), minutes),
            phase.minutes,
            cpu,
            memory,
            phase.utilisation.map_or("–".to_owned(), |(cpu, memory)| format!(
                "{cpu:.2} / {memory:.2}"
            )),
            nodes,
            lab.list::<Node>().await.len(),
            dollars(cost),
            dollars(lab.invariants.cost()),
            (processor_seconds() - busy) / lived,
            resident_megabytes(),
            evictions(&lab.log.bytes()) - before,
        );
        for violation in lab.invariants.violations().iter().take(5) {
            eprintln!("  {test}/{}: {violation}", phase.name);
        }
    }
    lab.end().await;
    Ok(all_met)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "| Test / phase | Pods | Minutes | Limit | CPU / memory requested | Limit | Nodes | Price an hour | Cores | MB | Evictions |"
    );
    println!("|---|---:|---:|---:|---|---|---|---|---:|---:|---:|");
    let mut all_met = true;
    for test in NAMES {
        if wanted.is_empty() || wanted.iter().any(|name| name == test) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()?;
            all_met &= runtime.block_on(tell(test))?;
        }
    }
    println!(
        "\nEvery limit met and no promise broken: {}",
        if all_met { "yes" } else { "no" }
    );
    Ok(())
}
