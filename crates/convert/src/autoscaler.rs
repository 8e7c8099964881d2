//! cluster-autoscaler: the flags of its Deployment, or the Helm values that become them, as NodePools with the same pace.
//!
//! Flags say nothing about machines, which are in the groups that they name; so a NodePool takes any machine until its requirements are written.

use serde_json::{Value, json};

use crate::delays;
use crate::fields::{set, set_some};
use crate::flags::{self, Flag, Flags};
use crate::report::Notes;
use crate::workload::{containers, words};
use crate::{Context, World};

/// Whether a document without a kind is the values.yaml of its chart.
pub(crate) fn are_values(object: &Value) -> bool {
    object["extraArgs"].is_object()
        && ["autoDiscovery", "autoscalingGroups", "cloudProvider", "awsRegion"]
            .iter()
            .any(|key| object.get(*key).is_some())
}

/// Converts a Deployment, which itself is left out.
pub(crate) fn deployment(object: &Value, context: &Context, world: &mut World, notes: &mut Notes) {
    let mut found = Flags::new();
    for (index, container) in containers(object).enumerate() {
        let mut open: Option<String> = None;
        for (place, word) in words(container) {
            let field = format!("spec.template.spec.containers[{index}].{place}");
            match word.strip_prefix('-') {
                Some(flag) => {
                    let flag = flag.strip_prefix('-').unwrap_or(flag);
                    let (name, value) = flag.split_once('=').unwrap_or((flag, "true"));
                    open = (!flag.contains('=')).then(|| name.to_owned());
                    push(&mut found, name, field, value);
                }
                // `--flag value` in two words.
                None => {
                    if let Some(name) = open.take()
                        && let Some(flag) = found.get_mut(&name).and_then(|flags| flags.last_mut())
                    {
                        word.clone_into(&mut flag.value);
                    }
                }
            }
        }
    }
    pools(&found, context, world, notes);
    notes.dropped(
        "",
        "cluster-autoscaler is left out: scale it to 0 before the result is applied, two autoscalers work against each other",
    );
}

/// Converts the values of the chart.
pub(crate) fn values(object: &Value, context: &Context, world: &mut World, notes: &mut Notes) {
    let mut found = Flags::new();
    for (name, value) in object["extraArgs"].as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        push(&mut found, name, format!("extraArgs.{name}"), &value);
    }
    let has_discovery = groups_of_values(object, &mut found);
    let is_read = |key: &str| match key {
        "extraArgs" | "autoscalingGroups" | "autoscalingGroupsnamePrefix" => true,
        "autoDiscovery" => has_discovery,
        _ => false,
    };
    for key in object.as_object().into_iter().flat_map(|map| map.keys()) {
        if !is_read(key) {
            notes.dropped(
                key,
                "how cluster-autoscaler itself is run, or how it finds groups",
            );
        }
    }
    pools(&found, context, world, notes);
}

/// The flags that the chart makes of groups; whether `autoDiscovery` is one of them.
fn groups_of_values(object: &Value, found: &mut Flags) -> bool {
    // As the chart puts them into a flag, where it makes no difference whether a number is in quotes.
    let written = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    for (key, flag) in [
        ("autoscalingGroups", "nodes"),
        ("autoscalingGroupsnamePrefix", "node-group-auto-discovery"),
    ] {
        let groups = object[key].as_array().into_iter().flatten();
        for (index, group) in groups.enumerate() {
            let name = written(&group["name"]);
            let (least, most) = (written(&group["minSize"]), written(&group["maxSize"]));
            let value = match flag {
                "nodes" => format!("{least}:{most}:{name}"),
                _ => format!("mig:namePrefix={name},min={least},max={most}"),
            };
            push(found, flag, format!("{key}[{index}]"), &value);
        }
    }
    let discovery = &object["autoDiscovery"];
    let has_discovery = ["clusterName", "labels", "namespace"]
        .iter()
        .any(|key| !matches!(written(&discovery[*key]).as_str(), "" | "[]" | "{}"));
    if has_discovery {
        let (field, value) = ("autoDiscovery", discovery.to_string());
        push(found, "node-group-auto-discovery", field.to_owned(), &value);
    }
    has_discovery
}

fn push(flags: &mut Flags, name: &str, field: String, value: &str) {
    let flag = Flag {
        field,
        value: value.to_owned(),
    };
    flags.entry(name.to_owned()).or_default().push(flag);
}

/// A node group: a NodePool.
struct Group {
    name: String,
    most: Option<u64>,
}

fn pools(found: &Flags, context: &Context, world: &mut World, notes: &mut Notes) {
    let groups = groups(found, notes);
    let pace = flags::pace(found, &delays::READ, notes);
    let most_of_only = match &groups[..] {
        [only] => only.most,
        _ => None,
    };
    let limits = flags::limits(found, groups.len(), most_of_only, notes);
    let class = context.class_for_want_of_one("spec.template.spec.nodeClassRef", notes);
    notes.added(
        "spec.template.spec.requirements",
        "linux machines of any type: the groups' machines are not in the flags; narrow them here",
    );
    for group in groups {
        let mut limits = limits.clone();
        if let Some(most) = group.most
            && limits.get("nodes").is_none()
        {
            set(&mut limits, &["nodes"], json!(most.to_string()));
        }
        let mut pool = json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": group.name},
            "spec": {
                "template": {"spec": {
                    "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                    "expireAfter": "Never",
                }},
                "disruption": pace,
            },
        });
        let has_limits = limits.as_object().is_some_and(|limits| !limits.is_empty());
        set_some(&mut pool, &["spec", "limits"], has_limits.then_some(limits));
        set_some(
            &mut pool,
            &["spec", "template", "spec", "nodeClassRef"],
            class.as_ref().map(crate::ClassRef::value),
        );
        world.push(pool, notes);
    }
    for policy in delays::policies(found, notes) {
        world.push(policy, notes);
    }
    notes.added(
        "spec.template.spec.expireAfter",
        "Never: cluster-autoscaler does not replace nodes by age; v1's default is 720h",
    );
}

/// One pool a group of `--nodes`, or one for all that are discovered.
fn groups(found: &Flags, notes: &mut Notes) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for flag in found.get("nodes").into_iter().flatten() {
        let parts: Vec<&str> = flag.value.splitn(3, ':').collect();
        let (Some(least), Some(most), Some(name)) = (
            parts.first().and_then(|part| part.parse::<u64>().ok()),
            parts.get(1).and_then(|part| part.parse::<u64>().ok()),
            parts.get(2),
        ) else {
            notes.unknown(
                &flag.field,
                format!("expected MINIMUM:MAXIMUM:GROUP, found {:?}", flag.value),
            );
            continue;
        };
        let name = unique(object_name(name), &groups);
        notes.moved(
            &flag.field,
            &format!("NodePool {name} spec.limits.nodes"),
            format!("at most {most} nodes"),
        );
        if least > 0 {
            notes.manual(
                &flag.field,
                format!("a minimum of {least}: a NodePool has no minimum; a CapacityBuffer keeps room, a static NodePool (spec.replicas) keeps nodes"),
            );
        }
        groups.push(Group {
            name,
            most: Some(most),
        });
    }
    for flag in found.get("node-group-auto-discovery").into_iter().flatten() {
        notes.manual(
            &flag.field,
            format!(
                "groups are found by {}, and not named: one NodePool stands for all of them; give it their machines as requirements, labels and taints, or write one a group",
                flag.value
            ),
        );
    }
    if groups.is_empty() {
        groups.push(Group {
            name: "default".to_owned(),
            most: None,
        });
    }
    groups
}

/// A group's name as the name of an object: lower case, with `-` for what is not allowed.
fn object_name(text: &str) -> String {
    let short = text.rsplit('/').next().unwrap_or(text);
    let name: String = short
        .chars()
        .map(|letter| match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9') => letter,
            _ => '-',
        })
        .take(63)
        .collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "group" } else { name }.to_owned()
}

fn unique(name: String, groups: &[Group]) -> String {
    let taken = |name: &str| groups.iter().any(|group| group.name == name);
    if !taken(&name) {
        return name;
    }
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    numbered.into_iter().find(|name| !taken(name)).unwrap_or(name)
}
