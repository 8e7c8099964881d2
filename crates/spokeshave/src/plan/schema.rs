//! NodePools that an API server would refuse: checked with the schema and rules of the CustomResourceDefinition, and left out by name.
//!
//! It speaks of objects that no cluster has seen. What is from a cluster has been accepted there, whatever this version's schema says.

use std::sync::OnceLock;

use serde_json::Value;
use spokeshave_apiserver::CompiledCrd;

use super::dump::Dump;
use super::unreadable::Unreadable;

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

/// Takes the NodePools out of a dump that an API server would refuse, and says why.
pub(crate) fn leave_out(dump: &mut Dump) -> Vec<LeftOut> {
    let mut refused = Vec::new();
    for written in dump.written.iter().filter(|written| written.is_node_pool()) {
        let Some((field, why)) = refusal("NodePool", &written.object) else {
            continue;
        };
        let name = written.name();
        let known = dump.node_pools.len();
        dump.node_pools.retain(|pool| pool.name() != name);
        if dump.node_pools.len() < known {
            refused.push(LeftOut {
                object: format!("NodePool {name}"),
                place: written.place_of(&field),
                why: format!("the API server would refuse it: {why}"),
                unread: None,
            });
        }
    }
    refused
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
