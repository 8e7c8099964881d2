//! NodePools and DisruptionPolicies that an API server would refuse: checked with the schema and rules of the CustomResourceDefinition, and left out by name.
//!
//! It speaks of objects that no cluster has seen. What is from a cluster has been accepted there, whatever this version's schema says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use spokeshave_api::{DisruptionPolicy, NodePool};
use spokeshave_apiserver::CompiledCrd;

use super::dump::Dump;
use super::unreadable::Unreadable;
use super::written::Written;

/// Causes that are named; an object with more is wrong all over.
const MOST_CAUSES: usize = 3;

/// An object that counts as absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// `Pod shop/web-1`, as far as it is known.
    pub(crate) object: String,
    /// Its file and line; for an object of a cluster, its list.
    pub(crate) place: String,
    /// `the API server would refuse it: …`.
    pub(crate) why: String,
    /// Its kind, where nobody knows what it says; otherwise it is known to be no part of any cluster.
    pub(crate) unread: Option<String>,
}

impl LeftOut {
    /// For standard error.
    pub(crate) fn note(&self) -> String {
        format!(
            "{}: {} is left out, because {}",
            self.place, self.object, self.why
        )
    }
}

impl From<&Unreadable> for LeftOut {
    fn from(unreadable: &Unreadable) -> Self {
        let (file, place) = (&unreadable.file, &unreadable.place);
        // Where there are several files, the place names its own already.
        let place = match file.is_empty() || place.starts_with(file.as_str()) {
            true => place.clone(),
            false => format!("{file}, {place}"),
        };
        let counts = unreadable
            .counts()
            .map(|counts| format!("; it is not absent, but {counts}"));
        let counts = counts.unwrap_or_default();
        Self {
            object: unreadable.object.clone(),
            place,
            why: format!("it cannot be read: {}{counts}", unreadable.problem),
            unread: Some(unreadable.kind.clone()),
        }
    }
}

/// Takes the NodePools and DisruptionPolicies out of a dump that an API server would refuse, and says why. A field that does not exist may be the very one that says
/// what a policy selects: without it, it would select everything.
pub(crate) fn leave_out(dump: &mut Dump) -> Vec<LeftOut> {
    let refused = refused(&dump.written);
    let places: BTreeSet<usize> = refused.iter().map(|one| one.place).collect();
    // Of each name, in the order of the files, whether it is refused.
    let mut named: BTreeMap<(&str, &str), Vec<bool>> = BTreeMap::new();
    let written = dump.written.iter().enumerate();
    for (place, one) in written.filter(|(_, one)| one.is_checked()) {
        let known = named.entry((one.kind.as_str(), one.name())).or_default();
        known.push(places.contains(&place));
    }
    named.retain(|_, refused| refused.contains(&true));
    named.retain(|(kind, name), refused| {
        let is_pool = |pool: &NodePool| *kind == NodePool::KIND && pool.name() == *name;
        let is_policy = |policy: &DisruptionPolicy| *kind == DisruptionPolicy::KIND && policy.name() == *name;
        let pools = take_out(&mut dump.node_pools, is_pool, refused);
        let policies = take_out(&mut dump.disruption_policies, is_policy, refused);
        pools || policies
    });
    let taken_out = |one: &&Refused| named.contains_key(&(one.kind.as_str(), one.name.as_str()));
    refused.iter().filter(taken_out).map(Refused::left_out).collect()
}

/// Takes those of a name out that are refused; all of them, where it is not known which these are. Whether there was one.
fn take_out<T>(objects: &mut Vec<Arc<T>>, is_it: impl Fn(&T) -> bool, refused: &[bool]) -> bool {
    let known = objects.len();
    let is_each_known = objects.iter().filter(|object| is_it(object)).count() == refused.len();
    let mut refused = refused.iter();
    objects.retain(|object| !is_it(object) || is_each_known && refused.next() == Some(&false));
    objects.len() < known
}

/// An object of a file that an API server would refuse.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// `DisruptionPolicy`.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
    /// Its place among what was written.
    place: usize,
    /// The file that it is in.
    pub(crate) file: String,
    /// The line in it of the field, or of what the field would be part of.
    pub(crate) line: u64,
    /// The first field that is wrong.
    pub(crate) field: String,
    /// All that is wrong.
    pub(crate) why: String,
}

impl Refused {
    fn left_out(&self) -> LeftOut {
        LeftOut {
            object: format!("{} {}", self.kind, self.name),
            place: format!("{}:{}", self.file, self.line),
            why: format!("the API server would refuse it: {}", self.why),
            unread: None,
        }
    }
}

/// What an API server would refuse of what was written.
pub(crate) fn refused(written: &[Written]) -> Vec<Refused> {
    let checked = written.iter().enumerate();
    let checked = checked.filter(|(_, written)| written.is_checked());
    let found = checked.filter_map(|(place, written)| {
        let (field, why) = refusal(&written.kind, &written.object)?;
        Some(Refused {
            kind: written.kind.clone(),
            name: written.name().to_owned(),
            place,
            file: written.file.clone(),
            line: written.line_of(&field),
            field,
            why,
        })
    });
    found.collect()
}

/// Whether an API server has given the object what only it gives.
pub(crate) fn is_from_cluster(object: &Value) -> bool {
    let meta = &object["metadata"];
    ["uid", "resourceVersion"]
        .iter()
        .any(|key| meta[*key].is_string())
}

/// The first field of a NodePool or DisruptionPolicy that is wrong, and what is wrong. An object from a cluster has been accepted there.
pub(crate) fn refusal(kind: &str, object: &Value) -> Option<(String, String)> {
    if is_from_cluster(object) {
        return None;
    }
    let version = match kind {
        "NodePool" => compiled(&NODE_POOLS, kind)?.version("v1")?,
        _ => compiled(&DISRUPTION_POLICIES, kind)?.version("v1alpha1")?,
    };
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let unknown = version.prune(&mut object);
    let mut causes: Vec<(String, String)> = unknown
        .into_iter()
        .map(|field| {
            let said = format!("{field}: unknown field");
            (field, said)
        })
        .collect();
    version.default(&mut object);
    let found = version.validate(&object, None);
    // An error without a field means that rules were not checked.
    let found = found
        .into_iter()
        .filter(|cause| cause.field.starts_with("spec") || cause.field.starts_with("metadata"));
    causes.extend(found.map(|cause| {
        let said = cause.sentence();
        (cause.field, said)
    }));
    let (first, _) = causes.first()?.clone();
    let mut said: Vec<&str> = causes
        .iter()
        .take(MOST_CAUSES)
        .map(|(_, said)| said.as_str())
        .collect();
    let more = format!("and {} more", causes.len().saturating_sub(MOST_CAUSES));
    if causes.len() > MOST_CAUSES {
        said.push(&more);
    }
    Some((first, said.join("; ")))
}

static NODE_POOLS: OnceLock<Option<CompiledCrd>> = OnceLock::new();
static DISRUPTION_POLICIES: OnceLock<Option<CompiledCrd>> = OnceLock::new();

fn compiled(cell: &'static OnceLock<Option<CompiledCrd>>, kind: &str) -> Option<&'static CompiledCrd> {
    let compile = || {
        let crds: Vec<Value> = spokeshave_api::crds::crd_values();
        let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == kind)?;
        CompiledCrd::compile(crd).ok()
    };
    cell.get_or_init(compile).as_ref()
}
