//! Machine (`karpenter.sh/v1alpha5`) and NodeClaim of v1beta1 as NodeClaim of v1.

use serde_json::{Value, json};

use crate::class_ref::ClassRef;
use crate::fields::{Fields, remove, set, set_some, text};
use crate::report::Notes;
use crate::{Context, World, metadata, node_pool};

const NOT_FOR_APPLY: &str = "of use for `spokeshave plan -f`; applied to a cluster it would launch a node, which is what NodePools are for";

/// Converts one Machine.
pub(crate) fn from_machine(object: Value, world: &mut World, notes: &mut Notes) {
    let mut fields = Fields::of("", object, notes);
    fields.take("apiVersion");
    fields.take("kind");
    let meta = metadata::converted(fields.take("metadata").unwrap_or_default(), notes);
    let mut claim = json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": meta,
        "spec": {"requirements": []},
    });
    if let Some(mut spec) = fields.nested("spec", notes) {
        for key in ["taints", "startupTaints", "requirements", "resources"] {
            set_some(&mut claim, &["spec", key], spec.take(key));
        }
        rename_requirements(&mut claim, notes);
        if let Some(mut template) = spec.nested("machineTemplateRef", notes) {
            let name = template.take("name").unwrap_or_default();
            template.take("apiVersion");
            template.take("kind");
            template.report_rest(notes);
            notes.moved("spec.machineTemplateRef", "spec.nodeClassRef", "EC2NodeClass");
            let class = ClassRef::aws(name.as_str().unwrap_or_default());
            set(&mut claim, &["spec", "nodeClassRef"], class.value());
        }
        drop_kubelet(spec.take("kubelet").as_ref(), notes);
        spec.report_rest(notes);
    }
    expiry_of_pool(&mut claim, world);
    if let Some(mut status) = fields.nested("status", notes) {
        for key in ["nodeName", "providerID", "capacity", "allocatable"] {
            set_some(&mut claim, &["status", key], status.take(key));
        }
        set_some(
            &mut claim,
            &["status", "conditions"],
            status.take("conditions").map(conditions),
        );
        status.report_rest(notes);
    }
    fields.report_rest(notes);
    notes.changed("", "NodeClaim", NOT_FOR_APPLY);
    world.push(claim, notes);
}

/// Converts one NodeClaim of v1beta1.
pub(crate) fn convert(mut object: Value, context: &Context, world: &mut World, notes: &mut Notes) {
    object["apiVersion"] = json!("karpenter.sh/v1");
    if let Some(meta) = remove(&mut object, &["metadata"]) {
        object["metadata"] = metadata::converted(meta, notes);
    }
    if object["spec"].is_object() {
        node_pool::class_reference(&mut object, true, context, notes);
        drop_kubelet(remove(&mut object, &["spec", "kubelet"]).as_ref(), notes);
        rename_requirements(&mut object, notes);
    }
    expiry_of_pool(&mut object, world);
    if let Some(found) = remove(&mut object, &["status", "conditions"]) {
        set(&mut object, &["status", "conditions"], conditions(found));
    }
    notes.changed("", "NodeClaim", NOT_FOR_APPLY);
    world.push(object, notes);
}

fn drop_kubelet(kubelet: Option<&Value>, notes: &mut Notes) {
    if kubelet.is_some() {
        notes.dropped(
            "spec.kubelet",
            "a node's kubelet is configured by its EC2NodeClass in v1",
        );
    }
}

/// A NodeClaim carries its expiry, which it has from its NodePool; marked here and filled in when all NodePools are known.
fn expiry_of_pool(claim: &mut Value, world: &mut World) {
    if text(claim, &["spec", "expireAfter"]).is_none() {
        world.claims_without_expiry.push(world.objects.len());
    }
}

/// A claim's own label may be required, under its present name.
fn rename_requirements(claim: &mut Value, notes: &mut Notes) {
    let requirements = claim
        .pointer_mut("/spec/requirements")
        .and_then(Value::as_array_mut);
    for (index, requirement) in requirements.into_iter().flatten().enumerate() {
        let new = requirement["key"].as_str().and_then(crate::names::label_in_v1);
        if let Some(new) = new {
            let path = format!("spec.requirements[{index}].key");
            notes.moved(&path, &path, "another name");
            requirement["key"] = json!(new);
        }
    }
}

/// Conditions by their names in v1; without severity, which v1 does not have, and without those that v1 does not have.
fn conditions(value: Value) -> Value {
    let Value::Array(items) = value else {
        return json!([]);
    };
    let kept = items.into_iter().filter_map(|mut condition| {
        let kind = condition["type"].as_str()?;
        let kind = kind.strip_prefix("Machine").unwrap_or(kind).to_owned();
        if matches!(kind.as_str(), "Empty" | "Expired") {
            return None;
        }
        condition["type"] = json!(kind);
        if let Some(map) = condition.as_object_mut() {
            map.remove("severity");
        }
        Some(condition)
    });
    Value::Array(kept.collect())
}
