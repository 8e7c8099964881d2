//! Names in what is recorded, replaced by hashes: equal names stay equal, so that owners, selectors and spreads mean what they meant.
//!
//! Owns which texts of a redacted object are names of its user's, and what of a name its readers need: the number of a StatefulSet's pod, the time of a CronJob's
//! Job, the version of a ReplicaSet. What a NodePool may require stays as it is: labels, taints, zones and instance types of nodes, and what pods say of them. How
//! a text is hashed is its caller's business.

use serde_json::{Map, Value};
use spokeshave_api::labels::HOSTNAME;

use super::inventory::{ordinal, without_time};

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Priority classes that every cluster has begin so.
const SYSTEM: &str = "system-";
/// Annotations of cluster-autoscaler's begin so: what they say is yes or no, or the names of volumes and requests.
const AUTOSCALER: &str = "cluster-autoscaler.kubernetes.io/";
/// What comes after it in the key of a tag is the name of a cluster.
const OF_CLUSTER: &str = "kubernetes.io/cluster/";
/// Kinds of controllers that are no secret, whoever's they are.
const KINDS: [&str; 9] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Node",
    "NodeClaim",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
];
/// The label by which a Deployment tells its ReplicaSets apart. It is part of their names.
const VERSION: &str = "pod-template-hash";

/// Replaces the names in an object that has been redacted. `hash` makes a short text of a text, which is a name as Kubernetes wants it, the same for the same.
pub fn hash_names(object: &mut Value, hash: &dyn Fn(&str) -> String) {
    let names = Names { hash };
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "Pod" => {
            names.metadata(object.get_mut("metadata"), &kind);
            names.pod(object.get_mut("spec"));
        }
        "Deployment"
        | "ReplicaSet"
        | "StatefulSet"
        | "DaemonSet"
        | "Job"
        | "CronJob"
        | "PodDisruptionBudget" => {
            names.metadata(object.get_mut("metadata"), &kind);
            names.workload(object.get_mut("spec"));
        }
        "Node" | "NodeClaim" => {
            names.metadata(object.get_mut("metadata"), &kind);
            for place in ["/spec/providerID", "/status/providerID", "/status/nodeName"] {
                names.text(object.pointer_mut(place));
            }
        }
        "EC2NodeClass" => names.ec2_node_class(object),
        // Policies name them, and what they say is what is simulated.
        _ => {}
    }
}

struct Names<'h> {
    hash: &'h dyn Fn(&str) -> String,
}

impl Names<'_> {
    fn hashed(&self, text: &str) -> String {
        match text.is_empty() || NAMESPACES.contains(&text) {
            true => text.to_owned(),
            false => (self.hash)(text),
        }
    }

    /// Replaces a text, if it is there.
    fn text(&self, value: Option<&mut Value>) {
        if let Some(Value::String(text)) = value {
            *text = self.hashed(text);
        }
    }

    /// Replaces all texts of a list or of the values of a map.
    fn texts(&self, value: Option<&mut Value>) {
        match value {
            Some(Value::Array(values)) => values.iter_mut().for_each(|one| self.text(Some(one))),
            Some(Value::Object(values)) => values.values_mut().for_each(|one| self.text(Some(one))),
            _ => {}
        }
    }

    /// The name of an object of a kind, with what its readers need of it; `version` is that of a ReplicaSet.
    fn name(&self, kind: &str, name: &str, version: Option<&str>) -> String {
        if kind == "ReplicaSet"
            && let Some(version) = version.filter(|version| !version.is_empty())
            && let Some(stem) = name.strip_suffix(version).and_then(|rest| rest.strip_suffix('-'))
        {
            return format!("{}-{}", self.hashed(stem), self.hashed(version));
        }
        let kept = if kind == "Job" { without_time(name) } else { name };
        format!("{}{}", self.hashed(kept), &name[kept.len()..])
    }

    fn metadata(&self, value: Option<&mut Value>, kind: &str) {
        let Some(Value::Object(metadata)) = value else {
            return;
        };
        let version = metadata.get("labels").and_then(|labels| labels[VERSION].as_str());
        let version = version.map(str::to_owned);
        let set = controller(metadata, "StatefulSet");
        if let Some(Value::String(name)) = metadata.get_mut("name") {
            let member = set.and_then(|set| Some((ordinal(&set, name)?, set)));
            *name = match member {
                Some((number, set)) => format!("{}-{number}", self.hashed(&set)),
                None => self.name(kind, name, version.as_deref()),
            };
        }
        self.text(metadata.get_mut("namespace"));
        // The beginning of its name, of which nothing is read.
        metadata.remove("generateName");
        let owners = metadata.get_mut("ownerReferences").and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten() {
            self.owner(owner, version.as_deref());
        }
        let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
        for (key, value) in annotations.into_iter().flatten() {
            if key.starts_with(AUTOSCALER) && !matches!(value.as_str(), Some("true" | "false")) {
                self.text(Some(value));
            }
        }
        let labels = metadata.get_mut("labels");
        match kind {
            "Node" | "NodeClaim" => self.text(labels.and_then(|labels| labels.get_mut(HOSTNAME))),
            _ => self.texts(labels),
        }
    }

    /// What made an object. NodePools keep their names; groups and kinds that are not Kubernetes' own are somebody's, too.
    fn owner(&self, owner: &mut Value, version: Option<&str>) {
        // By it a cluster could be recognised; nothing is found by it, because no object is recorded with its own.
        self.text(owner.get_mut("uid"));
        let kind = owner["kind"].as_str().unwrap_or_default().to_owned();
        if kind == "NodePool" {
            return;
        }
        if let Some(Value::String(name)) = owner.get_mut("name") {
            *name = self.name(&kind, name, version);
        }
        if let Some(Value::String(api_version)) = owner.get_mut("apiVersion")
            && let Some((group, version)) = api_version.split_once('/')
            && !matches!(group, "apps" | "batch" | "karpenter.sh")
        {
            *api_version = format!("{}/{version}", self.hashed(group));
        }
        if !KINDS.contains(&kind.as_str()) {
            self.text(owner.get_mut("kind"));
        }
    }

    fn workload(&self, value: Option<&mut Value>) {
        let Some(spec) = value else { return };
        self.selector(spec.get_mut("selector"));
        if let Some(template) = spec.get_mut("template") {
            self.metadata(template.get_mut("metadata"), "Pod");
            self.pod(template.get_mut("spec"));
        }
        self.workload(spec.pointer_mut("/jobTemplate/spec"));
        for claim in elements(spec, "volumeClaimTemplates") {
            self.metadata(claim.get_mut("metadata"), "PersistentVolumeClaim");
        }
    }

    /// A selector of pods or of namespaces.
    fn selector(&self, value: Option<&mut Value>) {
        let Some(selector) = value else { return };
        self.texts(selector.get_mut("matchLabels"));
        for term in elements(selector, "matchExpressions") {
            self.texts(term.get_mut("values"));
        }
    }

    fn pod(&self, value: Option<&mut Value>) {
        let Some(spec) = value else { return };
        self.text(spec.get_mut("nodeName"));
        self.text(spec.get_mut("runtimeClassName"));
        let class = spec.get_mut("priorityClassName");
        self.text(class.filter(|class| !class.as_str().unwrap_or_default().starts_with(SYSTEM)));
        for list in ["containers", "initContainers", "volumes", "schedulingGates"] {
            for one in elements(spec, list) {
                self.text(one.get_mut("name"));
                self.text(one.pointer_mut("/persistentVolumeClaim/claimName"));
                for port in elements(one, "ports") {
                    self.text(port.get_mut("name"));
                }
                let claims = one.pointer_mut("/resources/claims").and_then(Value::as_array_mut);
                for claim in claims.into_iter().flatten() {
                    self.texts(Some(claim));
                }
            }
        }
        for constraint in elements(spec, "topologySpreadConstraints") {
            self.selector(constraint.get_mut("labelSelector"));
        }
        self.text(
            spec.get_mut("nodeSelector")
                .and_then(|labels| labels.get_mut(HOSTNAME)),
        );
        if let Some(affinity) = spec.get_mut("affinity") {
            self.affinity(affinity);
        }
    }

    fn affinity(&self, affinity: &mut Value) {
        for side in ["podAffinity", "podAntiAffinity"] {
            let Some(side) = affinity.get_mut(side) else {
                continue;
            };
            for term in elements(side, "requiredDuringSchedulingIgnoredDuringExecution") {
                self.neighbours(term);
            }
            for weighted in elements(side, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = weighted.get_mut("podAffinityTerm") {
                    self.neighbours(term);
                }
            }
        }
        let Some(nodes) = affinity.get_mut("nodeAffinity") else {
            return;
        };
        if let Some(required) = nodes.get_mut("requiredDuringSchedulingIgnoredDuringExecution") {
            for term in elements(required, "nodeSelectorTerms") {
                self.nodes(term);
            }
        }
        for weighted in elements(nodes, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = weighted.get_mut("preference") {
                self.nodes(term);
            }
        }
    }

    /// A term about other pods.
    fn neighbours(&self, term: &mut Value) {
        self.selector(term.get_mut("labelSelector"));
        self.selector(term.get_mut("namespaceSelector"));
        self.texts(term.get_mut("namespaces"));
    }

    /// A term about nodes, of which only their names are secret.
    fn nodes(&self, term: &mut Value) {
        for field in elements(term, "matchFields") {
            self.texts(field.get_mut("values"));
        }
        for expression in elements(term, "matchExpressions") {
            if expression["key"] == HOSTNAME {
                self.texts(expression.get_mut("values"));
            }
        }
    }

    /// What names a user's account and network. The alias of an image is public, and messages may hold any name.
    fn ec2_node_class(&self, class: &mut Value) {
        for field in ["role", "instanceProfile"] {
            self.text(class["spec"].get_mut(field));
        }
        let spec = class["spec"].as_object_mut();
        let terms = spec
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.ends_with("SelectorTerms"));
        for term in terms.filter_map(|(_, terms)| terms.as_array_mut()).flatten() {
            let fields = term.as_object_mut().into_iter().flatten();
            let plain = ["alias", "instanceMatchCriteria"];
            for (_, value) in fields.filter(|(key, _)| !plain.contains(&key.as_str())) {
                self.resource(value);
                self.texts(Some(&mut *value));
                if let Value::Object(tags) = value {
                    let known = std::mem::take(tags).into_iter();
                    tags.extend(known.map(|(key, value)| (self.key_of_tag(key), value)));
                }
            }
        }
        if let Some(Value::Object(group)) = class["spec"].get_mut("placementGroupSelector") {
            group.values_mut().for_each(|value| self.resource(value));
        }
        for condition in elements(&mut class["status"], "conditions") {
            if let Some(condition) = condition.as_object_mut() {
                condition.remove("message");
            }
        }
        for device in elements(&mut class["spec"], "blockDeviceMappings") {
            for place in ["/ebs/kmsKeyID", "/ebs/snapshotID"] {
                if let Some(value) = device.pointer_mut(place) {
                    self.resource(value);
                }
            }
        }
        for subnet in elements(&mut class["status"], "subnets") {
            if let Some(id) = subnet.get_mut("id") {
                self.resource(id);
            }
        }
    }

    /// The key of a tag, in which a cluster may be named.
    fn key_of_tag(&self, key: String) -> String {
        match key.strip_prefix(OF_CLUSTER) {
            Some(cluster) => format!("{OF_CLUSTER}{}", self.hashed(cluster)),
            None => key,
        }
    }

    /// Replaces an ID of AWS, such as `subnet-0a1b`, of which the kind stays.
    fn resource(&self, value: &mut Value) {
        if let Value::String(text) = value {
            *text = match text.split_once('-') {
                Some((kind @ ("ami" | "cr" | "pg" | "sg" | "snap" | "subnet"), id)) => {
                    format!("{kind}-{}", self.hashed(id))
                }
                _ => self.hashed(text),
            };
        }
    }
}

/// The name of the controller of an object, if it is of this kind.
fn controller(metadata: &Map<String, Value>, kind: &str) -> Option<String> {
    let mut owners = metadata.get("ownerReferences")?.as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true && owner["kind"] == kind)?;
    owner["name"].as_str().map(str::to_owned)
}

/// The elements of a list in an object, if it is there.
fn elements<'v>(value: &'v mut Value, list: &str) -> impl Iterator<Item = &'v mut Value> {
    let list = value.get_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}
