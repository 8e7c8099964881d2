//! Provisioner (`karpenter.sh/v1alpha5`) as NodePool (spec/disruption.md §10.1).

use serde_json::{Value, json};

use crate::class_ref::ClassRef;
use crate::fields::{Fields, set, set_some};
use crate::node_template::{self, Origin};
use crate::report::Notes;
use crate::{Context, Kubelet, World, metadata, names};

/// Converts one Provisioner; its block `provider` becomes a separate EC2NodeClass.
pub(crate) fn convert(object: Value, context: &Context, world: &mut World, notes: &mut Notes) {
    let mut fields = Fields::of("", object, notes);
    fields.take("apiVersion");
    fields.take("kind");
    let meta = metadata::converted(fields.take("metadata").unwrap_or_default(), notes);
    let name = meta["name"].as_str().unwrap_or_default().to_owned();
    let mut pool = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": meta,
        "spec": {"template": {"spec": {}}, "disruption": {}},
    });
    let mut kubelet = None;
    if let Some(mut spec) = fields.nested("spec", notes) {
        template(&mut spec, &mut pool, notes);
        disruption(&mut spec, &mut pool, notes);
        limits(&mut spec, &mut pool, notes);
        kubelet = spec.take("kubeletConfiguration");
        node_class(&mut spec, &mut pool, &name, context, world, notes);
        spec.report_rest(notes);
    }
    if fields.take("status").is_some() {
        notes.dropped("status", "written by the controllers");
    }
    fields.report_rest(notes);
    let output = world.push(pool, notes);
    if let Some(value) = kubelet {
        world.kubelets.push(Kubelet {
            output,
            field: "spec.kubeletConfiguration",
            value,
        });
    }
}

fn template(spec: &mut Fields, pool: &mut Value, notes: &mut Notes) {
    for (key, path) in [("labels", "labels"), ("annotations", "annotations")] {
        if let Some(mut entries) = spec.take(key) {
            let field = format!("spec.{key}");
            let became = format!("spec.template.metadata.{path}");
            if let Some(entries) = entries.as_object_mut() {
                names::rename_keys(entries, &field, notes);
            }
            notes.moved(&field, &became, "another place");
            set(pool, &["spec", "template", "metadata", path], entries);
        }
    }
    for key in ["taints", "startupTaints"] {
        if let Some(taints) = spec.take(key) {
            notes.moved(
                &format!("spec.{key}"),
                &format!("spec.template.spec.{key}"),
                "another place",
            );
            set(pool, &["spec", "template", "spec", key], taints);
        }
    }
    let requirements = requirements(spec, notes);
    set(
        pool,
        &["spec", "template", "spec", "requirements"],
        Value::Array(requirements),
    );
}

/// The requirements, with those that v1alpha5 added by default.
fn requirements(spec: &mut Fields, notes: &mut Notes) -> Vec<Value> {
    let mut requirements = Vec::new();
    match spec.take("requirements") {
        Some(Value::Array(items)) => {
            notes.moved(
                "spec.requirements",
                "spec.template.spec.requirements",
                "another place",
            );
            for (index, item) in items.into_iter().enumerate() {
                if item["key"] == "karpenter.sh/provisioner-name" {
                    notes.dropped(
                        &format!("spec.requirements[{index}]"),
                        "every node of a NodePool carries karpenter.sh/nodepool with its name; a requirement on it is refused",
                    );
                } else {
                    requirements.push(item);
                }
            }
        }
        Some(other) => notes.unknown(
            "spec.requirements",
            format!("expected a list, found {other}; it is left out"),
        ),
        None => {}
    }
    add_defaults(&mut requirements, notes);
    requirements
}

fn add_defaults(requirements: &mut Vec<Value>, notes: &mut Notes) {
    let instance = "karpenter.k8s.aws/instance-";
    let has = |requirements: &[Value], key: &str| requirements.iter().any(|one| one["key"] == key);
    let machines = [
        "node.kubernetes.io/instance-type".to_owned(),
        format!("{instance}family"),
        format!("{instance}category"),
        format!("{instance}generation"),
    ];
    let mut added = Vec::new();
    for (key, value) in [
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("karpenter.sh/capacity-type", "on-demand"),
    ] {
        if !has(requirements, key) {
            added.push(json!({"key": key, "operator": "In", "values": [value]}));
        }
    }
    if !machines.iter().any(|key| has(requirements, key)) {
        added
            .push(json!({"key": format!("{instance}category"), "operator": "In", "values": ["c", "m", "r"]}));
        added.push(json!({"key": format!("{instance}generation"), "operator": "Gt", "values": ["2"]}));
    }
    for one in added {
        let key = one["key"].as_str().unwrap_or_default().to_owned();
        let (operator, values) = (&one["operator"], &one["values"]);
        let text = format!(
            "{key} {} {values}: v1alpha5 on AWS added it where nothing was said of {key}; v1 does not",
            operator.as_str().unwrap_or_default()
        );
        notes.added("spec.template.spec.requirements", text);
        requirements.push(one);
    }
}

/// D-375 to D-377, with the fourth row, where nothing is said.
fn disruption(spec: &mut Fields, pool: &mut Value, notes: &mut Notes) {
    let empty = spec.take("ttlSecondsAfterEmpty");
    let consolidation = spec.nested("consolidation", notes);
    let enabled = consolidation.is_some_and(|mut consolidation| {
        let enabled = consolidation.take("enabled");
        consolidation.report_rest(notes);
        enabled == Some(json!(true))
    });
    if enabled && empty.is_some() {
        notes.manual(
            "spec.ttlSecondsAfterEmpty",
            "v1alpha5 refused it together with consolidation.enabled; consolidation is what is converted",
        );
    }
    let (policy, after) = match (enabled, &empty) {
        (true, _) => {
            notes.changed(
                "spec.consolidation.enabled",
                "spec.disruption.consolidationPolicy",
                "WhenEmptyOrUnderutilized with consolidateAfter 0s; a longer consolidateAfter leaves each node in peace for that long after its last pod event",
            );
            (Some("WhenEmptyOrUnderutilized"), "0s".to_owned())
        }
        (false, Some(seconds)) => match whole(seconds) {
            Some(seconds) => {
                notes.changed(
                    "spec.ttlSecondsAfterEmpty",
                    "spec.disruption.consolidateAfter",
                    "counts from the last pod that came or went, daemons excepted, and not from when the node became empty",
                );
                (Some("WhenEmpty"), format!("{seconds}s"))
            }
            None => {
                notes.manual(
                    "spec.ttlSecondsAfterEmpty",
                    format!(
                        "expected a whole number of seconds from 0, found {seconds}; nodes are kept instead"
                    ),
                );
                (None, "Never".to_owned())
            }
        },
        (false, None) => {
            notes.added(
                "spec.disruption.consolidateAfter",
                "Never: neither ttlSecondsAfterEmpty nor consolidation.enabled was set, so that no node was taken away; v1 would consolidate by default",
            );
            (None, "Never".to_owned())
        }
    };
    let disruption = &mut pool["spec"]["disruption"];
    set_some(
        disruption,
        &["consolidationPolicy"],
        policy.map(|policy| json!(policy)),
    );
    set(disruption, &["consolidateAfter"], json!(after));
    notes.changed(
        "",
        "spec.disruption.budgets",
        "not written, so that v1's default of 10% of the nodes holds; v1alpha5 had no budgets and took one decision at a time",
    );
    expiry(spec, pool, notes);
}

/// D-376.
fn expiry(spec: &mut Fields, pool: &mut Value, notes: &mut Notes) {
    let became = "spec.template.spec.expireAfter";
    let value = match spec.take("ttlSecondsUntilExpired") {
        None => {
            notes.added(
                became,
                "Never: without ttlSecondsUntilExpired nodes did not expire; v1's default is 720h",
            );
            "Never".to_owned()
        }
        Some(seconds) => match whole(&seconds) {
            Some(seconds) => {
                notes.changed(
                    "spec.ttlSecondsUntilExpired",
                    became,
                    "in v1 expiry waits neither for budgets nor for a replacement: the node is drained as soon as it is that old",
                );
                format!("{seconds}s")
            }
            None => {
                notes.manual(
                    "spec.ttlSecondsUntilExpired",
                    format!(
                        "expected a whole number of seconds from 0, found {seconds}; nodes do not expire"
                    ),
                );
                "Never".to_owned()
            }
        },
    };
    set(pool, &["spec", "template", "spec", "expireAfter"], json!(value));
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64()
}

fn limits(spec: &mut Fields, pool: &mut Value, notes: &mut Notes) {
    if let Some(mut limits) = spec.nested("limits", notes) {
        if let Some(resources) = limits.take("resources") {
            notes.moved("spec.limits.resources", "spec.limits", "another place");
            set(pool, &["spec", "limits"], resources);
        }
        limits.report_rest(notes);
    }
    if let Some(weight) = spec.take("weight") {
        // Zero was the default and is refused by v1.
        if weight == json!(0) {
            notes.dropped("spec.weight", "0 is the weight of a NodePool without one");
        } else {
            set(pool, &["spec", "weight"], weight);
        }
    }
}

fn node_class(
    spec: &mut Fields,
    pool: &mut Value,
    name: &str,
    context: &Context,
    world: &mut World,
    notes: &mut Notes,
) {
    let became = "spec.template.spec.nodeClassRef";
    let reference = spec.nested("providerRef", notes);
    let provider = spec.take("provider");
    let class = match (reference, provider) {
        (Some(mut reference), provider) => {
            if provider.is_some() {
                notes.manual(
                    "spec.provider",
                    "v1alpha5 refused it together with providerRef, which is what is converted",
                );
            }
            reference.take("apiVersion");
            let kind = reference.take("kind");
            let class = reference.take("name").unwrap_or_default();
            reference.report_rest(notes);
            let class = class.as_str().unwrap_or_default();
            if kind.is_none_or(|kind| kind == "AWSNodeTemplate") {
                notes.moved(
                    "spec.providerRef",
                    became,
                    format!("EC2NodeClass {class}, which is what AWSNodeTemplate {class} becomes"),
                );
                Some(ClassRef::aws(class))
            } else {
                notes.manual(
                    "spec.providerRef.kind",
                    "only AWSNodeTemplate is known; EC2NodeClass of the same name is written",
                );
                Some(ClassRef::aws(class))
            }
        }
        (None, Some(provider)) => {
            let class = context.free_class_name(name);
            notes.moved(
                "spec.provider",
                became,
                format!("EC2NodeClass {class}, which is made from this block"),
            );
            let origin = Origin {
                path: "spec.provider",
                name: &class,
            };
            node_template::from_provider(provider, &origin, context, world, notes);
            Some(ClassRef::aws(&class))
        }
        (None, None) => context.class_for_want_of_one(became, notes),
    };
    if let Some(class) = class {
        set(pool, &["spec", "template", "spec", "nodeClassRef"], class.value());
    }
}
