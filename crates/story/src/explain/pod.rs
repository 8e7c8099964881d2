//! The story of a pod: why it has no node, or where it runs and whether it may be moved.

use spokeshave_api::NodeClaim;
use spokeshave_model::Pod;
use spokeshave_model::pod::{is_terminal, key, node_name, phase, requests};
use spokeshave_model::snapshot::PodId;

use super::facts::{comes_back, short_amount};
use super::node::verdict_story;
use super::node_claim::waits;
use super::pending;
use super::{Facts, Meaning, Story, Wait, age};
use spokeshave_plan::Provisioned;
use spokeshave_plan::disrupt::Verdict;

/// The story of a pod. `provisioned` is what provisioning decides now; `verdict` is the verdict of disruption about its node, if it was
/// asked.
pub fn pod(facts: &Facts<'_>, id: PodId, provisioned: &Provisioned, verdict: Option<&Verdict>) -> Story {
    let view = facts.snapshot.pod(id);
    let object = &*view.object;
    let mut story = Story::new("Pod", &view.key());
    identity(facts, object, &mut story);
    match node_name(object) {
        Some(node) => bound(facts, id, node, verdict, &mut story),
        None => pending::tell(facts, id, provisioned, &mut story),
    }
    story.sorted()
}

/// The story of a pod for which a node is being made, so that no other place is sought (P-107); the NodeClaim, if it is known.
pub fn awaited_pod(facts: &Facts<'_>, pod: &Pod, claim: Option<&NodeClaim>) -> Story {
    let mut story = Story::new("Pod", &key(pod));
    identity(facts, pod, &mut story);
    let Some(claim) = claim else {
        story.summary = "waits for a node that is being made for it".to_owned();
        return story;
    };
    let name = claim.name();
    story.fact("nodeclaim", name);
    let created = claim.metadata.creation_timestamp.as_ref();
    let since = created.map(|time| format!(", created {} ago", age(time.0, facts.now)));
    story.summary = format!(
        "waits for the node of NodeClaim {name}{}",
        since.unwrap_or_default()
    );
    story.waits = waits(claim);
    story.hints.push(format!("spokeshave explain nodeclaim {name}"));
    story
}

fn identity(facts: &Facts<'_>, pod: &Pod, story: &mut Story) {
    if let Some(created) = &pod.metadata.creation_timestamp {
        story.fact("age", age(created.0, facts.now));
    }
    story.fact("phase", phase(pod));
    let owner = pod.metadata.owner_references.iter().flatten().next();
    if let Some(owner) = owner {
        story.fact("owner", format!("{} {}", owner.kind, owner.name));
    }
    let wanted = requests(pod);
    let wanted: Vec<String> = wanted
        .iter()
        .filter(|(name, amount)| *name != "pods" && *amount > 0)
        .map(|(name, amount)| format!("{name} {}", short_amount(name, amount)))
        .collect();
    story.fact(
        "requests",
        if wanted.is_empty() {
            "nothing".to_owned()
        } else {
            wanted.join(", ")
        },
    );
    let priority = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.priority)
        .filter(|priority| *priority != 0);
    if let Some(priority) = priority {
        story.fact("priority", priority.to_string());
    }
}

fn bound(facts: &Facts<'_>, id: PodId, node: &str, verdict: Option<&Verdict>, story: &mut Story) {
    story.fact("node", node);
    let line = facts.meaning(id);
    story.fact("for its node", line.message.clone());
    story.summary = match line.meaning {
        Meaning::Finished => "has finished".to_owned(),
        Meaning::Stopping => format!("is stopping on {node}"),
        Meaning::Movable if comes_back(&facts.snapshot.pod(id).object) => {
            format!("runs on {node} and may be moved")
        }
        Meaning::Movable => format!("runs on {node}; evicted, it does not come back"),
        Meaning::Daemon | Meaning::Static | Meaning::Tolerates => format!("runs on {node} and ends with it"),
        Meaning::DoNotDisrupt | Meaning::Budget | Meaning::MultipleBudgets => {
            format!("runs on {node} and keeps it from being disrupted")
        }
    };
    if line.blocks {
        let of_budget = line.message.split_once(": ");
        let of_budget = of_budget.filter(|_| line.meaning == Meaning::Budget);
        let (object, message) = match of_budget {
            Some((budget, message)) => (budget.to_owned(), message.to_owned()),
            None => (format!("Pod {}", line.pod), line.message),
        };
        story.waits.push(Wait {
            object,
            message,
            since: None,
        });
    }
    story.verdict = verdict.map(verdict_story);
    story.hints.push(format!("spokeshave explain node {node}"));
    if is_terminal(&facts.snapshot.pod(id).object) {
        story.hints.clear();
    }
}
