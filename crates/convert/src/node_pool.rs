//! NodePool of `karpenter.sh/v1beta1` as v1; and a NodePool of v1 whose fields stand where an older version had them, which documents of v1beta1
//! and of AKS still show (D-377, D-381).

use serde_json::{Value, json};

use crate::class_ref::ClassRef;
use crate::fields::{get, remove, set, text};
use crate::report::Notes;
use crate::{Context, Kubelet, World, metadata, names};

/// Converts one NodePool. One of v1 in which nothing is out of place stays as it is.
pub(crate) fn convert(mut object: Value, context: &Context, world: &mut World, notes: &mut Notes) {
    let is_old = object["apiVersion"] != "karpenter.sh/v1";
    if is_old {
        object["apiVersion"] = json!("karpenter.sh/v1");
        if let Some(meta) = remove(&mut object, &["metadata"]) {
            object["metadata"] = metadata::converted(meta, notes);
        }
        if remove(&mut object, &["status"]).is_some() {
            notes.dropped("status", "written by the controllers");
        }
    }
    disruption(&mut object, is_old, notes);
    template(&mut object, is_old, context, notes);
    let kubelet = remove(&mut object, &["spec", "template", "spec", "kubelet"]);
    let output = world.push(object, notes);
    if let Some(value) = kubelet.filter(|value| !value.is_null()) {
        world.kubelets.push(Kubelet {
            output,
            field: "spec.template.spec.kubelet",
            value,
        });
    }
}

fn disruption(object: &mut Value, is_old: bool, notes: &mut Notes) {
    let policy = text(object, &["spec", "disruption", "consolidationPolicy"]).map(str::to_owned);
    let policy_path = ["spec", "disruption", "consolidationPolicy"];
    let after_path = ["spec", "disruption", "consolidateAfter"];
    let after = get(object, &after_path).cloned();
    match policy.as_deref() {
        Some("WhenUnderutilized") => {
            let policy = "spec.disruption.consolidationPolicy";
            notes.moved(policy, policy, "WhenUnderutilized is WhenEmptyOrUnderutilized in v1");
            set(object, &policy_path, json!("WhenEmptyOrUnderutilized"));
            if after.is_none() {
                add_immediately(object, notes);
            }
        }
        None if is_old => {
            if after.is_some() {
                notes.manual(
                    "spec.disruption.consolidateAfter",
                    "v1beta1 refused it with consolidationPolicy WhenUnderutilized, which was the default; in v1 it counts from the last pod that came or went",
                );
            } else {
                add_immediately(object, notes);
            }
            notes.added(
                "spec.disruption.consolidationPolicy",
                "WhenEmptyOrUnderutilized: v1beta1's default by its name in v1",
            );
            set(object, &policy_path, json!("WhenEmptyOrUnderutilized"));
        }
        Some("WhenEmpty") if is_old && after.is_some() => notes.changed(
            "spec.disruption.consolidateAfter",
            "spec.disruption.consolidateAfter",
            "counts from the last pod that came or went, daemons excepted, and not from when the node became empty",
        ),
        _ => {}
    }
    expiry(object, is_old, notes);
    reasons(object, notes);
}

fn add_immediately(object: &mut Value, notes: &mut Notes) {
    notes.added(
        "spec.disruption.consolidateAfter",
        "0s: v1beta1 consolidated after a fixed time of 15s, which v1's own wait before every command is",
    );
    set(object, &["spec", "disruption", "consolidateAfter"], json!("0s"));
}

fn expiry(object: &mut Value, is_old: bool, notes: &mut Notes) {
    let became = "spec.template.spec.expireAfter";
    let field = "spec.disruption.expireAfter";
    let Some(value) = remove(object, &["spec", "disruption", "expireAfter"]) else {
        if is_old {
            notes.changed(
                "",
                became,
                "not written: 720h was the default and is; in v1 expiry waits neither for budgets nor for a replacement",
            );
        }
        return;
    };
    if let Some(own) = text(object, &["spec", "template", "spec", "expireAfter"]) {
        let text = format!("{own} stands there already and is what counts; {value} has no effect");
        notes.dropped(field, text);
        return;
    }
    let text = if is_old {
        "in v1 expiry waits neither for budgets nor for a replacement: the node is drained as soon as it is that old"
    } else {
        "v1 has it there: where it stood it had no effect, and nodes expired after 720h; expiry waits neither for budgets nor for a replacement"
    };
    notes.changed(field, became, text);
    set(object, &["spec", "template", "spec", "expireAfter"], value);
}

/// Documents show reasons in lower case, which is refused (§10.2, topic 8).
fn reasons(object: &mut Value, notes: &mut Notes) {
    let budgets = object
        .pointer_mut("/spec/disruption/budgets")
        .and_then(Value::as_array_mut);
    for (budget, value) in budgets.into_iter().flatten().enumerate() {
        let reasons = value.get_mut("reasons").and_then(Value::as_array_mut);
        for (index, reason) in reasons.into_iter().flatten().enumerate() {
            let named = ["Underutilized", "Empty", "Drifted"].into_iter().find(|name| {
                reason
                    .as_str()
                    .is_some_and(|text| text.eq_ignore_ascii_case(name))
            });
            if let Some(name) = named
                && reason != name
            {
                let path = format!("spec.disruption.budgets[{budget}].reasons[{index}]");
                notes.moved(&path, &path, format!("{reason} is spelled {name}"));
                *reason = json!(name);
            }
        }
    }
}

fn template(object: &mut Value, is_old: bool, context: &Context, notes: &mut Notes) {
    for place in ["labels", "annotations"] {
        let entries = object
            .pointer_mut(&format!("/spec/template/metadata/{place}"))
            .and_then(Value::as_object_mut);
        if let Some(entries) = entries {
            names::rename_keys(entries, &format!("spec.template.metadata.{place}"), notes);
        }
    }
    if !object["spec"].is_object() {
        notes.manual("spec", "expected a mapping");
        return;
    }
    class_reference(object, is_old, context, notes);
    if get(object, &["spec", "template", "spec", "requirements"]).is_none() {
        notes.added(
            "spec.template.spec.requirements",
            "an empty list, which v1 needs: any instance type",
        );
        set(object, &["spec", "template", "spec", "requirements"], json!([]));
    }
    let zero = get(object, &["spec", "weight"]) == Some(&json!(0));
    if zero {
        notes.dropped("spec.weight", "0 is the weight of a NodePool without one");
        remove(object, &["spec", "weight"]);
    }
}

/// `apiVersion`, `kind` and `name` of v1beta1 as `group`, `kind` and `name`.
pub(crate) fn class_reference(object: &mut Value, is_old: bool, context: &Context, notes: &mut Notes) {
    let path = if object["kind"] == "NodePool" {
        vec!["spec", "template", "spec", "nodeClassRef"]
    } else {
        vec!["spec", "nodeClassRef"]
    };
    let field = path.join(".");
    let Some(reference) = get(object, &path).cloned() else {
        if let Some(class) = context.class_for_want_of_one(&field, notes) {
            set(object, &path, class.value());
        }
        return;
    };
    if !reference.is_object() {
        return;
    }
    let group = match text(&reference, &["apiVersion"]) {
        Some(version) => version.split('/').next().map(str::to_owned),
        None => None,
    };
    let mut new = reference.clone();
    if let Some(map) = new.as_object_mut()
        && map.remove("apiVersion").is_some()
    {
        notes.moved(
            &format!("{field}.apiVersion"),
            &format!("{field}.group"),
            "the group without the version",
        );
    }
    if new["group"].is_null() && (is_old || group.is_some()) {
        if group.is_none() {
            notes.added(
                &format!("{field}.group"),
                "karpenter.k8s.aws, which was the default",
            );
        }
        new["group"] = json!(group.unwrap_or_else(|| ClassRef::AWS_GROUP.to_owned()));
    }
    if new["kind"].is_null() && is_old {
        let kind = if new["group"] == "karpenter.azure.com" {
            "AKSNodeClass"
        } else {
            ClassRef::AWS_KIND
        };
        notes.added(&format!("{field}.kind"), format!("{kind}, which was the default"));
        new["kind"] = json!(kind);
    }
    set(object, &path, new);
}
