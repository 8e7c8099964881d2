//! The pods of generated workloads, judged as an API server would: the embedded one is asked to make one of each, and keeps none. Nor may they name a node.
//!
//! Owns the way from a field of the pod back to the one of the scenario. What is wrong with a pod is that server's business.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use spokeshave_apiserver::{ApiServer, Config};
use spokeshave_scenario::pods;
use spokeshave_scenario::workload::{Kind, Workload};

use super::document::{Document, Wrong};

/// Refuses workloads with pods that an API server would refuse.
///
/// # Errors
/// [`Wrong`], with each field that is wrong.
pub(crate) async fn refuse_wrong(document: &Document) -> Result<(), Wrong> {
    let scenario = &document.scenario;
    let start = scenario.start;
    let server = ApiServer::new(Config::new(Arc::new(move || start), 1));
    let api: Api<Pod> = Api::namespaced(Client::new(server.service(), "default"), "default");
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut problems = Vec::new();
    for (index, workload) in scenario.workloads.iter().enumerate() {
        let Some(pod) = pod(workload) else { continue };
        if let Some(node) = named_node(&pod) {
            let problem = format!(
                "the pods of workload {:?} would be on node {node:?} alone, and all nodes of a simulation are launched in it; expected no nodeName: nodeSelector says which nodes pods may run on",
                workload.name
            );
            let field = field_of(index, workload, "spec.nodeName");
            problems.extend(document.wrong(&field, problem).0);
            continue;
        }
        let Err(kube::Error::Api(status)) = api.create(&parameters, &pod).await else {
            continue;
        };
        for cause in status.details.iter().flat_map(|details| &details.causes) {
            let problem = format!(
                "the pods of workload {:?} would be refused by the API server: {}",
                workload.name, cause.message
            );
            let field = field_of(index, workload, &cause.field);
            problems.extend(document.wrong(&field, problem).0);
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Wrong(problems)),
    }
}

/// A pod of a workload's first owner; none of an import, whose pods a cluster has accepted.
fn pod(workload: &Workload) -> Option<Pod> {
    let template = pods::template(&workload.name, workload.shape.as_ref()?, 0);
    let mut spec = template.spec?;
    // Which PriorityClasses, RuntimeClasses and service accounts there are, no scenario says.
    (spec.priority_class_name, spec.priority, spec.preemption_policy) = (None, None, None);
    (spec.runtime_class_name, spec.overhead) = (None, None);
    (spec.service_account_name, spec.service_account) = (None, None);
    // Nothing is pulled.
    let image = spec
        .containers
        .first()
        .and_then(|container| container.image.clone());
    for container in spec.init_containers.iter_mut().flatten() {
        container.image = container.image.take().or_else(|| image.clone());
    }
    Some(Pod {
        metadata: ObjectMeta {
            name: Some(workload.name.clone()),
            ..template.metadata.unwrap_or_default()
        },
        spec: Some(spec),
        status: None,
    })
}

/// The node that a pod is on before any scheduler has seen it.
fn named_node(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref();
    node.filter(|node| !node.is_empty())
}

/// The field of the scenario from which a field of the pod comes.
fn field_of(index: usize, workload: &Workload, field: &str) -> String {
    let kind = match workload.kind {
        Kind::Deployments { .. } => "deployments",
        Kind::StatefulSets { .. } => "statefulSets",
        Kind::Jobs { .. } => "jobs",
        Kind::Import(_) => "import",
    };
    let inner = match field.strip_prefix("spec.") {
        // A field of its own, beside `pod`.
        Some("nodeSelector") => "nodeSelector".to_owned(),
        Some(field) => format!("pod.{field}"),
        None => field.trim_start_matches("metadata.").to_owned(),
    };
    format!("spec.workloads[{index}].{kind}.{inner}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pods_that_name_a_node_are_refused_at_their_line() {
        let text = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: named}
spec:
  start: 2026-03-02T00:00:00Z
  duration: 2h
  seeds: 1
  cluster: {manifests: [pools.yaml]}
  workloads:
  - name: web
    deployments:
      cpu: 1
      memory: 1Gi
      pod:
        nodeName: n1
    replicas: 3
  policies:
  - {name: now}
";
        let document = Document::parse("x.yaml", text).unwrap_or_else(|wrong| panic!("{wrong}"));
        let Err(Wrong(problems)) = refuse_wrong(&document).await else {
            panic!("it is taken");
        };
        let [problem] = &problems[..] else {
            panic!("{problems:?}");
        };
        let expected = "x.yaml:15: spec.workloads[0].deployments.pod.nodeName: the pods of workload \"web\" would be on node \"n1\" alone";
        assert!(problem.starts_with(expected), "{problem}");
        let elsewhere = text.replace("nodeName: n1", "tolerations: [{key: team, operator: Exists}]");
        let document = Document::parse("x.yaml", &elsewhere).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(refuse_wrong(&document).await.is_ok());
    }
}
