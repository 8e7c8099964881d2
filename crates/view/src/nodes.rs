//! The nodes: one row each, and the reasons that several of them share. As JSON they are columns, to keep thousands of them small.

use crate::Dollars;
use crate::world::Judged;
use jiff::Timestamp;
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use spokeshave_api::labels;
use spokeshave_model::Price;
use spokeshave_model::snapshot::{NodeId, NodeView};
use spokeshave_model::vector::{CPU, MEMORY, PODS};
use spokeshave_plan::disrupt::{Blocker, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The lifecycle phase of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It has joined and is Ready.
    Ready,
    /// It is on its way in.
    Coming,
    /// It is being deleted, on purpose.
    Leaving,
    /// It has joined and is not Ready.
    Broken,
    /// Nodes or NodeClaims could not be read, and nothing says that it has joined.
    Unknown,
}

impl Phase {
    /// As JSON has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Ready => "ready",
            Phase::Coming => "coming",
            Phase::Leaving => "leaving",
            Phase::Broken => "broken",
            Phase::Unknown => "unknown",
        }
    }
}

/// A blocker of one or more nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ReasonRow {
    /// Its kind; one word, stable across versions.
    pub code: String,
    /// The object to change, as `Pod shop/web-1`.
    pub object: String,
    /// The problem.
    pub message: String,
}

impl ReasonRow {
    pub(crate) fn of(blocker: &Blocker) -> Self {
        Self {
            code: blocker.kind.to_string(),
            object: blocker.object.to_string(),
            message: blocker.message.clone(),
        }
    }
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// The Node's name, or until it has joined the NodeClaim's.
    pub name: String,
    /// Its NodePool; none for an unmanaged node.
    pub pool: Option<String>,
    /// Its instance type.
    pub instance_type: Option<String>,
    /// `on-demand`, `spot` or `reserved`.
    pub capacity_type: Option<String>,
    /// Its zone.
    pub zone: Option<String>,
    /// Dollars per hour; none when it is unknown.
    pub price: Option<Dollars>,
    /// Whether its instance has been launched. Until then it costs nothing, whatever its price.
    #[serde(skip)]
    pub is_launched: bool,
    /// Whether it is managed, or nobody knows: what others cost is no part of any sum, even where their labels name a price.
    #[serde(skip)]
    pub is_managed: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its lifecycle phase.
    pub phase: Phase,
    /// Milli-cores that pods may ask for, and that they ask for.
    pub cpu: (i64, i64),
    /// The same of memory, in bytes.
    pub memory: (i64, i64),
    /// The same of pods.
    pub pods: (i64, i64),
    /// Of the larger of the shares of CPU and memory, what DaemonSets ask for; in thousandths of the node.
    pub daemons: i64,
    /// `keep`, `delete` or `replace`; `unknown` where something that it depends on could not be read; none for an unmanaged node.
    pub verdict: Option<&'static str>,
    /// The saving if it were disrupted now; none if it is kept, or its price is not known.
    pub saves: Option<Dollars>,
    /// The type of node that would come instead.
    pub replacement: Option<String>,
    /// Why it does not go at once although it may; or that it goes without a command, because its `expireAfter` has passed or its NodePool has more nodes than
    /// `spec.replicas`.
    pub waits: Option<String>,
    /// Its blockers.
    pub reasons: Vec<Arc<ReasonRow>>,
    /// What would happen without the blockers, as text.
    pub if_removed: Option<String>,
    /// The saving without the blockers.
    pub would_save: Option<Dollars>,
    /// With how many other nodes it goes in a command that would be decided now; none where it is in no such command. Where nodes save something together only,
    /// the verdict of each, which is about it alone, is `keep` all the same.
    pub in_next: Option<usize>,
}

impl NodeRow {
    /// The share of its allocatable CPU or memory that is requested, whichever is larger, in thousandths.
    pub fn dominant(&self) -> i64 {
        share(self.cpu).max(share(self.memory))
    }

    /// The part of its price that no pod requests, by the larger of the two shares.
    pub fn idle(&self) -> Price {
        let price = self.price.unwrap_or_default().0.0;
        let idle = i128::from(price) * i128::from((1000 - self.dominant()).clamp(0, 1000)) / 1000;
        Price(i64::try_from(idle).unwrap_or_default())
    }
}

/// Requested of allocatable, in thousandths.
pub fn share((allocatable, requested): (i64, i64)) -> i64 {
    if allocatable <= 0 {
        return 0;
    }
    let share = i128::from(requested) * 1000 / i128::from(allocatable);
    i64::try_from(share).unwrap_or(i64::MAX)
}

/// The nodes, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nodes(pub Vec<NodeRow>);

impl Nodes {
    pub(crate) fn of(judged: &Judged) -> Self {
        let mut known: BTreeSet<Arc<ReasonRow>> = BTreeSet::new();
        let is_known = judged.world.knows("verdict");
        // Without the NodeClaims nobody knows which nodes are managed.
        let is_managed_known = judged.world.knows("unmanaged");
        let is_coming_known = judged.world.knows("coming");
        let next = if is_known { next(judged) } else { BTreeMap::new() };
        let rows = judged.snapshot.node_ids().map(|id| {
            let mut row = row(judged, id, &mut known);
            row.is_managed |= !is_managed_known;
            row.in_next = next.get(judged.snapshot.node(id).provider_id.as_str()).copied();
            if row.phase == Phase::Coming && !is_coming_known {
                row.phase = Phase::Unknown;
            }
            if !is_known && (!is_managed_known || judged.snapshot.node(id).is_managed()) {
                row.verdict = Some("unknown");
            }
            row
        });
        let mut rows: Vec<NodeRow> = rows.collect();
        rows.sort_by(|left, right| left.name.cmp(&right.name));
        Self(rows)
    }

    /// What nodes that are not on their way out would save, each alone.
    pub(crate) fn could_save(&self) -> Price {
        let staying = self.0.iter().filter(|row| row.phase != Phase::Leaving);
        let saves = staying.filter_map(|row| row.saves);
        saves.map(|saves| saves.0.max(Price::ZERO)).sum()
    }

    /// Nodes that are not on their way out and may go, each alone or in one of the next commands, whose price is not known: what they save is in no sum.
    pub(crate) fn savings_without_price(&self) -> usize {
        let staying = self.0.iter().filter(|row| row.phase != Phase::Leaving);
        let may_go =
            |row: &NodeRow| row.in_next.is_some() || matches!(row.verdict, Some("delete" | "replace"));
        staying.filter(|row| row.price.is_none() && may_go(row)).count()
    }

    /// The row of a name.
    pub fn find(&self, name: &str) -> Option<&NodeRow> {
        let position = self.0.binary_search_by(|row| row.name.as_str().cmp(name));
        position.ok().map(|position| &self.0[position])
    }
}

/// By provider ID of the nodes of commands that would be decided now, how many others go with them.
fn next(judged: &Judged) -> BTreeMap<&str, usize> {
    let commands = judged.disrupted.commands.iter();
    let nodes = commands.flat_map(|command| {
        let others = command.nodes.len().saturating_sub(1);
        let nodes = command.nodes.iter();
        nodes.map(move |node| (node.provider_id.as_str(), others))
    });
    nodes.collect()
}

fn row(judged: &Judged, id: NodeId, known: &mut BTreeSet<Arc<ReasonRow>>) -> NodeRow {
    let view = judged.snapshot.node(id);
    let label = |key: &str| view.labels.get(key).filter(|value| !value.is_empty()).cloned();
    // What waits for it is not on it yet.
    let requested = |index: usize| {
        if view.is_stand_in() {
            0
        } else {
            view.requested[index]
        }
    };
    let amounts = |index: usize| (view.allocatable[index], requested(index));
    let daemons = |index: usize| share((view.allocatable[index], view.daemon_requested[index]));
    let created = view.node.as_ref().map(|node| &node.metadata);
    let created = created.or_else(|| view.claim.as_ref().map(|claim| &claim.metadata));
    let (cpu, memory) = (amounts(CPU), amounts(MEMORY));
    let verdict = judged.verdict(id);
    let price = judged.cost(view);
    // What is saved of a price that is not known, or of the one of another capacity type, is not what is saved.
    let saved = |before: Price, after: Price| price.map(|_| Dollars(before.saturating_sub(after)));
    let going = verdict.filter(|verdict| !verdict.is_keep());
    let mut reason = |blocker: &Blocker| {
        let row = ReasonRow::of(blocker);
        let shared = known.get(&row).cloned().unwrap_or_else(|| Arc::new(row));
        known.insert(shared.clone());
        shared
    };
    let then = verdict.and_then(|verdict| verdict.if_removed.as_ref());
    NodeRow {
        name: view.name.clone(),
        pool: view.pool_name.clone().filter(|name| !name.is_empty()),
        instance_type: label(labels::INSTANCE_TYPE),
        capacity_type: label(labels::CAPACITY_TYPE),
        zone: label(labels::ZONE),
        price: price.map(Dollars),
        is_launched: !view.is_stand_in(),
        is_managed: view.is_managed(),
        created: created
            .and_then(|meta| meta.creation_timestamp.as_ref())
            .map(|time| time.0),
        phase: phase(view),
        cpu,
        memory,
        // Where a Node does not say how many pods it takes, the count is all there is.
        pods: (
            view.allocatable[PODS],
            requested(PODS).max(active_pods(judged, view)),
        ),
        daemons: if share(cpu) >= share(memory) {
            daemons(CPU)
        } else {
            daemons(MEMORY)
        },
        verdict: verdict.map(Verdict::decision_text),
        saves: going.and_then(|verdict| saved(verdict.price_before, verdict.price_after)),
        replacement: going.and_then(|verdict| verdict.replacement.clone()),
        waits: verdict.and_then(|verdict| verdict.waits.clone()),
        reasons: verdict
            .map(|verdict| verdict.blockers.iter().map(&mut reason).collect())
            .unwrap_or_default(),
        if_removed: verdict
            .map(Verdict::if_removed_text)
            .filter(|text| !text.is_empty()),
        would_save: then.and_then(|then| saved(then.price_before, then.price_after)),
        in_next: None,
    }
}

fn active_pods(judged: &Judged, view: &NodeView) -> i64 {
    let pods = view.present_pods().iter().map(|pod| judged.snapshot.pod(*pod));
    let active = pods.filter(|pod| pod.active && !pod.promised).count();
    i64::try_from(active).unwrap_or(i64::MAX)
}

pub(crate) fn phase(view: &NodeView) -> Phase {
    let deleting =
        |meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| meta.deletion_timestamp.is_some();
    let is_going = view.marked_for_deletion
        || view.in_command
        || view.node.as_ref().is_some_and(|node| deleting(&node.metadata))
        || view.claim.as_ref().is_some_and(|claim| deleting(&claim.metadata));
    if is_going {
        Phase::Leaving
    } else if !view.initialized {
        Phase::Coming
    } else if !view.ready {
        Phase::Broken
    } else {
        Phase::Ready
    }
}

/// A column of texts that repeat: the distinct ones, and for each row its position among them.
#[derive(Serialize)]
struct Repeated<'a> {
    values: Vec<&'a str>,
    of: Vec<Option<usize>>,
}

impl<'a> Repeated<'a> {
    fn of(texts: impl Iterator<Item = Option<&'a str>> + Clone) -> Self {
        let mut values: Vec<&str> = texts.clone().flatten().collect();
        values.sort_unstable();
        values.dedup();
        let of = texts
            .map(|text| text.and_then(|text| values.binary_search(&text).ok()))
            .collect();
        Self { values, of }
    }
}

impl Serialize for Nodes {
    /// Columns of equal length, in the order of `name`; reasons are in a separate table, and the column has indexes into it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = &self.0;
        let table: BTreeSet<&ReasonRow> = rows
            .iter()
            .flat_map(|row| &row.reasons)
            .map(|one| &**one)
            .collect();
        let table: Vec<&ReasonRow> = table.into_iter().collect();
        let positions = |row: &NodeRow| -> Vec<usize> {
            let found = row.reasons.iter().map(|one| table.binary_search(&&**one));
            found.filter_map(Result::ok).collect()
        };
        let repeated = |text: fn(&NodeRow) -> Option<&str>| Repeated::of(rows.iter().map(text));
        let mut out = serializer.serialize_struct("Nodes", 21)?;
        macro_rules! column {
            ($name:literal, $row:ident => $value:expr) => {
                out.serialize_field($name, &rows.iter().map(|$row| $value).collect::<Vec<_>>())?;
            };
        }
        column!("name", row => &row.name);
        out.serialize_field("pool", &repeated(|row| row.pool.as_deref()))?;
        out.serialize_field("instanceType", &repeated(|row| row.instance_type.as_deref()))?;
        out.serialize_field("capacityType", &repeated(|row| row.capacity_type.as_deref()))?;
        out.serialize_field("zone", &repeated(|row| row.zone.as_deref()))?;
        column!("price", row => row.price);
        column!("created", row => row.created);
        out.serialize_field("phase", &repeated(|row| Some(row.phase.as_str())))?;
        column!("cpu", row => row.cpu);
        column!("memory", row => row.memory);
        column!("pods", row => row.pods);
        column!("daemons", row => row.daemons);
        out.serialize_field("verdict", &repeated(|row| row.verdict))?;
        column!("saves", row => row.saves);
        out.serialize_field("replacement", &repeated(|row| row.replacement.as_deref()))?;
        out.serialize_field("waits", &repeated(|row| row.waits.as_deref()))?;
        column!("reasons", row => positions(row));
        out.serialize_field("ifRemoved", &repeated(|row| row.if_removed.as_deref()))?;
        column!("wouldSave", row => row.would_save);
        column!("inNext", row => row.in_next);
        out.serialize_field("reasonTable", &table)?;
        out.end()
    }
}
