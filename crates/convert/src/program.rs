//! Which Deployments run a program that a cluster is taken over from: Karpenter, cluster-autoscaler, or karpenter-node-holder.
//!
//! Owns how they are known. Images are mirrored under names of all kinds, so each is also known by what starts it, or by a variable that no other program has.

use serde_json::{Map, Value};

use crate::fields::text;
use crate::workload::{containers, variables, words};

/// Ends of the paths of Karpenter's images. Others have the word in their names.
const KARPENTER_IMAGES: [&str; 2] = ["karpenter/controller", "karpenter"];
/// A variable that Karpenter's chart has always set.
const KARPENTER_VARIABLE: &str = "KARPENTER_SERVICE";
/// End of the path of our image, and the name of our chart.
const OWN: &str = "spokeshave";
/// What every image of karpenter-node-holder has in its name, with what mirrors add to it.
const HOLDER_IMAGE: &str = "karpenter-node-holder";
/// What karpenter-node-holder reads, and what its image sets by mistake.
const HOLDER_VARIABLES: [&str; 3] = ["HOLD_DURATION", "HOLD_ANNOTATION", "HOLD_ANNOTAION"];

/// A program that launches, removes or keeps nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Karpenter's own operator, of any provider.
    Karpenter,
    /// cluster-autoscaler.
    ClusterAutoscaler,
    /// karpenter-node-holder.
    NodeHolder,
}

impl Program {
    /// Whether a Deployment runs it.
    #[must_use]
    pub fn is_run_by(self, deployment: &Value) -> bool {
        self.image_in(deployment).is_some()
    }

    /// The image by which a Deployment runs it, whatever that is called; `None` where it does not.
    #[must_use]
    pub fn image_in(self, deployment: &Value) -> Option<&str> {
        self.container_in(deployment).map(image)
    }

    /// The container in which a Deployment runs it.
    fn container_in(self, deployment: &Value) -> Option<&Map<String, Value>> {
        let label = text(deployment, &["metadata", "labels", "app.kubernetes.io/name"]);
        let is_ours = label == Some(OWN) || containers(deployment).any(|one| is_of(image(one), OWN));
        if self == Program::Karpenter && is_ours {
            return None;
        }
        let by_label = self == Program::Karpenter && label == Some("karpenter");
        let known = containers(deployment).find(|container| self.is_in(container));
        known.or_else(|| containers(deployment).next().filter(|_| by_label))
    }

    fn is_in(self, container: &Map<String, Value>) -> bool {
        let has = |known: &[&str]| variables(container).any(|(name, _)| known.contains(&name));
        let image = image(container);
        match self {
            Program::Karpenter => {
                KARPENTER_IMAGES.iter().any(|end| is_of(image, end)) || has(&[KARPENTER_VARIABLE])
            }
            Program::ClusterAutoscaler => {
                image.contains("/cluster-autoscaler")
                    || words(container).any(|(_, word)| {
                        word == "cluster-autoscaler" || word.ends_with("/cluster-autoscaler")
                    })
            }
            Program::NodeHolder => image.contains(HOLDER_IMAGE) || has(&HOLDER_VARIABLES),
        }
    }
}

/// The container in which a Deployment runs an operator that has Karpenter's settings: this program, which is known by what starts it, because other commands of it
/// may run in Deployments as well, or Karpenter.
#[must_use]
pub fn operator_in(deployment: &Value) -> Option<&Map<String, Value>> {
    let own = containers(deployment).find(|container| starts_operator(container));
    own.or_else(|| Program::Karpenter.container_in(deployment))
}

/// Whether a container is started as our chart does it.
fn starts_operator(container: &Map<String, Value>) -> bool {
    let is_there = |wanted: fn(&str) -> bool| words(container).any(|(_, word)| wanted(word));
    is_there(|word| word == "operator")
        && is_there(|word| word == "--cloud-provider" || word.starts_with("--cloud-provider="))
}

fn image(container: &Map<String, Value>) -> &str {
    container.get("image").and_then(Value::as_str).unwrap_or_default()
}

/// Whether the path of an image ends so, whatever its registry, tag and digest.
fn is_of(image: &str, end: &str) -> bool {
    let path = image.split('@').next().unwrap_or_default();
    let name = path.rfind('/').map_or(0, |slash| slash + 1);
    let tag = path[name..].find(':').map_or(path.len(), |tag| name + tag);
    let before = path[..tag].strip_suffix(end);
    before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: [Program; 3] = [
        Program::Karpenter,
        Program::ClusterAutoscaler,
        Program::NodeHolder,
    ];

    fn deployment(label: &str, containers: Value) -> Value {
        json!({"metadata": {"labels": {"app.kubernetes.io/name": label}}, "spec": {"template": {"spec": {"containers": containers}}}})
    }

    fn found(deployment: &Value) -> Vec<Program> {
        let mut all = ALL.to_vec();
        all.retain(|program| program.is_run_by(deployment));
        all
    }

    #[test]
    fn each_is_known_by_its_image_behind_any_registry() {
        for (image, expected) in [
            ("public.ecr.aws/karpenter/controller:1.14.0", Program::Karpenter),
            (
                "registry.example:5000/mirror/karpenter@sha256:0a",
                Program::Karpenter,
            ),
            // The registry's name says nothing of whose image it is.
            (
                "spokeshave.example/karpenter/controller:1@sha256:0a",
                Program::Karpenter,
            ),
            (
                "registry.k8s.io/autoscaling/cluster-autoscaler:v1.30.0",
                Program::ClusterAutoscaler,
            ),
            ("example.io/karpenter-node-holder:1", Program::NodeHolder),
        ] {
            let behind_a_sidecar = json!([{"image": "sidecar:1"}, {"image": image}]);
            let deployment = deployment("a", behind_a_sidecar);
            assert_eq!(found(&deployment), [expected], "{image}");
            assert_eq!(expected.image_in(&deployment), Some(image));
        }
    }

    #[test]
    fn each_is_known_where_its_image_is_mirrored_under_another_name() {
        let image = "registry.example/platform/nodes-7:2";
        for (more, expected) in [
            (
                json!({"env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "KARPENTER_SERVICE", "value": "k"}]}),
                Program::Karpenter,
            ),
            (
                json!({"command": ["./cluster-autoscaler", "--v=4"]}),
                Program::ClusterAutoscaler,
            ),
            (
                json!({"env": [{"name": "HOLD_DURATION", "value": "15"}]}),
                Program::NodeHolder,
            ),
        ] {
            let mut container = more;
            container["image"] = json!(image);
            let deployment = deployment("platform", json!([{"image": "sidecar:1"}, container]));
            assert_eq!(found(&deployment), [expected]);
            assert_eq!(expected.image_in(&deployment), Some(image));
        }
        let by_label = deployment("karpenter", json!([{"image": image}]));
        assert_eq!(found(&by_label), [Program::Karpenter]);
    }

    #[test]
    fn an_operator_is_ours_by_what_starts_it_or_karpenter() {
        let name = |label: &str, containers: Value| {
            let deployment = deployment(label, containers);
            operator_in(&deployment).map(|one| one["name"].clone())
        };
        let mirrored = "registry.example/platform/nodes-7:2";
        let ours = json!([{"name": "sidecar", "image": "sidecar:1"},
            {"name": "own", "image": mirrored, "args": ["operator", "--cloud-provider", "aws"]}]);
        assert_eq!(name("nodes", ours), Some(json!("own")));
        let karpenter =
            json!([{"name": "controller", "image": "public.ecr.aws/karpenter/controller:1.14.0"}]);
        assert_eq!(name("a", karpenter), Some(json!("controller")));
        // A page of ours decides nothing.
        let page = json!([{"name": "page", "image": "registry.example/spokeshave:1", "args": ["web"]}]);
        assert_eq!(name("spokeshave", page), None);
        assert_eq!(name("web", json!([{"name": "web", "image": "nginx"}])), None);
    }

    #[test]
    fn other_images_with_such_words_and_our_own_are_none_of_them() {
        for image in [
            "1234.dkr.ecr.eu-west-1.amazonaws.com/platform/karpenter-dashboards:2",
            "karpenter.example/web:1",
            "example.io/karpenter/exporter:1",
            "example.io/notkarpenter:1",
            "nginx",
        ] {
            let other = deployment("web", json!([{"image": image}]));
            assert!(found(&other).is_empty(), "{image}");
        }
        let ours = json!([{"image": "registry.example/spokeshave:1", "env": [{"name": "KARPENTER_SERVICE", "value": "k"}]}]);
        assert!(found(&deployment("karpenter", ours)).is_empty());
    }
}
