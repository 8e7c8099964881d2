//! How controllers make and delete pods, and what they tell of it.

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use spokeshave_runtime::{Api, ObjectKey, ReconcileError};

use super::claims::Claimant;
use crate::objects::{is_deleting, is_ready, name, namespace, node_of, phase, uid};
use crate::world::{World, deletion_of, is_namespace_ending, is_race, said};

/// What a controller does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Create,
    Delete,
}

/// Reason and message as most controllers have them.
pub(super) fn usual(deed: Deed, pod: &str, problem: Option<&str>) -> (&'static str, String) {
    match (deed, problem) {
        (Deed::Create, None) => ("SuccessfulCreate", format!("Created pod: {pod}")),
        (Deed::Delete, None) => ("SuccessfulDelete", format!("Deleted pod: {pod}")),
        (Deed::Create, Some(problem)) => ("FailedCreate", format!("Error creating: {problem}")),
        (Deed::Delete, Some(problem)) => ("FailedDelete", format!("Error deleting: {problem}")),
    }
}

/// Reason and message as those of StatefulSets have them.
pub(super) fn of_a_stateful_set(
    deed: Deed,
    set: &str,
    pod: &str,
    problem: Option<&str>,
) -> (&'static str, String) {
    let (reason, _) = usual(deed, pod, problem);
    let end = problem.map_or_else(
        || "successful".to_owned(),
        |problem| format!("failed error: {problem}"),
    );
    (reason, format!("{deed:?} Pod {pod} in StatefulSet {set} {end}"))
}

/// A pod of a controller from a template.
pub(super) fn pod_of<C: Claimant>(claimant: &C, template: &PodTemplateSpec) -> Pod {
    let metadata = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            namespace: Some(namespace(claimant.meta()).to_owned()),
            labels: metadata.labels,
            annotations: metadata.annotations,
            finalizers: metadata.finalizers,
            owner_references: Some(vec![claimant.reference()]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Makes a pod of a controller. Its name may be taken and its namespace on its way out: then there is nothing to do but to wait.
pub(super) async fn create_pod<C: Claimant>(
    world: &World,
    claimant: &C,
    pod: &Pod,
) -> Result<(), ReconcileError> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace(&pod.metadata));
    match api.create(&PostParams::default(), pod).await {
        Ok(created) => {
            let made = name(&created.metadata).to_owned();
            world.pods.note_written(created);
            tell(world, claimant, Deed::Create, &made, None).await;
            Ok(())
        }
        Err(error) if is_race(&error) || is_namespace_ending(&error) => Ok(()),
        Err(error) => {
            let problem = refusal(&error, pod);
            tell(world, claimant, Deed::Create, name(&pod.metadata), Some(&problem)).await;
            Err(problem.into())
        }
    }
}

/// Why a pod cannot be made. The name that was drawn for it is left out: it is another one with each attempt, and says nothing.
fn refusal(error: &kube::Error, pod: &Pod) -> String {
    let text = said(error);
    let (Some(prefix), kube::Error::Api(status)) = (&pod.metadata.generate_name, error) else {
        return text;
    };
    let named = status.details.as_ref().map(|details| details.name.as_str());
    match named.filter(|named| named.starts_with(prefix.as_str())) {
        Some(drawn) => text.replace(drawn, prefix),
        None => text,
    }
}

/// How far a pod has come; whoever has a pod too many does without one that has not come far: unassigned before assigned, pending before running, not ready before
/// ready.
pub(super) fn standing(pod: &Pod) -> (bool, bool, bool) {
    (!node_of(pod).is_empty(), phase(pod) == "Running", is_ready(pod))
}

/// Deletes a pod of a controller.
pub(super) async fn delete_pod<C: Claimant>(
    world: &World,
    claimant: &C,
    pod: &Pod,
) -> Result<(), ReconcileError> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), namespace(&pod.metadata));
    let parameters = deletion_of(&pod.metadata, None);
    match api.delete(name(&pod.metadata), &parameters).await {
        Ok(answer) => {
            match answer.left() {
                Some(going)
                    if is_deleting(&going.metadata)
                        && going.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0 =>
                {
                    world.pods.note_written(going)
                }
                _ => world.pods.note_gone(&ObjectKey::of(pod), uid(&pod.metadata)),
            }
            tell(world, claimant, Deed::Delete, name(&pod.metadata), None).await;
            Ok(())
        }
        Err(error) if is_race(&error) => Ok(()),
        Err(error) => {
            let problem = said(&error);
            tell(world, claimant, Deed::Delete, name(&pod.metadata), Some(&problem)).await;
            Err(problem.into())
        }
    }
}

async fn tell<C: Claimant>(world: &World, claimant: &C, deed: Deed, pod: &str, problem: Option<&str>) {
    let (reason, message) = claimant.words(deed, pod, problem);
    if problem.is_some() {
        let event = ("Warning", reason, message.as_str());
        world.note(C::COMPONENT, claimant, event).await;
    } else {
        world.record(C::COMPONENT, claimant, reason, &message).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_controller_tells_in_its_own_words() {
        let told = usual(Deed::Create, "web-1", None);
        assert_eq!(told, ("SuccessfulCreate", "Created pod: web-1".to_owned()));
        let told = usual(Deed::Delete, "web-1", Some("no"));
        assert_eq!(told, ("FailedDelete", "Error deleting: no".to_owned()));
        let (reason, message) = of_a_stateful_set(Deed::Delete, "db", "db-0", None);
        assert_eq!(reason, "SuccessfulDelete");
        assert_eq!(message, "Delete Pod db-0 in StatefulSet db successful");
        let (reason, message) = of_a_stateful_set(Deed::Create, "db", "db-0", Some("no"));
        assert_eq!(reason, "FailedCreate");
        assert_eq!(message, "Create Pod db-0 in StatefulSet db failed error: no");
    }

    #[test]
    fn a_name_that_was_drawn_is_no_part_of_a_refusal() {
        let status = serde_json::json!({
            "code": 403, "message": "pods \"web-x7k2p\" is forbidden: no", "details": {"name": "web-x7k2p"},
        });
        let error = kube::Error::Api(serde_json::from_value(status).unwrap());
        let mut pod = Pod::default();
        pod.metadata.generate_name = Some("web-".to_owned());
        assert_eq!(refusal(&error, &pod), "pods \"web-\" is forbidden: no");
        pod.metadata.generate_name = None;
        assert_eq!(refusal(&error, &pod), "pods \"web-x7k2p\" is forbidden: no");
    }
}
