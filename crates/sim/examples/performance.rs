//! The scenarios of upstream's performance suites (D App. G.2) in the simulated cluster, on virtual time:
//! `cargo run --release -p spokeshave-sim --example performance [NAME…]`. Prints a Markdown table for docs/benchmarks.md.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::{Value, json};
use spokeshave_api::{KWOKNodeClass, NodeClaim, NodePool};
use spokeshave_sim::lab::{Lab, LabOptions};

/// A scenario: pods before and after, what is special, and upstream's limit.
struct Scenario {
    name: &'static str,
    before: u32,
    after: u32,
    kind: Kind,
    limit: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ScaleOut,
    Consolidation,
    Drift,
    DoNotDisrupt,
    Spread,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "scale-out",
        before: 0,
        after: 1000,
        kind: Kind::ScaleOut,
        limit: "< 2 min",
    },
    Scenario {
        name: "consolidation",
        before: 1000,
        after: 700,
        kind: Kind::Consolidation,
        limit: "< 20 min",
    },
    Scenario {
        name: "drift",
        before: 600,
        after: 600,
        kind: Kind::Drift,
        limit: "< 50 min",
    },
    Scenario {
        name: "do-not-disrupt",
        before: 1100,
        after: 600,
        kind: Kind::DoNotDisrupt,
        limit: "< 35 min",
    },
    Scenario {
        name: "hostname-spread",
        before: 1000,
        after: 700,
        kind: Kind::Spread,
        limit: "< 30 min",
    },
    Scenario {
        name: "hostname-spread-xl",
        before: 2000,
        after: 1400,
        kind: Kind::Spread,
        limit: "< 35 min",
    },
];

/// Longest virtual time of a phase.
const LIMIT: Duration = Duration::from_secs(3 * 3600);
/// Nothing has moved for so long: it rests.
const REST: Duration = Duration::from_secs(5 * 60);

fn template(app: &str, cpu: &str, memory: &str, scenario: &Scenario) -> Value {
    let mut template = json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}},
        ]},
    });
    if scenario.kind == Kind::Spread {
        template["spec"]["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }]);
    }
    if scenario.kind == Kind::DoNotDisrupt && app == "protected" {
        template["metadata"]["annotations"] = json!({"karpenter.sh/do-not-disrupt": "true"});
    }
    template
}

/// Half small, half large; for do-not-disrupt a hundred more that must not move.
fn shares(scenario: &Scenario, pods: u32) -> Vec<(&'static str, &'static str, &'static str, u32)> {
    let (free, mut list) = if scenario.kind == Kind::DoNotDisrupt {
        (pods - 100, vec![("protected", "950m", "900Mi", 100)])
    } else {
        (pods, Vec::new())
    };
    list.push(("small", "950m", "3900Mi", free / 2));
    list.push(("large", "3800m", "31Gi", free - free / 2));
    list
}

async fn deploy(lab: &Lab, scenario: &Scenario, pods: u32) {
    let api: Api<Deployment> = Api::default_namespaced(lab.client.clone());
    for (app, cpu, memory, replicas) in shares(scenario, pods) {
        let object = json!({"metadata": {"name": app}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": app}}, "template": template(app, cpu, memory, scenario),
        }});
        let done = match lab.create(&api, object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => lab
                .merge(&api, app, json!({"spec": {"replicas": replicas}}))
                .await
                .map(drop),
            other => other.map(drop),
        };
        if let Err(error) = done {
            eprintln!("performance: {app}: {error}");
        }
    }
}

async fn running(lab: &Lab) -> usize {
    let pods = lab.list::<Pod>().await;
    let is_running = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    };
    pods.iter().filter(is_running).count()
}

/// Waits until `pods` run; gives the time it took.
async fn until_running(lab: &Lab, pods: u32) -> Option<Duration> {
    let start = lab.clock.now();
    loop {
        if u32::try_from(running(lab).await).is_ok_and(|count| count == pods) {
            return Some(lab.clock.since(start));
        }
        if lab.clock.since(start) > LIMIT {
            return None;
        }
        lab.clock.sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until names of NodeClaims and places of pods no longer change; gives the time of the last change.
async fn until_rest(lab: &Lab, pods: u32) -> Option<Duration> {
    let start = lab.clock.now();
    let (mut last, mut seen) = (Duration::ZERO, Vec::new());
    loop {
        let mut now: Vec<String> = lab
            .list::<NodeClaim>()
            .await
            .iter()
            .map(|claim| format!("{} {}", claim.name(), claim.metadata.deletion_timestamp.is_some()))
            .collect();
        let count = running(lab).await;
        now.push(count.to_string());
        let elapsed = lab.clock.since(start);
        if now != seen {
            (seen, last) = (now, elapsed);
        }
        if elapsed.saturating_sub(last) > REST && u32::try_from(count).is_ok_and(|count| count == pods) {
            return Some(last);
        }
        if elapsed > LIMIT {
            return None;
        }
        lab.clock.sleep(Duration::from_secs(5)).await;
    }
}

fn evictions(log: &[u8]) -> usize {
    let text = String::from_utf8_lossy(log);
    let evicted =
        |line: &&str| line.contains("/eviction?") && line.contains("operator") && line.ends_with("-> 201");
    text.lines().filter(evicted).count()
}

fn minutes(time: Option<Duration>) -> String {
    time.map_or("not within 3 h".to_owned(), |time| {
        format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
    })
}

#[expect(clippy::cast_precision_loss, reason = "for reading")]
fn dollars(micros: i64) -> String {
    format!("${:.2}", micros as f64 / 1e6)
}

async fn tell(scenario: &Scenario) {
    let mut lab = Lab::new(LabOptions::new(1)).await;
    let class = json!({"metadata": {"name": "default"}, "spec": {"nodeRegistrationDelay": "10s"}});
    let pool = json!({"metadata": {"name": "default"}, "spec": {
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [
                {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ],
            "expireAfter": "Never",
        }},
        "disruption": {
            "consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "budgets": [{"nodes": if scenario.kind == Kind::Drift { "10%" } else { "25%" }}],
        },
    }});
    let prepared = async {
        lab.create(&Api::<KWOKNodeClass>::all(lab.client.clone()), class)
            .await?;
        lab.create(&Api::<NodePool>::all(lab.client.clone()), pool)
            .await
            .map(drop)
    };
    if let Err(error) = prepared.await {
        eprintln!("performance: {error}");
        return;
    }
    lab.start("a");
    if scenario.before > 0 {
        deploy(&lab, scenario, scenario.before).await;
        until_running(&lab, scenario.before).await;
        until_rest(&lab, scenario.before).await;
    }
    let (nodes, cost) = (lab.list::<Node>().await.len(), lab.invariants.cost());
    let before = evictions(&lab.log.bytes());
    let took = match scenario.kind {
        Kind::ScaleOut => {
            deploy(&lab, scenario, scenario.after).await;
            until_running(&lab, scenario.after).await
        }
        Kind::Drift => {
            let label = json!({"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}});
            let pools: Api<NodePool> = Api::all(lab.client.clone());
            if let Err(error) = lab.merge(&pools, "default", label).await {
                eprintln!("performance: {error}");
            }
            until_rest(&lab, scenario.after).await
        }
        _ => {
            deploy(&lab, scenario, scenario.after).await;
            until_rest(&lab, scenario.after).await
        }
    };
    println!(
        "| {}: {} → {} pods | {} | {} | {} | {} → {} | {}/h → {}/h | {} |",
        scenario.name,
        scenario.before,
        scenario.after,
        minutes(took),
        scenario.limit,
        evictions(&lab.log.bytes()) - before,
        nodes,
        lab.list::<Node>().await.len(),
        dollars(cost),
        dollars(lab.invariants.cost()),
        lab.invariants.violations().len(),
    );
    for violation in lab.invariants.violations().iter().take(5) {
        eprintln!("  {violation}");
    }
    lab.end().await;
}

fn main() -> std::io::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    println!("| Scenario | Virtual time | Upstream's limit | Evictions | Nodes | Price | Promises broken |");
    println!("|---|---|---|---|---|---|---|");
    for scenario in &SCENARIOS {
        if wanted.is_empty() || wanted.iter().any(|name| name == scenario.name) {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()?;
            runtime.block_on(tell(scenario));
        }
    }
    Ok(())
}
