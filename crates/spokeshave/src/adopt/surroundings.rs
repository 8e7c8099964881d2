//! Reads who runs a cluster today. What it does not show is written down: what nobody has looked at cannot be called fine.

use anyhow::Result;
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, Error};
use serde_json::Value;
use spokeshave_convert::Program;
use spokeshave_story::adopt::{Definition, Leader, NotExamined, OldObjects, Operator, Surroundings, Webhook};

use crate::plan::live;

/// API groups of Karpenter, and endings of those of its providers.
const GROUPS: [&str; 4] = [
    "karpenter.sh",
    "karpenter.k8s.aws",
    "karpenter.azure.com",
    "karpenter.kwok.sh",
];
/// Name of the Lease of operators, unless it was set otherwise.
const LEASE: &str = "karpenter-leader-election";

/// A kind that is listed, and what nobody knows without its objects.
#[derive(Clone, Copy)]
struct Kind {
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
    unknown: &'static str,
}

const DEPLOYMENTS: Kind = Kind {
    group: "apps",
    version: "v1",
    name: "Deployment",
    plural: "deployments",
    unknown: "whether Karpenter, cluster-autoscaler or karpenter-node-holder runs",
};
const LEASES: Kind = Kind {
    group: "coordination.k8s.io",
    version: "v1",
    name: "Lease",
    plural: "leases",
    unknown: "whether another operator leads",
};
const DEFINITIONS: Kind = Kind {
    group: "apiextensions.k8s.io",
    version: "v1",
    name: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    unknown: "whether the definitions of Karpenter's kinds are a blocker",
};
const WEBHOOKS: [Kind; 2] = [
    Kind {
        group: "admissionregistration.k8s.io",
        version: "v1",
        name: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        unknown: "whether a webhook of Karpenter's answers to writes",
    },
    Kind {
        group: "admissionregistration.k8s.io",
        version: "v1",
        name: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        unknown: "whether a webhook of Karpenter's changes what is written",
    },
];
/// Kinds that version 1 does not have.
const OLD_KINDS: [Kind; 3] = [
    old_kind("karpenter.sh", "v1alpha5", "Provisioner", "provisioners"),
    old_kind("karpenter.sh", "v1alpha5", "Machine", "machines"),
    old_kind(
        "karpenter.k8s.aws",
        "v1alpha1",
        "AWSNodeTemplate",
        "awsnodetemplates",
    ),
];
const INSTANCES: Kind = Kind {
    group: "kwok.spokeshave.dev",
    version: "v1alpha1",
    name: "KWOKInstance",
    plural: "kwokinstances",
    unknown: "whether the provider has records of the instances",
};

const fn old_kind(
    group: &'static str,
    version: &'static str,
    name: &'static str,
    plural: &'static str,
) -> Kind {
    Kind {
        group,
        version,
        name,
        plural,
        unknown: "whether there are objects of a version that is no longer read",
    }
}

impl Kind {
    /// `deployments.apps`, the name of its definition as well.
    fn resource(self) -> String {
        format!("{}.{}", self.plural, self.group)
    }
}

/// Who runs the cluster, and, if they are asked for, the instances of which the kwok provider has records there; `None` where nobody knows them.
///
/// # Errors
/// The cluster does not answer any more.
pub(crate) async fn read(
    client: &Client,
    wants_instances: bool,
) -> Result<(Surroundings, Option<Vec<String>>)> {
    let mut reader = Reader {
        client,
        definitions: None,
        not_examined: Vec::new(),
    };
    reader.definitions = reader.list(DEFINITIONS).await?;
    let deployments = reader.list(DEPLOYMENTS).await?.unwrap_or_default();
    let leases = reader.list(LEASES).await?.unwrap_or_default();
    let mut webhooks = Vec::new();
    for kind in WEBHOOKS {
        let found = reader.list(kind).await?.unwrap_or_default();
        webhooks.extend(found.iter().filter_map(|object| webhook(kind.name, object)));
    }
    let mut old_objects = Vec::new();
    for kind in OLD_KINDS {
        let found = reader.list_defined(kind).await?.unwrap_or_default();
        if !found.is_empty() {
            old_objects.push(OldObjects {
                kind: kind.name.to_owned(),
                version: format!("{}/{}", kind.group, kind.version),
                names: found.iter().map(name).collect(),
                source: "--live",
            });
        }
    }
    let instances = match wants_instances {
        true => reader.instances().await?,
        false => None,
    };
    let running_of = |program: Program| -> Vec<String> {
        let running = deployments.iter().filter_map(|one| running(program, one));
        running.collect()
    };
    let definitions = reader.definitions.as_ref();
    let surroundings = Surroundings {
        operators: deployments.iter().filter_map(operator).collect(),
        autoscalers: running_of(Program::ClusterAutoscaler),
        holders: running_of(Program::NodeHolder),
        leaders: leases.iter().filter_map(leader).collect(),
        definitions: definitions.map(|all| all.iter().filter_map(definition).collect()),
        webhooks,
        old_objects,
        not_examined: reader.not_examined,
    };
    Ok((surroundings, instances))
}

struct Reader<'a> {
    client: &'a Client,
    /// CustomResourceDefinitions; `None` where the cluster does not show any.
    definitions: Option<Vec<Value>>,
    not_examined: Vec<NotExamined>,
}

impl Reader<'_> {
    /// Names of the instances of which the kwok provider has records; `None` where the cluster does not show them.
    async fn instances(&mut self) -> Result<Option<Vec<String>>> {
        let found = self.list_defined(INSTANCES).await?;
        let resource = INSTANCES.resource();
        let is_refused = self.not_examined.iter().any(|one| one.resource == resource);
        Ok((!is_refused).then(|| found.iter().flatten().map(name).collect()))
    }

    /// The same as [`Self::list`], of a kind that needs a definition: where there is none, a cluster refuses whoever has no right to it all the same.
    async fn list_defined(&mut self, kind: Kind) -> Result<Option<Vec<Value>>> {
        let resource = kind.resource();
        let is_absent = |all: &Vec<Value>| !all.iter().any(|one| name(one) == resource);
        if self.definitions.as_ref().is_some_and(is_absent) {
            return Ok(None);
        }
        self.list(kind).await
    }

    /// All objects of a kind; `None` where the cluster does not have the kind, or does not show it, which is written down.
    async fn list(&mut self, kind: Kind) -> Result<Option<Vec<Value>>> {
        let known = GroupVersionKind::gvk(kind.group, kind.version, kind.name);
        let resource = ApiResource::from_gvk_with_plural(&known, kind.plural);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let found = api.list(&ListParams::default()).await;
        let is_forbidden = found.as_ref().is_err_and(live::is_refused);
        match found {
            Ok(found) => {
                let values: Result<Vec<Value>, _> = found.items.iter().map(serde_json::to_value).collect();
                Ok(Some(values?))
            }
            Err(Error::Api(status)) if status.code == 404 => Ok(None),
            Err(Error::Api(status)) => {
                let why = match status.message.as_str() {
                    "" => format!("the API server answers {}", status.code),
                    message => message.to_owned(),
                };
                self.not_examined.push(NotExamined {
                    resource: kind.resource(),
                    unknown: kind.unknown,
                    why,
                    is_forbidden,
                });
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

/// A Deployment of Karpenter's operator.
fn operator(object: &Value) -> Option<Operator> {
    let image = Program::Karpenter.image_in(object)?;
    Some(Operator {
        namespace: text(&object["metadata"]["namespace"]),
        name: name(object),
        replicas: usize::try_from(object["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(1),
        image: image.to_owned(),
    })
}

/// A Deployment of a program that has replicas, as `namespace/name`.
fn running(program: Program, object: &Value) -> Option<String> {
    let runs = object["spec"]["replicas"].as_u64() != Some(0);
    let namespace = text(&object["metadata"]["namespace"]);
    (runs && program.is_run_by(object)).then(|| format!("{namespace}/{}", name(object)))
}

fn leader(object: &Value) -> Option<Leader> {
    let spec = &object["spec"];
    (name(object) == LEASE).then(|| Leader {
        namespace: text(&object["metadata"]["namespace"]),
        name: name(object),
        holder: text(&spec["holderIdentity"]),
        renewed_at: spec["renewTime"]
            .as_str()
            .and_then(|time| time.parse::<Timestamp>().ok()),
        duration_seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or(15),
    })
}

fn definition(object: &Value) -> Option<Definition> {
    let spec = &object["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    if !GROUPS.contains(&group) {
        return None;
    }
    let versions = spec["versions"].as_array().into_iter().flatten();
    let release = &object["metadata"]["annotations"]["meta.helm.sh/release-name"];
    Some(Definition {
        name: name(object),
        served: versions
            .filter(|version| version["served"] == true)
            .map(|version| text(&version["name"]))
            .collect(),
        stored: texts(&object["status"]["storedVersions"]),
        has_conversion_webhook: spec["conversion"]["strategy"] == "Webhook",
        release: release.as_str().map(str::to_owned),
    })
}

fn webhook(kind: &str, object: &Value) -> Option<Webhook> {
    let rules = object["webhooks"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|webhook| webhook["rules"].as_array().into_iter().flatten());
    let mut groups: Vec<String> = rules
        .flat_map(|rule| texts(&rule["apiGroups"]))
        .filter(|group| GROUPS.contains(&group.as_str()))
        .collect();
    groups.sort();
    groups.dedup();
    (!groups.is_empty()).then(|| Webhook {
        kind: kind.to_owned(),
        name: name(object),
        groups,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(label: &str, images: &[&str]) -> Value {
        let containers: Vec<Value> = images.iter().map(|image| json!({"image": image})).collect();
        json!({"metadata": {"name": "k", "namespace": "kube-system", "labels": {"app.kubernetes.io/name": label}},
            "spec": {"replicas": 2, "template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn karpenter_is_known_by_label_or_image_and_ours_is_not_it() {
        let of = |label: &str, image: &str| operator(&deployment(label, &[image]));
        assert_eq!(
            of("karpenter", "registry.example/a").map(|one| one.replicas),
            Some(2)
        );
        assert!(of("autoscaler", "public.ecr.aws/karpenter/controller:1.14.0").is_some());
        assert!(of("karpenter", "registry.example/spokeshave:1").is_none());
        assert!(of("web", "nginx").is_none());
        let mirrored = "registry.example:5000/mirror/karpenter/controller@sha256:0a";
        let image = operator(&deployment("a", &["sidecar:1", mirrored])).map(|one| one.image);
        assert_eq!(image.as_deref(), Some(mirrored), "behind a sidecar");
    }

    #[test]
    fn what_keeps_or_launches_nodes_is_known_by_its_variables_or_words_and_counts_while_it_runs() {
        let mirrored = |more: Value| {
            let mut deployment = deployment("web", &["registry.example/platform/nodes-7:2"]);
            json_patch::merge(
                &mut deployment["spec"]["template"]["spec"]["containers"][0],
                &more,
            );
            deployment
        };
        let holds = mirrored(json!({"env": [{"name": "HOLD_DURATION", "value": "15"}]}));
        let scales = mirrored(json!({"command": ["./cluster-autoscaler", "--v=4"]}));
        for (program, there) in [(Program::NodeHolder, holds), (Program::ClusterAutoscaler, scales)] {
            assert_eq!(operator(&there), None);
            assert_eq!(running(program, &there).as_deref(), Some("kube-system/k"));
            let mut stopped = there;
            stopped["spec"]["replicas"] = json!(0);
            assert_eq!(running(program, &stopped), None);
            assert_eq!(running(program, &deployment("web", &["nginx"])), None);
        }
    }

    #[test]
    fn definitions_of_others_are_not_looked_at() {
        let of = |group: &str| {
            definition(
                &json!({"metadata": {"name": "a", "annotations": {"meta.helm.sh/release-name": "karpenter-crd"}},
                "spec": {"group": group, "conversion": {"strategy": "Webhook"}, "versions": [{"name": "v1", "served": true}, {"name": "v1beta1", "served": false}]},
                "status": {"storedVersions": ["v1beta1", "v1"]}}),
            )
        };
        let found = of("karpenter.sh").expect("a definition");
        assert_eq!(
            (found.served.as_slice(), found.stored.len()),
            (&["v1".to_owned()][..], 2)
        );
        assert!(found.has_conversion_webhook && found.release.as_deref() == Some("karpenter-crd"));
        assert_eq!(of("example.com"), None);
    }

    #[test]
    fn webhooks_count_when_a_rule_names_a_group_of_karpenter() {
        let of = |group: &str| {
            webhook(
                "V",
                &json!({"metadata": {"name": "w"}, "webhooks": [{"rules": [{"apiGroups": [group, "apps"]}]}]}),
            )
        };
        assert_eq!(
            of("karpenter.sh").map(|one| one.groups),
            Some(vec!["karpenter.sh".to_owned()])
        );
        assert_eq!(of("apps"), None);
    }
}
