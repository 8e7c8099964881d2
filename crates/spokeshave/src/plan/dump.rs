//! Reading a dump: the objects of a file as `kubectl get … -o yaml` or `-o json` writes it.
//!
//! Owns the messages about files: each names the document, the item and the line. A file that is cut off or is something else is an error; one
//! object that cannot be read is reported and ignored. It never decides anything and never completes what is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{CapacityBuffer, DisruptionPolicy, NodeClaim, NodeOverlay, NodePool};
use spokeshave_model::Pod;
use spokeshave_plan::buffers::{Shapes, Workload, WorkloadKind};

use super::autoscalers::Autoscaler;
use super::documents::{Document, Style, documents, line_of, list_parts};
use super::object::{self, Envelope, Found, NodeClass};
use super::unreadable::{Unreadable, stand_in};
use super::workloads::WorkloadManifest;
use super::written::Written;
use crate::field;
use crate::lines::Lines;
use crate::yaml;

/// The objects of a dump, in the order of the file.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) pods: Vec<Arc<Pod>>,
    pub(crate) node_pools: Vec<Arc<NodePool>>,
    pub(crate) node_claims: Vec<Arc<NodeClaim>>,
    pub(crate) node_classes: Vec<NodeClass>,
    pub(crate) daemon_sets: Vec<Arc<DaemonSet>>,
    pub(crate) pod_disruption_budgets: Vec<Arc<PodDisruptionBudget>>,
    pub(crate) namespaces: Vec<Arc<Namespace>>,
    pub(crate) persistent_volumes: Vec<Arc<PersistentVolume>>,
    pub(crate) persistent_volume_claims: Vec<Arc<PersistentVolumeClaim>>,
    pub(crate) storage_classes: Vec<Arc<StorageClass>>,
    pub(crate) csi_nodes: Vec<Arc<CSINode>>,
    pub(crate) services: Vec<Arc<Service>>,
    /// What controllers of pods select, by `controller_key`.
    pub(crate) controllers: BTreeMap<String, LabelSelector>,
    pub(crate) disruption_policies: Vec<Arc<DisruptionPolicy>>,
    pub(crate) disruptions: Vec<Arc<Disruption>>,
    pub(crate) node_overlays: Vec<Arc<NodeOverlay>>,
    pub(crate) capacity_buffers: Vec<Arc<CapacityBuffer>>,
    pub(crate) named: Named,
    /// What makes pods, for files that hold it instead of them.
    pub(crate) workloads: Vec<WorkloadManifest>,
    pub(crate) autoscalers: Vec<Autoscaler>,
    /// Objects that are needed as they were written.
    pub(crate) written: Vec<Written>,
    /// Kinds and versions that decisions do not read, with their count.
    pub(crate) skipped: BTreeMap<(String, String), usize>,
    /// Kinds and older versions of them that nothing reads but `convert`, with the names of their objects.
    pub(crate) outdated: BTreeMap<(String, String), Vec<String>>,
    /// Objects that could not be read.
    pub(crate) unreadable: Vec<Unreadable>,
    /// All objects, the skipped ones included.
    pub(crate) objects: usize,
    /// Lists, which may be empty.
    pub(crate) lists: usize,
}

/// What CapacityBuffers may name, by `namespace/name`.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pod_templates: BTreeMap<String, Arc<PodTemplate>>,
    workloads: BTreeMap<(WorkloadKind, String), Workload>,
}

impl Shapes for Named {
    fn pod_template(&self, namespace: &str, name: &str) -> Option<Arc<PodTemplate>> {
        self.pod_templates.get(&format!("{namespace}/{name}")).cloned()
    }

    fn workload(&self, kind: WorkloadKind, namespace: &str, name: &str) -> Option<Workload> {
        self.workloads
            .get(&(kind, format!("{namespace}/{name}")))
            .cloned()
    }
}

impl Dump {
    /// Adds another dump's objects after these.
    pub(crate) fn append(&mut self, other: Dump) {
        self.nodes.extend(other.nodes);
        self.pods.extend(other.pods);
        self.node_pools.extend(other.node_pools);
        self.node_claims.extend(other.node_claims);
        self.node_classes.extend(other.node_classes);
        self.daemon_sets.extend(other.daemon_sets);
        self.pod_disruption_budgets.extend(other.pod_disruption_budgets);
        self.namespaces.extend(other.namespaces);
        self.persistent_volumes.extend(other.persistent_volumes);
        self.persistent_volume_claims
            .extend(other.persistent_volume_claims);
        self.storage_classes.extend(other.storage_classes);
        self.csi_nodes.extend(other.csi_nodes);
        self.services.extend(other.services);
        self.controllers.extend(other.controllers);
        self.disruption_policies.extend(other.disruption_policies);
        self.disruptions.extend(other.disruptions);
        self.node_overlays.extend(other.node_overlays);
        self.capacity_buffers.extend(other.capacity_buffers);
        self.named.pod_templates.extend(other.named.pod_templates);
        self.named.workloads.extend(other.named.workloads);
        self.workloads.extend(other.workloads);
        self.autoscalers.extend(other.autoscalers);
        self.written.extend(other.written);
        for (kind, count) in other.skipped {
            *self.skipped.entry(kind).or_default() += count;
        }
        for (kind, names) in other.outdated {
            self.outdated.entry(kind).or_default().extend(names);
        }
        self.unreadable.extend(other.unreadable);
        self.objects += other.objects;
        self.lists += other.lists;
    }

    /// Takes in one object; a list that could not be taken apart as text is none.
    pub(super) fn take_in(&mut self, found: Found) {
        self.objects += 1;
        match found {
            Found::Node(object) => self.nodes.push(object),
            Found::Pod(object) => self.pods.push(Arc::new(object)),
            Found::NodePool(object) => self.node_pools.push(object),
            Found::NodeClaim(object) => self.node_claims.push(object),
            Found::NodeClass(object) => self.node_classes.push(object),
            Found::DaemonSet(object) => self.daemon_sets.push(object),
            Found::PodDisruptionBudget(object) => self.pod_disruption_budgets.push(object),
            Found::Namespace(object) => self.namespaces.push(object),
            Found::PersistentVolume(object) => self.persistent_volumes.push(object),
            Found::PersistentVolumeClaim(object) => self.persistent_volume_claims.push(object),
            Found::StorageClass(object) => self.storage_classes.push(object),
            Found::CsiNode(object) => self.csi_nodes.push(object),
            Found::Service(object) => self.services.push(object),
            Found::Controller(key, selector, manifest) => {
                self.controllers.insert(key, selector);
                self.workloads.push(manifest);
            }
            Found::DisruptionPolicy(object) => self.disruption_policies.push(object),
            Found::Disruption(object) => self.disruptions.push(object),
            Found::NodeOverlay(object) => self.node_overlays.push(object),
            Found::CapacityBuffer(object) => self.capacity_buffers.push(object),
            Found::PodTemplate(object) => {
                self.named.pod_templates.insert(key(&object.metadata), object);
            }
            Found::Workload(found) => {
                self.controllers.extend(found.selects);
                let key = (found.kind, found.name);
                self.named.workloads.insert(key, found.workload);
                self.workloads.push(found.manifest);
            }
            Found::Runs(manifest) => self.workloads.push(manifest),
            Found::Autoscaler(object) => self.autoscalers.push(object),
            Found::Owner => {}
            Found::Outdated(kind, name) => self.outdated.entry(kind).or_default().push(name),
            Found::Unknown(kind) => *self.skipped.entry(kind).or_default() += 1,
            Found::List { .. } => self.objects -= 1,
        }
    }

    /// Takes in an object that cannot be read, with what counts in its place.
    pub(super) fn take_in_unreadable(&mut self, unreadable: Unreadable) {
        self.objects += 1;
        self.disruption_policies.extend(unreadable.stand_in.clone());
        self.unreadable.push(unreadable);
    }

    /// Neither an object nor a list, which may be empty.
    pub(crate) fn is_blank(&self) -> bool {
        self.objects + self.lists == 0
    }

    /// Names the file in messages about it, where there are several.
    pub(crate) fn of_file(mut self, origin: &str) -> Self {
        for unreadable in &mut self.unreadable {
            unreadable.place = format!("{origin}, {}", unreadable.place);
        }
        self
    }
}

/// Reads all objects of a file; `origin` names it in messages.
///
/// # Errors
/// The file is not text, is cut off, or holds something else than Kubernetes objects: names the document and the line.
pub(crate) fn read(origin: &str, bytes: &[u8]) -> Result<Dump> {
    let text = as_text(bytes).with_context(|| origin.to_owned())?;
    let mut reader = Reader {
        origin,
        text,
        dump: Dump::default(),
        pods: Vec::with_capacity(PODS_TOGETHER),
    };
    for document in documents(text) {
        let read = match document.style() {
            Style::Json => reader.json(&document),
            Style::Yaml => reader.yaml(&document),
        };
        read.with_context(|| origin.to_owned())?;
    }
    reader.flush();
    Ok(reader.dump)
}

/// The text of a file.
///
/// # Errors
/// It is compressed, or no UTF-8.
pub(crate) fn as_text(bytes: &[u8]) -> Result<&str> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        bail!("is compressed; decompress it first, for example with `gunzip -c FILE | spokeshave … -f -`");
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        anyhow!("line {line}: is not UTF-8 text; expected YAML or JSON")
    })
}

/// So many pods get their place in memory one after the other: what hangs on them then lies together, and can be given back together once it is
/// not needed any more.
const PODS_TOGETHER: usize = 1024;

struct Reader<'a> {
    origin: &'a str,
    text: &'a str,
    dump: Dump,
    /// Pods that are not in the dump yet.
    pods: Vec<Pod>,
}

/// What a parser says, without its own idea of where: its lines count from the beginning of a piece.
pub(crate) fn without_place(message: &str) -> &str {
    // A hint for programmers, not for those who write the file.
    let cut = [" at line ", "\n", ", set DuplicateKeyPolicy"]
        .iter()
        .filter_map(|mark| message.find(mark))
        .min();
    &message[..cut.unwrap_or(message.len())]
}

/// It holds parts of a Helm template. Braces alone are not enough: scripts and alerting rules contain them too.
pub(crate) fn is_template(text: &str) -> bool {
    let marks = [".Values", ".Release", ".Chart", "include \"", "template \""];
    text.contains("{{") && marks.iter().any(|mark| text.contains(mark))
}

fn template_hint(text: &str) -> &'static str {
    match is_template(text) {
        true => "; it holds parts of a Helm template: use what `helm template` prints",
        false => "",
    }
}

impl<'a> Reader<'a> {
    /// `document 2, item 7, line 120`.
    fn at(&self, document: &Document<'_>, item: Option<usize>, line: usize) -> String {
        let item = item.map(|item| format!(", item {item}")).unwrap_or_default();
        format!("document {}{item}, line {line}", document.number)
    }

    fn json(&mut self, document: &Document<'a>) -> Result<()> {
        let first_line = |reader: &Self| line_of(reader.text, document.offset);
        let mut stream = serde_json::Deserializer::from_str(document.text).into_iter::<&RawValue>();
        while let Some(value) = stream.next() {
            let value = value.map_err(|error| {
                let line = first_line(self) + error.line().saturating_sub(1);
                let place = self.at(document, None, line);
                if error.is_eof() {
                    anyhow!("{place}: the JSON ends in the middle of a value; the file seems to be cut off")
                } else {
                    let (message, hint) = (error.to_string(), template_hint(document.text));
                    anyhow!("{place}: is not valid JSON: {}{hint}", without_place(&message))
                }
            })?;
            let offset = document.offset + (stream.byte_offset() - value.get().len());
            let values: Vec<&RawValue> = match serde_json::from_str::<Vec<&RawValue>>(value.get()) {
                Ok(values) => values,
                Err(_) => vec![value],
            };
            for value in values {
                self.json_value(document, value.get(), offset)?;
            }
        }
        Ok(())
    }

    fn json_value(&mut self, document: &Document<'a>, text: &'a str, offset: usize) -> Result<()> {
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
            let line = line_of(self.text, offset) + error.line().saturating_sub(1);
            let place = self.at(document, None, line);
            anyhow!(
                "{place}: is not a Kubernetes object: {}",
                field::problem(text, &error)
            )
        })?;
        let kind = envelope.kind.as_deref().unwrap_or_default();
        let Some(items) = envelope.items.filter(|_| kind.ends_with("List")) else {
            return self.json_object(document, None, text, None);
        };
        self.dump.lists += 1;
        let default = item_identity(envelope.api_version.as_deref(), kind);
        for (index, item) in items.into_iter().enumerate() {
            self.json_object(document, Some(index + 1), item.get(), default.clone())?;
        }
        Ok(())
    }

    fn json_object(
        &mut self,
        document: &Document<'a>,
        item: Option<usize>,
        text: &'a str,
        default: Option<(String, String)>,
    ) -> Result<()> {
        let offset = text.as_ptr() as usize - self.text.as_ptr() as usize;
        match object::read(text, default.as_ref()) {
            Ok(found) => {
                self.write_down(&found, Piece::new(offset, text), text);
                self.keep(document, item, found)
            }
            Err(error) => {
                let line = line_of(self.text, offset) + error.line().saturating_sub(1);
                let wrong = Wrong {
                    line,
                    message: field::problem(text, &error),
                    tree: serde_json::from_str(text).ok(),
                    default: default.as_ref(),
                    piece: Some(Piece::new(offset, text)),
                };
                self.refuse(document, item, wrong)
            }
        }
    }

    fn yaml(&mut self, document: &Document<'a>) -> Result<()> {
        let Some(parts) = list_parts(document.text) else {
            return self.yaml_object(document, None, document.offset, document.text, false, None);
        };
        let header: Identity = yaml::to_json(&parts.header)
            .ok()
            .and_then(|header| serde_json::from_str(&header).ok())
            .unwrap_or_default();
        let kind = header.kind.unwrap_or_default();
        if !kind.ends_with("List") {
            let line = line_of(self.text, document.offset + document.text.trim_end().len());
            let place = self.at(document, None, line);
            bail!(
                "{place}: has `items:` but no `kind: List` after them, where kubectl writes it; the file seems to be cut off"
            );
        }
        self.dump.lists += 1;
        let default = item_identity(header.api_version.as_deref(), &kind);
        for (index, (offset, text)) in parts.items.into_iter().enumerate() {
            let offset = document.offset + offset;
            self.yaml_object(document, Some(index + 1), offset, text, true, default.clone())?;
        }
        Ok(())
    }

    /// Reads one object, or the one element of a sequence.
    fn yaml_object(
        &mut self,
        document: &Document<'a>,
        item: Option<usize>,
        offset: usize,
        text: &'a str,
        in_sequence: bool,
        default: Option<(String, String)>,
    ) -> Result<()> {
        let wrong = |reader: &Self, error: &serde_saphyr::Error| {
            let inner = error.location().map_or(1, |location| location.line());
            let inner = usize::try_from(inner).unwrap_or(1).max(1);
            let place = reader.at(document, item, line_of(reader.text, offset) + inner - 1);
            let (message, hint) = (error.to_string(), template_hint(text));
            anyhow!("{place}: is not valid YAML: {}{hint}", without_place(&message))
        };
        let json = if in_sequence {
            yaml::only_item_to_json(text)
        } else {
            yaml::to_json(text)
        };
        let json = json.map_err(|error| wrong(self, &error))?;
        let piece = Piece {
            offset,
            text,
            in_sequence,
        };
        if let Ok(found) = object::read(&json, default.as_ref()) {
            self.write_down(&found, piece, &json);
            return self.keep(document, item, found);
        }
        // Once more for the line, which a piece of text in a row has lost.
        let json = yaml::to_json_by_line(text, in_sequence).map_err(|error| wrong(self, &error))?;
        match object::read(&json, default.as_ref()) {
            Ok(found) => self.keep(document, item, found),
            Err(error) => {
                let wrong = Wrong {
                    line: line_of(self.text, offset) + error.line().saturating_sub(1),
                    message: field::problem(&json, &error),
                    tree: serde_json::from_str(&json).ok(),
                    default: default.as_ref(),
                    piece: Some(piece),
                };
                self.refuse(document, item, wrong)
            }
        }
    }

    /// Keeps the object as it was written where that is needed, too.
    fn write_down(&mut self, found: &Found, piece: Piece<'_>, json: &str) {
        let Some((api_version, kind)) = found.kept_as_written() else {
            return;
        };
        if let Ok(object) = serde_json::from_str(json) {
            self.push_written(&api_version, &kind, object, Some(piece));
        }
    }

    fn push_written(&mut self, api_version: &str, kind: &str, object: Value, piece: Option<Piece<'_>>) {
        let (line, lines) = match piece {
            Some(piece) => {
                let line = line_of(self.text, piece.offset);
                (line, Lines::of(piece.text, piece.in_sequence, line))
            }
            None => (1, Lines::default()),
        };
        self.dump.written.push(Written {
            file: self.origin.to_owned(),
            line,
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            object,
            lines,
        });
    }

    fn flush(&mut self) {
        self.dump.pods.extend(self.pods.drain(..).map(Arc::new));
    }

    fn keep(&mut self, document: &Document<'_>, item: Option<usize>, found: Found) -> Result<()> {
        match found {
            Found::Pod(object) => {
                self.dump.objects += 1;
                self.pods.push(object);
                if self.pods.len() == PODS_TOGETHER {
                    self.flush();
                }
            }
            Found::List { default, items } => {
                self.dump.lists += 1;
                let line = line_of(self.text, document.offset);
                for (index, value) in items.into_iter().enumerate() {
                    let item = Some(index + 1).or(item);
                    match object::read(value.get(), default.as_ref()) {
                        Ok(found) => {
                            if let (Some((api_version, kind)), Ok(object)) =
                                (found.kept_as_written(), serde_json::from_str(value.get()))
                            {
                                self.push_written(&api_version, &kind, object, None);
                            }
                            self.keep(document, item, found)?;
                        }
                        Err(error) => {
                            let wrong = Wrong {
                                line,
                                message: field::problem(value.get(), &error),
                                tree: serde_json::from_str(value.get()).ok(),
                                default: default.as_ref(),
                                piece: None,
                            };
                            self.refuse(document, item, wrong)?;
                        }
                    }
                }
            }
            found => self.dump.take_in(found),
        }
        Ok(())
    }

    /// An object of a kind that decisions read is named, and left out if nothing counts in its place; anything else makes the file a foreign one.
    fn refuse(&mut self, document: &Document<'_>, item: Option<usize>, wrong: Wrong<'_>) -> Result<()> {
        let place = self.at(document, item, wrong.line);
        let identity: Identity = wrong
            .tree
            .as_ref()
            .and_then(|tree| Identity::deserialize(tree).ok())
            .unwrap_or_default();
        let default = wrong.default;
        let kind = identity.kind.or_else(|| default.map(|(_, kind)| kind.clone()));
        let Some(kind) = kind.filter(|kind| !kind.is_empty()) else {
            let message = &wrong.message;
            let said = message
                .strip_prefix("is not a Kubernetes object: ")
                .unwrap_or(message);
            bail!("{place}: is not a Kubernetes object: {said}");
        };
        let version = identity.api_version;
        let version = version.or_else(|| default.map(|(version, _)| version.clone()));
        let stand_in = stand_in(version.as_deref().unwrap_or_default(), &kind, wrong.tree.as_ref());
        if let (Some(version), "NodePool", Some(tree)) = (version, kind.as_str(), wrong.tree) {
            self.push_written(&version, &kind, tree, wrong.piece);
        }
        let meta = identity.metadata;
        let name = meta.name.unwrap_or_else(|| "without a name".to_owned());
        let name = match meta.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        self.dump.take_in_unreadable(Unreadable {
            object: format!("{kind} {name}"),
            file: self.origin.to_owned(),
            kind,
            place,
            problem: wrong.message,
            stand_in,
        });
        Ok(())
    }
}

/// The text of one object in a file.
#[derive(Clone, Copy)]
struct Piece<'t> {
    /// Where it begins, in bytes.
    offset: usize,
    text: &'t str,
    /// It is the one element of a sequence.
    in_sequence: bool,
}

impl<'t> Piece<'t> {
    fn new(offset: usize, text: &'t str) -> Self {
        Piece {
            offset,
            text,
            in_sequence: false,
        }
    }
}

/// An object that cannot be read.
struct Wrong<'t> {
    line: usize,
    message: String,
    /// The object as JSON, as far as it is some.
    tree: Option<Value>,
    /// Version and kind of the items of its list.
    default: Option<&'t (String, String)>,
    piece: Option<Piece<'t>>,
}

/// The part of an object that says which one it is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Identity {
    api_version: Option<String>,
    kind: Option<String>,
    metadata: Name,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Name {
    namespace: Option<String>,
    name: Option<String>,
}

/// Items of a `PodList` say neither version nor kind; those of a `List` do.
fn item_identity(api_version: Option<&str>, kind: &str) -> Option<(String, String)> {
    let kind = kind.strip_suffix("List").filter(|kind| !kind.is_empty())?;
    Some((api_version?.to_owned(), kind.to_owned()))
}

/// `namespace/name`, or the name of an object without namespace.
pub(crate) fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or("");
    match meta.namespace.as_deref() {
        Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
        _ => name.to_owned(),
    }
}
