//! What may change in a pod: little through the resource itself, resources through `resize`, debugging containers through `ephemeralcontainers`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::keeping::{copy, copy_node_affinity};
use super::pod_template::quality_of_service;
use super::{placement, pod_template};
use crate::cause::Cause;
use crate::checks::{items, text};

/// Lists of the containers that a pod is made of.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
/// Metadata that no part of a pod's spec is written with.
const METADATA: [&str; 4] = ["annotations", "finalizers", "labels", "ownerReferences"];
const SPEC: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const TERMS: &str =
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";

/// What is wrong with a change of the spec through the resource itself.
pub(super) fn check(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    for list in CONTAINERS {
        if items(&new[list]).len() != items(&old[list]).len() {
            causes.push(Cause::forbidden(
                format_args!("spec.{list}"),
                "pod updates may not add or remove containers",
            ));
            return;
        }
    }
    deadline(
        &new["activeDeadlineSeconds"],
        &old["activeDeadlineSeconds"],
        causes,
    );
    tolerations(&new["tolerations"], &old["tolerations"], causes);
    gates(&new["schedulingGates"], &old["schedulingGates"], causes);
    let mut rest = with_changeable_fields_of(old, new);
    // A pod behind a gate may still be told where not to run.
    if !items(&old["schedulingGates"]).is_empty() {
        node_selector(&rest["nodeSelector"], &old["nodeSelector"], causes);
        copy("nodeSelector", old, &mut rest);
        node_affinity(&rest["affinity"], &old["affinity"], causes);
        copy_node_affinity(old, &mut rest);
    }
    if rest != *old {
        causes.push(Cause::forbidden("spec", SPEC));
    }
}

/// The new spec with the old values of what may change, within limits of its own.
fn with_changeable_fields_of(old: &Value, new: &Value) -> Value {
    let mut rest = new.clone();
    for list in CONTAINERS {
        let containers = rest.get_mut(list).and_then(Value::as_array_mut);
        for (container, old) in containers.into_iter().flatten().zip(items(&old[list])) {
            copy("image", old, container);
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        copy(field, old, &mut rest);
    }
    let grace = |spec: &Value| spec["terminationGracePeriodSeconds"].as_i64();
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(new) == Some(1) {
        copy("terminationGracePeriodSeconds", old, &mut rest);
    }
    rest
}

/// It may come, and become shorter.
fn deadline(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let problem = match (old.as_i64(), new.as_i64()) {
        (Some(before), Some(after)) if before < after => "must be less than or equal to previous value",
        (Some(_), None) => "must not update from a positive integer to nil value",
        _ => return,
    };
    causes.push(Cause::invalid("spec.activeDeadlineSeconds", new, problem));
}

/// Those that there are stay, but for their seconds.
fn tolerations(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let is_same = |one: &Value, other: &Value| {
        let fields = ["key", "operator", "value", "effect"];
        fields.iter().all(|field| one[*field] == other[*field])
    };
    let stays = |old: &Value| items(new).iter().any(|new| is_same(new, old));
    if items(old).iter().all(stays) {
        // A real server checks them once more.
        placement::tolerations(new, &"spec.tolerations", causes);
    } else {
        causes.push(Cause::forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        ));
    }
}

/// They are only opened.
fn gates(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    for (index, gate) in items(new).iter().enumerate() {
        let name = &gate["name"];
        if items(old).iter().all(|known| known["name"] != *name) {
            let name = text(name);
            causes.push(Cause::forbidden(
                format_args!("spec.schedulingGates[{index}].name"),
                &format!("only deletion is allowed, but found new scheduling gate '{name}'"),
            ));
        }
    }
}

fn node_selector(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let mut labels = old.as_object().into_iter().flatten();
    if labels.any(|(key, value)| new[key] != *value) {
        causes.push(Cause::invalid(
            "spec.nodeSelector",
            new,
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        ));
    }
}

/// Each term that a node must satisfy may ask for more.
fn node_affinity(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let terms = required_terms(new);
    let (after, before) = (items(terms), items(required_terms(old)));
    if before.is_empty() {
        return;
    }
    if after.len() != before.len() {
        causes.push(Cause::invalid(
            TERMS,
            terms,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        ));
        return;
    }
    for (index, (new, old)) in after.iter().zip(before).enumerate() {
        if !has_only_additions(new, old) {
            causes.push(Cause::invalid(
                format_args!("{TERMS}[{index}]"),
                new,
                "only additions are allowed (no mutations or deletions)",
            ));
        }
    }
}

fn required_terms(affinity: &Value) -> &Value {
    &affinity["nodeAffinity"][placement::REQUIRED]["nodeSelectorTerms"]
}

fn has_only_additions(new: &Value, old: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    // A term without requirements matches no node, and one that got some would match more.
    if lists.iter().all(|list| items(&old[*list]).is_empty()) {
        return lists.iter().all(|list| items(&new[*list]).is_empty());
    }
    lists
        .iter()
        .all(|list| items(&new[*list]).starts_with(items(&old[*list])))
}

/// Puts back all that is not written through a subresource.
pub(super) fn keep(subresource: &str, old: &Value, object: &mut Value) {
    let spec = match subresource {
        "resize" if !has_same_containers(&object["spec"], &old["spec"]) => return,
        "resize" => with_resources_of(&object["spec"], &old["spec"]),
        "ephemeralcontainers" => {
            let mut spec = old["spec"].clone();
            copy("ephemeralContainers", &object["spec"], &mut spec);
            spec
        }
        _ => return,
    };
    object["spec"] = spec;
    for field in METADATA {
        copy(field, &old["metadata"], &mut object["metadata"]);
    }
}

fn has_same_containers(one: &Value, other: &Value) -> bool {
    CONTAINERS
        .iter()
        .all(|list| names(&one[*list]).eq(names(&other[*list])))
}

fn names(containers: &Value) -> impl Iterator<Item = &str> {
    items(containers).iter().map(|container| text(&container["name"]))
}

/// The old spec with the resources of the new one, which has the same containers.
fn with_resources_of(new: &Value, old: &Value) -> Value {
    let mut spec = old.clone();
    copy("resources", new, &mut spec);
    for list in CONTAINERS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for (container, new) in containers.into_iter().flatten().zip(items(&new[list])) {
            copy("resources", new, container);
            copy("resizePolicy", new, container);
        }
    }
    spec
}

/// What is wrong with a change through a subresource.
pub(super) fn check_part(subresource: &str, new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    if new == old {
        return;
    }
    pod_template::check(new, "spec", causes);
    if subresource == "resize" {
        check_resize(new, old, causes);
    } else {
        check_ephemeral(new, old, causes);
    }
}

/// Containers for debugging come, and stay as they are.
fn check_ephemeral(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let list = "ephemeralContainers";
    for known in items(&old[list]) {
        let name = text(&known["name"]);
        let found = items(&new[list]).iter().find(|one| one["name"] == known["name"]);
        let problem = match found {
            None => "removed\n",
            Some(found) if found != known => "changed",
            Some(_) => continue,
        };
        causes.push(Cause::forbidden(
            format_args!("spec.{list}"),
            &format!("existing ephemeral containers {name:?} may not be {problem}"),
        ));
    }
}

/// Of the resources, processor and memory change, as long as the pod's quality of service stays as it is.
fn check_resize(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let quality = quality_of_service(old);
    if quality_of_service(new) != quality {
        causes.push(Cause::invalid(
            "spec",
            &Value::from(quality),
            "Pod QOS Class may not change as a result of resizing",
        ));
    }
    let before = causes.len();
    for list in CONTAINERS {
        same_containers(list, items(&new[list]), items(&old[list]), causes);
    }
    if causes.len() > before {
        return;
    }
    resources_stay(new, old, "spec.resources", "pod-level resource", causes);
    if others(new) != others(old) {
        causes.push(Cause::forbidden(
            "spec",
            "only cpu and memory resources are mutable at pod-level",
        ));
    }
    for list in CONTAINERS {
        for (index, (new, old)) in items(&new[list]).iter().zip(items(&old[list])).enumerate() {
            let here = format!("spec.{list}[{index}]");
            resources_stay(new, old, &format!("{here}.resources"), "resource", causes);
            if others(new) == others(old) && new["resizePolicy"] == old["resizePolicy"] {
                continue;
            }
            causes.push(match list {
                "containers" => Cause::forbidden("spec", "only cpu and memory resources are mutable"),
                _ => Cause::forbidden(
                    here,
                    "only cpu and memory resources for init or sidecar containers are mutable",
                ),
            });
        }
    }
}

/// The amounts of a container, or of a pod as a whole, but for processor and memory: list, name and amount.
fn others(holder: &Value) -> BTreeMap<(&'static str, &str), &Value> {
    let lists = ["requests", "limits"].into_iter();
    let amounts = lists.flat_map(|list| {
        let amounts = holder["resources"][list].as_object().into_iter().flatten();
        amounts.map(move |(name, amount)| ((list, name.as_str()), amount))
    });
    amounts
        .filter(|((_, name), _)| !matches!(*name, "cpu" | "memory"))
        .collect()
}

fn same_containers(list: &str, new: &[Value], old: &[Value], causes: &mut Vec<Cause>) {
    if new.len() != old.len() {
        causes.push(Cause::forbidden(
            format_args!("spec.{list}"),
            &format!("{list} may not be added or removed on resize"),
        ));
        return;
    }
    for (index, (new, old)) in new.iter().zip(old).enumerate() {
        if new["name"] != old["name"] {
            causes.push(Cause::forbidden(
                format_args!("spec.{list}[{index}].name"),
                &format!("{list} may not be renamed or reordered on resize"),
            ));
        }
    }
}

/// No request and no limit goes.
fn resources_stay(new: &Value, old: &Value, here: &str, what: &str, causes: &mut Vec<Cause>) {
    for list in ["requests", "limits"] {
        let mut known = old["resources"][list].as_object().into_iter().flatten();
        if known.any(|(name, _)| new["resources"][list][name].is_null()) {
            causes.push(Cause::forbidden(
                format_args!("{here}.{list}"),
                &format!("{what} {list} cannot be removed"),
            ));
        }
    }
}
