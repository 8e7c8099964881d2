//! NodePool of `karpenter.sh/v1beta1` as v1; and a NodePool of v1 whose fields stand where an older version had them, which documents of v1beta1
//! and of AKS still show (D-377, D-381).

use serde_json::{Value, json};

use crate::class_ref::ClassRef;
use crate::fields::{get, remove, set, text};
use crate::report::Notes;
use crate::{Context, Kubelet, World, kubelet, metadata, names};

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
    let settings = kubelet::of_pool(&mut object, is_old, notes);
    disruption(&mut object, is_old, notes);
    template(&mut object, is_old, context, notes);
    let output = world.push(object, notes);
    if let Some((field, value)) = settings {
        world.kubelets.push(Kubelet { output, field, value });
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
            match &after {
                None => add_immediately(object, notes),
                // How consolidation was switched off, and is.
                Some(after) if after == "Never" => {}
                Some(_) => notes.manual(
                    "spec.disruption.consolidateAfter",
                    "v1beta1 refused it with consolidationPolicy WhenUnderutilized, which was the default; in v1 it counts from the last pod that came or went",
                ),
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
    if let Some(group) = group
        && new["group"].is_null()
    {
        new["group"] = json!(group);
    }
    if is_old {
        complete(&mut new, &field, object, context, notes);
    }
    set(object, &path, new);
}

/// Writes the group and the kind, which v1beta1 could leave to the cloud for which Karpenter was built.
fn complete(reference: &mut Value, field: &str, object: &Value, context: &Context, notes: &mut Notes) {
    let lacking: Vec<&str> = ["group", "kind"]
        .into_iter()
        .filter(|key| reference[*key].is_null())
        .collect();
    if lacking.is_empty() {
        return;
    }
    let found = meant(reference, object, context);
    if found.is_none() && lacking.len() == 1 {
        notes.manual(
            &format!("{field}.{}", lacking[0]),
            "v1 needs it, and nothing tells what it was: convert with the class among the files, or with --node-class GROUP/KIND/NAME",
        );
        return;
    }
    let is_certain = found.is_some();
    let class = found.unwrap_or_else(|| ClassRef::aws(""));
    if !is_certain {
        notes.changed(
            "",
            field,
            format!(
                "{} of {}, the default on AWS, and nothing tells that it was AWS: convert with the class among the files, or with --node-class GROUP/KIND/NAME",
                class.kind, class.group
            ),
        );
    }
    for (key, value) in [("group", class.group), ("kind", class.kind)] {
        if !reference[key].is_null() {
            continue;
        }
        if is_certain {
            notes.added(
                &format!("{field}.{key}"),
                format!("{value}, which was the default"),
            );
        }
        reference[key] = json!(value);
    }
}

/// The class that a reference without group or kind means, or another of its kind; none if nothing tells.
fn meant(reference: &Value, object: &Value, context: &Context) -> Option<ClassRef> {
    let is = |key: &str, value: &str| reference[key].is_null() || reference[key] == value;
    let fits = |class: &ClassRef| is("group", &class.group) && is("kind", &class.kind);
    let name = text(reference, &["name"]).unwrap_or_default();
    let fitting: Vec<&ClassRef> = context.classes.iter().filter(|class| fits(class)).collect();
    let is_named = |class: &&ClassRef| class.name == name;
    let named: Vec<&ClassRef> = fitting.iter().copied().filter(is_named).collect();
    let has_half = !(reference["group"].is_null() && reference["kind"].is_null());
    let clouds = [ClassRef::aws(name), ClassRef::aks(name)];
    cloud_of_labels(object)
        .filter(fits)
        .or_else(|| of_one_kind(&named))
        .or_else(|| context.default_class.clone().filter(fits))
        .or_else(|| of_one_kind(&fitting))
        .or_else(|| {
            clouds
                .into_iter()
                .find(|class| (has_half || context.is_aws) && fits(class))
        })
}

/// The first of several classes, if all are of one kind.
fn of_one_kind(classes: &[&ClassRef]) -> Option<ClassRef> {
    let first = *classes.first()?;
    let is_same = |class: &&ClassRef| (&class.group, &class.kind) == (&first.group, &first.kind);
    classes.iter().all(is_same).then(|| first.clone())
}

/// The cloud whose labels a NodePool or NodeClaim names.
fn cloud_of_labels(object: &Value) -> Option<ClassRef> {
    let mut keys: Vec<&str> = Vec::new();
    for path in ["/spec/template/spec/requirements", "/spec/requirements"] {
        let requirements = object.pointer(path).and_then(Value::as_array);
        let named = requirements.into_iter().flatten();
        keys.extend(named.filter_map(|requirement| requirement["key"].as_str()));
    }
    for path in ["/spec/template/metadata/labels", "/metadata/labels"] {
        let labels = object.pointer(path).and_then(Value::as_object);
        keys.extend(labels.into_iter().flatten().map(|(key, _)| key.as_str()));
    }
    let names = |class: &ClassRef| {
        let mut domains = keys.iter().filter_map(|key| key.split_once('/'));
        domains.any(|(domain, _)| domain == class.group)
    };
    let (aws, aks) = (ClassRef::aws(""), ClassRef::aks(""));
    match (names(&aws), names(&aks)) {
        (true, false) => Some(aws),
        (false, true) => Some(aks),
        _ => None,
    }
}
