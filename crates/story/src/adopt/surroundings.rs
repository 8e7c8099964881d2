//! Who runs the cluster today: operators, Leases, definitions, webhooks, and objects of older versions; and which of these nobody could look at.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use spokeshave_api::crds::{Cloud, crd_values_of};

use super::{Successor, some};
use crate::doctor::{Finding, Level};
use spokeshave_plan::report::{count, some_of};

/// The other objects of the cluster, as far as they could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Deployments that run Karpenter.
    pub operators: Vec<Operator>,
    /// Deployments of cluster-autoscaler that run, as `namespace/name`.
    pub autoscalers: Vec<String>,
    /// Deployments of karpenter-node-holder that run, as `namespace/name`.
    pub holders: Vec<String>,
    /// Leases by which operators elect their leader.
    pub leaders: Vec<Leader>,
    /// CustomResourceDefinitions of Karpenter's kinds; `None` when they could not be read.
    pub definitions: Option<Vec<Definition>>,
    /// Webhook configurations about Karpenter's kinds.
    pub webhooks: Vec<Webhook>,
    /// Objects of kinds that version 1 does not have.
    pub old_objects: Vec<OldObjects>,
    /// What the cluster did not show.
    pub not_examined: Vec<NotExamined>,
}

/// A Deployment of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `spec.replicas`.
    pub replicas: usize,
    /// Image of the operator's container.
    pub image: String,
}

/// A Lease of operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Namespace.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// `spec.holderIdentity`.
    pub holder: String,
    /// `spec.renewTime`.
    pub renewed_at: Option<Timestamp>,
    /// `spec.leaseDurationSeconds`.
    pub duration_seconds: i64,
}

/// A CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// `nodepools.karpenter.sh`.
    pub name: String,
    /// Versions that are served.
    pub served: Vec<String>,
    /// Versions in which objects may be stored (`status.storedVersions`).
    pub stored: Vec<String>,
    /// Whether a webhook converts between them.
    pub has_conversion_webhook: bool,
    /// The Helm release that it belongs to.
    pub release: Option<String>,
}

/// A webhook configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// `ValidatingWebhookConfiguration` or `MutatingWebhookConfiguration`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Groups of its rules that are Karpenter's.
    pub groups: Vec<String>,
}

/// Objects of a version before that which is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldObjects {
    /// `Provisioner`.
    pub kind: String,
    /// `karpenter.sh/v1alpha5`.
    pub version: String,
    /// Their names.
    pub names: Vec<String>,
    /// Where `convert` is to look for them: `--live`, or `-f FILE`.
    pub source: &'static str,
}

impl OldObjects {
    /// That nothing reads them, and what does.
    #[must_use]
    pub fn finding(&self) -> Finding {
        Finding::new(
            Level::Error,
            "old-objects",
            format!("{} {}", self.kind, some(&self.names)),
            format!("{} is an older version, which is not read", self.version),
            format!("{} there", count(self.names.len(), "object")),
        )
        .suggest(format!(
            "spokeshave convert {} > old-as-v1.yaml, and apply what it writes",
            self.source
        ))
    }
}

/// A kind whose objects the cluster did not show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotExamined {
    /// As a right names it: `deployments.apps`.
    pub resource: String,
    /// What is not known without it, as a clause: `whether Karpenter runs`.
    pub unknown: &'static str,
    /// What the API server says.
    pub why: String,
    /// A right is missing.
    pub is_forbidden: bool,
}

impl NotExamined {
    /// Nobody may take what was not looked at for what is not there.
    fn finding(&self) -> Finding {
        let resource = &self.resource;
        let remedy = match self.is_forbidden {
            true => format!("let a ClusterRole of yours list {resource}, and run this again"),
            false => "run this again".to_owned(),
        };
        Finding::new(
            Level::Error,
            "not-examined",
            resource.clone(),
            format!("cannot be listed, and {} is not known", self.unknown),
            self.why.clone(),
        )
        .suggest(remedy)
    }
}

/// Kinds without which nothing works.
const NEEDED: [&str; 2] = ["nodepools.karpenter.sh", "nodeclaims.karpenter.sh"];
/// The version that is read.
const VERSION: &str = "v1";

pub(super) fn look(there: &Surroundings, successor: &Successor, now: Timestamp, findings: &mut Vec<Finding>) {
    there
        .operators
        .iter()
        .filter(|operator| operator.replicas > 0)
        .for_each(|operator| findings.push(running(operator)));
    findings.extend(there.autoscalers.iter().map(|name| scales(name)));
    findings.extend(there.holders.iter().map(|name| holds(name)));
    for leader in &there.leaders {
        findings.extend(leads(leader, successor, now));
    }
    if let Some(definitions) = &there.definitions {
        missing(definitions, findings);
        let own = own_versions();
        for definition in definitions {
            let own = own.get(&definition.name).map(Vec::as_slice);
            judge(definition, own, findings);
        }
    }
    for webhook in &there.webhooks {
        findings.push(
            Finding::new(
                Level::Warning,
                "webhook",
                format!("{} {}", webhook.kind, webhook.name),
                "answers to writes of Karpenter's objects, and nothing may serve it when Karpenter is gone"
                    .to_owned(),
                format!("its rules name {}", webhook.groups.join(", ")),
            )
            .suggest(format!(
                "kubectl delete {} {}",
                webhook.kind.to_lowercase(),
                webhook.name
            )),
        );
    }
    findings.extend(there.old_objects.iter().map(OldObjects::finding));
    findings.extend(there.not_examined.iter().map(NotExamined::finding));
}

fn running(operator: &Operator) -> Finding {
    let Operator { namespace, name, .. } = operator;
    Finding::new(
        Level::Error,
        "operator-running",
        format!("Deployment {namespace}/{name}"),
        "runs another operator for the same objects; two that lead at once launch and remove nodes against each other".to_owned(),
        format!("{} of {}", count(operator.replicas, "replica"), operator.image),
    )
    .field("spec.replicas")
    .suggest(format!("kubectl -n {namespace} scale deployment {name} --replicas=0"))
}

/// Beside Karpenter it runs today as well, with groups of its own perhaps, so that it is no blocker.
fn scales(name: &str) -> Finding {
    Finding::new(
        Level::Warning,
        "autoscaler-running",
        format!("Deployment {name}"),
        "runs cluster-autoscaler: where a pod that waits fits the nodes of both, both launch one for it"
            .to_owned(),
        "its image or its command is cluster-autoscaler".to_owned(),
    )
    .suggest("spokeshave convert --live, which writes NodePools in place of its groups; then scale it to 0")
}

/// Beside Karpenter it does the same today, so that it is no blocker.
fn holds(name: &str) -> Finding {
    Finding::new(
        Level::Warning,
        "node-holder",
        format!("Deployment {name}"),
        "sets and removes karpenter.sh/do-not-disrupt on nodes, also where a user has set it, and goes on beside this operator".to_owned(),
        "its image or its variables are those of karpenter-node-holder".to_owned(),
    )
    .suggest("spokeshave convert --live, which writes a DisruptionPolicy in its place; then delete it")
}

/// A Lease that is held: in the successor's own namespace it waits for it, elsewhere both would lead.
fn leads(leader: &Leader, successor: &Successor, now: Timestamp) -> Option<Finding> {
    let renewed_at = leader.renewed_at?;
    let ends = renewed_at
        .saturating_add(SignedDuration::from_secs(leader.duration_seconds))
        .unwrap_or(renewed_at);
    if leader.holder.is_empty() || ends <= now {
        return None;
    }
    let proof = format!("renewed at {renewed_at}, held until {ends} unless renewed again");
    let object = format!("Lease {}/{}", leader.namespace, leader.name);
    let message = format!("is held by {}", leader.holder);
    Some(match &successor.namespace {
        Some(namespace) if *namespace == leader.namespace => Finding::new(
            Level::Note,
            "leader-active",
            object,
            format!("{message}: an operator in {namespace} waits until it is given up"),
            proof,
        ),
        _ => Finding::new(
            Level::Error,
            "leader-active",
            object,
            format!("{message}: an operator in another namespace would lead beside it"),
            proof,
        )
        .suggest(format!(
            "stop that operator, or install in namespace {}",
            leader.namespace
        )),
    })
}

fn missing(definitions: &[Definition], findings: &mut Vec<Finding>) {
    for name in NEEDED {
        if !definitions.iter().any(|definition| definition.name == name) {
            findings.push(
                Finding::new(
                    Level::Error,
                    "definition-missing",
                    format!("CustomResourceDefinition {name}"),
                    "is not there".to_owned(),
                    "the cluster lists other definitions".to_owned(),
                )
                .suggest("helm install spokeshave-crds charts/spokeshave-crds"),
            );
        }
    }
}

/// The versions that our own definitions have, by name.
fn own_versions() -> BTreeMap<String, Vec<String>> {
    let clouds = [Cloud::Kwok, Cloud::Aws, Cloud::Azure].into_iter();
    let versions = clouds.flat_map(crd_values_of).filter_map(|definition| {
        let name = definition["metadata"]["name"].as_str()?.to_owned();
        let versions = definition["spec"]["versions"].as_array()?.iter();
        let versions = versions.filter_map(|version| version["name"].as_str());
        Some((name, versions.map(str::to_owned).collect::<Vec<String>>()))
    });
    versions.collect()
}

fn judge(definition: &Definition, own: Option<&[String]>, findings: &mut Vec<Finding>) {
    let object = format!("CustomResourceDefinition {}", definition.name);
    let needed = NEEDED.contains(&definition.name.as_str());
    if needed && !definition.served.iter().any(|version| version == VERSION) {
        findings.push(
            Finding::new(
                Level::Error,
                "definition-version",
                object.clone(),
                "does not serve v1".to_owned(),
                format!("it serves {}", definition.served.join(", ")),
            )
            .field("spec.versions")
            .suggest("upgrade Karpenter to 1.0 first; its notes say how objects are moved to v1"),
        );
    }
    if definition.has_conversion_webhook {
        findings.push(
            Finding::new(
                Level::Error,
                "definition-conversion",
                object.clone(),
                "converts by a webhook of Karpenter's, which goes with it; then no object of the kind can be read".to_owned(),
                "spec.conversion.strategy is Webhook".to_owned(),
            )
            .field("spec.conversion")
            .suggest("helm install spokeshave-crds charts/spokeshave-crds --take-ownership"),
        );
    }
    findings.extend(own.and_then(|own| stored(definition, own)));
    if let Some(release) = definition
        .release
        .as_deref()
        .filter(|release| *release != "spokeshave-crds")
    {
        findings.push(released(object, release));
    }
}

/// An API server refuses a definition that lacks a version which `status.storedVersions` names.
fn stored(definition: &Definition, own: &[String]) -> Option<Finding> {
    let (kept, lost): (Vec<&String>, Vec<&String>) =
        definition.stored.iter().partition(|one| own.contains(one));
    if lost.is_empty() {
        return None;
    }
    let name = &definition.name;
    let kept = match kept.is_empty() {
        true => own.iter().collect(),
        false => kept,
    };
    let patch = serde_json::json!({"status": {"storedVersions": kept}});
    let finding = Finding::new(
        Level::Error,
        "definition-stored",
        format!("CustomResourceDefinition {name}"),
        format!(
            "may have objects stored as {}, which ours does not have: the API server refuses to put ours in its place",
            some_of(&lost, 3)
        ),
        format!(
            "status.storedVersions is {}; ours has {}",
            definition.stored.join(", "),
            own.join(", ")
        ),
    );
    Some(finding.field("status.storedVersions").suggest(format!(
        "write every object once (kubectl get {name} -o yaml | kubectl replace -f -), then kubectl patch crd {name} \
         --subresource=status --type=merge -p '{patch}'"
    )))
}

/// Helm 3 uninstalls what the record of a release lists, whatever the object itself says by then of its owner and of being kept.
fn released(object: String, release: &str) -> Finding {
    Finding::new(
        Level::Warning,
        "definition-release",
        object,
        format!(
            "belongs to the Helm release {release}: `helm uninstall {release}` deletes it with every NodePool and NodeClaim, also after another release has taken it over"
        ),
        "annotation meta.helm.sh/release-name".to_owned(),
    )
    .suggest(format!(
        "do not uninstall {release} as it is. Either upgrade it with helm.sh/resource-policy: keep in its annotations first, then uninstall it; or take the definition over (helm install \
         spokeshave-crds charts/spokeshave-crds --take-ownership), then remove only the record: kubectl -n NAMESPACE delete secret -l owner=helm,name={release}"
    ))
}
