//! Manifests of older versions and of other autoscalers as `karpenter.sh/v1`, with a report of every field that is not what it was.
//!
//! Owns what each field becomes (spec/disruption.md §10). It reads no files and asks no cluster; whether the result would be accepted is checked by who
//! has the rules compiled. Nothing is dropped without a line, and what has the version that is served already comes out as it went in.
//!
//! ```text
//! objects ─► one by one: Provisioner, AWSNodeTemplate, … ─► kubelet settings into classes ─► objects of v1 + report
//! ```

mod aks_node_class;
mod autoscaler;
mod class_ref;
mod delays;
mod fields;
mod flags;
mod holder;
mod kubelet;
mod metadata;
mod names;
mod node_claim;
mod node_class;
mod node_pool;
mod node_template;
mod program;
mod provisioner;
mod report;
mod settings;
mod unknown;
mod workload;

use std::sync::OnceLock;

use serde_json::{Value, json};
use spokeshave_api::crds::{Cloud, crd_values_of};

pub use class_ref::ClassRef;
use fields::{get, text};
pub use program::{Program, operator_in};
use report::Notes;
pub use report::{Change, Level, Line};

/// Information that is not in the objects.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The NodeClass of pools that name none.
    pub node_class: Option<ClassRef>,
    /// The IAM role of EC2NodeClasses that name neither role nor instance profile.
    pub role: Option<String>,
}

/// One object of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Index of the object that it was made from.
    pub from: usize,
    /// Index in the result of the object that it is a copy of, after which it is placed.
    after: Option<usize>,
    /// The object.
    pub object: Value,
}

/// The result and the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversion {
    /// Objects, in the order of what they were made from.
    pub objects: Vec<Output>,
    /// Lines, in that order, too.
    pub lines: Vec<Line>,
}

/// A kubelet configuration that waits until all classes are known.
struct Kubelet {
    /// The pool, among the objects.
    output: usize,
    /// Where the pool had it.
    field: &'static str,
    value: Value,
}

/// The objects created so far.
#[derive(Default)]
struct World {
    objects: Vec<Output>,
    kubelets: Vec<Kubelet>,
    claims_without_expiry: Vec<usize>,
    lines: Vec<Line>,
}

impl World {
    fn push(&mut self, object: Value, notes: &Notes) -> usize {
        self.objects.push(Output {
            from: notes.from(),
            after: None,
            object,
        });
        self.objects.len() - 1
    }
}

/// Facts about all objects, collected before the conversion.
struct Context {
    /// The class of pools that name none.
    default_class: Option<ClassRef>,
    role: Option<String>,
    instance_profile: Option<String>,
    /// NodeClasses that are or come.
    classes: Vec<ClassRef>,
    /// There are objects of v1alpha5, which was for AWS alone.
    is_aws: bool,
}

impl Context {
    fn of(objects: &[Value], options: &Options) -> Self {
        let classes: Vec<ClassRef> = objects.iter().filter_map(ClassRef::of).collect();
        let only = match &classes[..] {
            [only] => Some(only.clone()),
            _ => None,
        };
        let profile = objects
            .iter()
            .filter(|object| settings::is_global(object))
            .find_map(|object| text(object, &["data", "aws.defaultInstanceProfile"]));
        Self {
            default_class: options.node_class.clone().or(only),
            role: options.role.clone(),
            instance_profile: profile.filter(|profile| !profile.is_empty()).map(str::to_owned),
            classes,
            is_aws: objects
                .iter()
                .any(|object| object["apiVersion"] == "karpenter.sh/v1alpha5"),
        }
    }

    /// The class for a pool that names none; reported either way.
    fn class_for_want_of_one(&self, became: &str, notes: &mut Notes) -> Option<ClassRef> {
        match &self.default_class {
            Some(class) => notes.added(
                became,
                format!("{class}: none was named, and this one was asked for or is the only one"),
            ),
            None => notes.manual(
                became,
                "no NodeClass is named, and v1 needs one: convert with --node-class GROUP/KIND/NAME",
            ),
        }
        self.default_class.clone()
    }

    /// A name for a class that a pool brings along, such as no other class has.
    fn free_class_name(&self, pool: &str) -> String {
        let mut name = pool.to_owned();
        while self.classes.contains(&ClassRef::aws(&name)) {
            name.push_str("-provider");
        }
        name
    }
}

/// Converts objects: Kubernetes objects of any kind, and Helm values of karpenter-node-holder and cluster-autoscaler.
#[must_use]
pub fn convert(objects: Vec<Value>, options: &Options) -> Conversion {
    let context = Context::of(&objects, options);
    let mut world = World::default();
    let definitions = definitions();
    for (from, object) in objects.into_iter().enumerate() {
        let mut notes = Notes::new(from);
        let first = world.objects.len();
        let was = object["apiVersion"].clone();
        one(object, &context, &mut world, &mut notes);
        for output in &mut world.objects[first..] {
            let was_served = output.object["apiVersion"] == was;
            report_unknown(definitions, &mut output.object, was_served, &mut notes);
        }
        world.lines.append(&mut notes.lines);
    }
    kubelet::place(&mut world);
    fill_in_expiry(&mut world);
    finish(world)
}

/// The definitions of all kinds that come out: those of `karpenter.sh`, and the NodeClasses of AWS and Azure.
#[must_use]
pub fn definitions() -> &'static [Value] {
    static ALL: OnceLock<Vec<Value>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut all = crd_values_of(Cloud::Aws);
        let azure = crd_values_of(Cloud::Azure).into_iter();
        all.extend(azure.filter(|definition| definition["spec"]["group"] == aks_node_class::GROUP));
        all
    })
}

/// The version that a definition serves, as objects name it, such as `karpenter.sh/v1`.
#[must_use]
pub fn served_version(definition: &Value) -> Option<String> {
    let group = text(definition, &["spec", "group"])?;
    let version = definition.pointer("/spec/versions/0/name")?.as_str()?;
    Some(format!("{group}/{version}"))
}

fn one(mut object: Value, context: &Context, world: &mut World, notes: &mut Notes) {
    let version = text(&object, &["apiVersion"]).unwrap_or_default().to_owned();
    let kind = text(&object, &["kind"]).unwrap_or_default().to_owned();
    match (version.as_str(), kind.as_str()) {
        ("karpenter.sh/v1alpha5", "Provisioner") => provisioner::convert(object, context, world, notes),
        ("karpenter.sh/v1alpha5", "Machine") => node_claim::from_machine(object, world, notes),
        ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate") => {
            node_template::convert(object, context, world, notes);
        }
        ("karpenter.sh/v1beta1" | "karpenter.sh/v1", "NodePool") => {
            node_pool::convert(object, context, world, notes);
        }
        ("karpenter.sh/v1beta1", "NodeClaim") => node_claim::convert(object, context, world, notes),
        ("karpenter.k8s.aws/v1beta1", "EC2NodeClass") => node_class::convert(object, context, world, notes),
        ("karpenter.azure.com/v1alpha2", "AKSNodeClass") => aks_node_class::convert(object, world, notes),
        ("", "") if holder::are_values(&object) => holder::values(object, world, notes),
        ("", "") if autoscaler::are_values(&object) => autoscaler::values(&object, context, world, notes),
        ("", _) | (_, "") => notes.unreadable(
            "",
            "is no Kubernetes object: it needs apiVersion and kind; Helm values are known of karpenter-node-holder and of cluster-autoscaler",
        ),
        (version, kind) if is_retired(version, kind) => notes.manual(
            "",
            format!("{kind} of {version} is no version that is known here: it is left out"),
        ),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") if is_retired_definition(&object) => {
            notes.dropped("", "the definition of a retired kind is left out: `spokeshave crds` prints those of v1");
        }
        _ if settings::is_global(&object) => settings::report(&object, notes),
        (_, "Deployment") if Program::NodeHolder.is_run_by(&object) => {
            holder::deployment(&object, world, notes);
        }
        (_, "Deployment") if Program::ClusterAutoscaler.is_run_by(&object) => {
            autoscaler::deployment(&object, context, world, notes);
        }
        _ => {
            workload::convert(&mut object, notes);
            world.push(object, notes);
        }
    }
}

/// Kinds and versions of Karpenter that are none of those that are converted.
fn is_retired(version: &str, kind: &str) -> bool {
    let (group, version) = version.split_once('/').unwrap_or_default();
    if (group, kind) == (aks_node_class::GROUP, aks_node_class::KIND) {
        return version != "v1beta1";
    }
    let is_ours = matches!(group, "karpenter.sh" | "karpenter.k8s.aws");
    let is_kind = matches!(
        kind,
        "Provisioner" | "Machine" | "AWSNodeTemplate" | "NodePool" | "NodeClaim" | "EC2NodeClass"
    );
    is_ours && is_kind && version != "v1"
}

fn is_retired_definition(object: &Value) -> bool {
    let name = text(object, &["metadata", "name"]).unwrap_or_default();
    matches!(
        name,
        "provisioners.karpenter.sh" | "machines.karpenter.sh" | "awsnodetemplates.karpenter.k8s.aws"
    )
}

/// Reports fields that the served version does not know. An object of another version loses them, so that it is accepted.
fn report_unknown(definitions: &[Value], object: &mut Value, was_served: bool, notes: &mut Notes) {
    let Some((version, schema)) = schema_of(definitions, object) else {
        return;
    };
    let what = if was_served {
        format!("{version} has no such field; an API server drops it, or refuses the object")
    } else {
        format!("{version} has no such field; it is left out")
    };
    for field in unknown::fields(schema, object) {
        notes.unknown(&field, what.clone());
    }
    if !was_served {
        unknown::prune(schema, object);
    }
}

/// The schema of a kind of ours, with the name of the version that is served.
fn schema_of<'a>(definitions: &'a [Value], object: &Value) -> Option<(&'a str, &'a Value)> {
    let own = object["apiVersion"].as_str()?;
    let definition = definitions.iter().find(|definition| {
        definition["spec"]["names"]["kind"] == object["kind"]
            && served_version(definition).as_deref() == Some(own)
    })?;
    let version = get(definition, &["spec", "versions"])?.as_array()?.first()?;
    let schema = version.get("schema")?.get("openAPIV3Schema")?;
    Some((version.get("name")?.as_str()?, schema))
}

/// NodeClaims of earlier versions expired as their NodePool says.
fn fill_in_expiry(world: &mut World) {
    for claim in std::mem::take(&mut world.claims_without_expiry) {
        let Some(output) = world.objects.get(claim) else {
            continue;
        };
        let mut notes = Notes::new(output.from);
        let pool = text(&output.object, &["metadata", "labels", "karpenter.sh/nodepool"]);
        let expiry = world
            .objects
            .iter()
            .filter(|other| other.object["kind"] == "NodePool")
            .find(|other| text(&other.object, &["metadata", "name"]) == pool)
            .map(|pool| {
                text(&pool.object, &["spec", "template", "spec", "expireAfter"])
                    .unwrap_or("720h")
                    .to_owned()
            });
        match expiry {
            Some(expiry) => {
                notes.added("spec.expireAfter", format!("{expiry}, as its NodePool has it"));
                fields::set(
                    &mut world.objects[claim].object,
                    &["spec", "expireAfter"],
                    json!(expiry),
                );
            }
            None => notes.changed(
                "",
                "spec.expireAfter",
                "not written, because its NodePool is not among what was given; v1's default is 720h",
            ),
        }
        world.lines.append(&mut notes.lines);
    }
}

/// Copies behind their originals, lines in the order of objects.
fn finish(world: World) -> Conversion {
    let mut order: Vec<usize> = (0..world.objects.len()).collect();
    order.sort_by_key(|index| {
        let after = world.objects[*index].after;
        (after.unwrap_or(*index), after.is_some(), *index)
    });
    let mut lines = world.lines;
    lines.sort_by_key(|line| line.from);
    Conversion {
        objects: order
            .into_iter()
            .map(|index| world.objects[index].clone())
            .collect(),
        lines,
    }
}
