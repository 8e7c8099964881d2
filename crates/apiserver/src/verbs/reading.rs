//! Reads: get and list, with selectors, limits and resource versions.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::fields::packed::write_json;
use crate::kinds::conversion;
use crate::selector::{FieldPlace, FieldSelector, LabelSelector};
use crate::store::objects::{Key, Stored};
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Scope, State};
use crate::verbs::answer::Answer;
use crate::verbs::table;
use crate::wire::accept::{Form, MetaVersion};
use crate::wire::request::Request;

/// Which objects of a resource are meant.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub(crate) namespace: String,
    pub(crate) name: String,
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Filter {
    pub(crate) fn of(request: &Request, scope: &Scope) -> ApiResult<Self> {
        let resource = &scope.resource;
        let labels = LabelSelector::parse(request.parameter("labelSelector"))?;
        let fields = FieldSelector::parse(request.parameter("fieldSelector"), |path| {
            place_of(resource, path)
        })?;
        Ok(Self {
            namespace: scope.namespace.clone(),
            name: scope.name.clone(),
            labels,
            fields,
        })
    }

    pub(crate) fn matches(&self, key: &Key, value: &Value) -> bool {
        (self.namespace.is_empty() || self.namespace == key.0)
            && (self.name.is_empty() || self.name == key.1)
            && (self.labels.is_empty() || self.labels.matches(&value["metadata"]["labels"]))
            && (self.fields.is_empty() || self.fields.matches(value))
    }

    /// The objects among which it can find any: those of its namespace.
    pub(crate) fn range<'a>(
        &self,
        objects: &'a BTreeMap<Key, Arc<Stored>>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        self.range_after(objects, None)
    }

    fn range_after<'a>(
        &self,
        objects: &'a BTreeMap<Key, Arc<Stored>>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        let first = (self.namespace.clone(), String::new());
        let start = match after {
            Some(key) if *key >= first => Bound::Excluded(key.clone()),
            _ => Bound::Included(first),
        };
        let namespace = self.namespace.clone();
        objects
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.is_empty() || key.0 == namespace)
    }
}

/// Where a path of a field selector leads in a stored object.
///
/// # Errors
/// The resource cannot be selected by it, in a real server's words.
fn place_of(resource: &Resource, path: &str) -> Result<FieldPlace, String> {
    let own = core_fields(resource);
    if path == "metadata.name" || path == "metadata.namespace" && resource.namespaced || own.contains(&path) {
        return Ok(core_place(path));
    }
    match resource.custom() {
        Some(version) if version.selectable_fields().iter().any(|field| field == path) => {
            Ok(FieldPlace::at(path))
        }
        Some(_) => Err(format!("field label not supported: {path}")),
        None if own.is_empty() => Err(format!(
            "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )),
        None => Err(format!("field label not supported: {path}")),
    }
}

/// Where a path that core resources know leads.
fn core_place(path: &str) -> FieldPlace {
    match path {
        "source" => FieldPlace::first_of(["source.component", "reportingComponent"]),
        "reportingController" => FieldPlace::at("reportingComponent"),
        "status.successful" => FieldPlace::at("status.succeeded").or("0"),
        "status.replicas" => FieldPlace::at(path).or("0"),
        "spec.unschedulable" | "spec.hostNetwork" => FieldPlace::at(path).or("false"),
        other => match other.strip_prefix("regarding.") {
            Some(rest) => FieldPlace::at(&format!("involvedObject.{rest}")),
            None => FieldPlace::at(other),
        },
    }
}

/// Paths that the field selectors of core resources may name.
fn core_fields(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("batch", "jobs") => &["status.successful"],
        ("apps", "replicasets") | ("", "replicationcontrollers") => &["status.replicas"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        _ => &[],
    }
}

/// Only what every object has.
pub(crate) fn partial(value: &Value, version: MetaVersion) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": value["metadata"]})
}

pub(crate) fn parse_revision(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

/// The answer to a request for a revision that does not exist yet.
pub(crate) fn too_large(asked: u64, current: u64) -> ApiError {
    let mut error = ApiError::new(
        504,
        "Timeout",
        format!("Too large resource version: {asked}, current: {current}"),
    );
    error.details =
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
    error.retry_after_seconds = 1;
    error
}

impl ApiServer {
    pub(crate) fn get(&self, state: &State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let asked = parse_revision(request.parameter("resourceVersion")).map_err(ApiError::bad_request)?;
        if asked > state.revision {
            return Err(too_large(asked, state.revision));
        }
        let stored = state.find(scope)?;
        Ok(self.show(request, &scope.resource, &stored))
    }

    /// One object in the form that the client wants.
    pub(crate) fn show(&self, request: &Request, resource: &Resource, stored: &Stored) -> Answer {
        self.shown(request, resource, stored, 200, Vec::new())
    }

    pub(crate) fn list(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        check_list_options(request)?;
        let filter = Filter::of(request, scope)?;
        let page = Page::of(state, request)?;
        let storage = scope.resource.storage();
        let revision = page.revision;
        let current = state.revision;
        let collection = state.collection(&storage);
        let past;
        let objects: &BTreeMap<Key, Arc<Stored>> = if revision == current {
            &collection.objects
        } else {
            let oldest = collection.compacted;
            past = collection
                .at(revision)
                .ok_or_else(|| page.expired(revision, oldest))?;
            &past
        };
        let mut chosen: Vec<(&Key, &Arc<Stored>)> = Vec::new();
        let mut remaining = 0_u64;
        for (key, stored) in filter.range_after(objects, page.start.as_ref()) {
            if !filter.matches(key, &stored.value) {
                continue;
            }
            if page.limit > 0 && chosen.len() == page.limit {
                remaining += 1;
                continue;
            }
            chosen.push((key, stored));
        }
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if scope.resource.custom().is_some() && !matches!(request.form(), Form::Table(_)) {
            // Lists of custom resources have no Go type that would leave it out.
            meta["continue"] = json!("");
        }
        if let (Some((last, _)), true) = (chosen.last(), remaining > 0) {
            meta["continue"] = json!(page.token(last));
            if filter.labels.is_empty() && filter.fields.is_empty() {
                meta["remainingItemCount"] = json!(remaining);
            }
        }
        Ok(self.show_list(request, &scope.resource, &chosen, &meta))
    }

    pub(crate) fn show_list(
        &self,
        request: &Request,
        resource: &Resource,
        chosen: &[(&Key, &Arc<Stored>)],
        meta: &Value,
    ) -> Answer {
        match request.form() {
            Form::Table(version) => {
                let values: Vec<&Value> = chosen.iter().map(|(_, stored)| &stored.value).collect();
                let wanted = (version, table::include(request));
                return Answer::ok(table::render(resource, &values, meta, wanted, self.now()));
            }
            Form::Partial(version) | Form::PartialList(version) => {
                let items: Vec<Value> = chosen
                    .iter()
                    .map(|(_, stored)| partial(&stored.value, version))
                    .collect();
                return Answer::ok(
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": version.api_version(), "metadata": meta, "items": items}),
                );
            }
            Form::Object => {}
        }
        let mut body = Vec::with_capacity(chosen.len() * 1536 + 256);
        body.extend_from_slice(
            format!(
                "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
                resource.list_kind,
                resource.api_version()
            )
            .as_bytes(),
        );
        for (index, (_, stored)) in chosen.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            write_item(resource, stored, &mut body);
        }
        body.extend_from_slice(b"]}\n");
        Answer::Encoded(200, body.into(), Vec::new())
    }
}

/// Appends an item of a list. Items of core kinds do not say again what they are; custom ones do.
fn write_item(resource: &Resource, stored: &Stored, body: &mut Vec<u8>) {
    if conversion::is_converted(resource) {
        let mut object = conversion::to_shown(resource, &stored.value);
        if let Some(map) = object.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        write_json(body, &object);
    } else if resource.custom().is_none() {
        stored.write_untyped(body);
    } else if conversion::is_stored_as_shown(resource, &stored.value) {
        body.extend_from_slice(&stored.json());
    } else {
        write_json(body, &conversion::view(resource, &stored.value));
    }
}

fn check_list_options(request: &Request) -> ApiResult<()> {
    request.whole_number("timeoutSeconds")?;
    let matched = request.parameter("resourceVersionMatch");
    let refuse = |reason: &str, field: &str, message: &str| {
        Err(ApiError::bad_options("ListOptions", reason, field, message))
    };
    if request.query.contains_key("sendInitialEvents") {
        return refuse(
            "FieldValueForbidden",
            "sendInitialEvents",
            "Forbidden: sendInitialEvents is forbidden for list",
        );
    }
    match (matched, request.parameter("resourceVersion")) {
        ("", _) => Ok(()),
        (_, "") => refuse(
            "FieldValueForbidden",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        _ if !request.parameter("continue").is_empty() => refuse(
            "FieldValueForbidden",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        ("Exact", "0") => refuse(
            "FieldValueForbidden",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        ("Exact" | "NotOlderThan", _) => Ok(()),
        (other, _) => refuse(
            "FieldValueNotSupported",
            "resourceVersionMatch",
            &format!("Unsupported value: {other:?}: supported values: \"Exact\", \"NotOlderThan\", \"\""),
        ),
    }
}

/// Which part of a list, as of when.
struct Page {
    revision: u64,
    start: Option<Key>,
    limit: usize,
    continued: bool,
}

impl Page {
    fn of(state: &State, request: &Request) -> ApiResult<Self> {
        let limit = match request.parameter("limit") {
            "" => 0,
            text => text.parse().map_err(|_| {
                ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            })?,
        };
        let token = request.parameter("continue");
        if !token.is_empty() {
            if !matches!(request.parameter("resourceVersion"), "" | "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let (revision, start) = read_token(token).ok_or_else(|| {
                ApiError::bad_request("invalid continue token: continue key is not valid: the token does not come from this server")
            })?;
            return Ok(Self {
                revision: if revision == NOW { state.revision } else { revision },
                start: Some(start),
                limit,
                continued: true,
            });
        }
        let asked = parse_revision(request.parameter("resourceVersion"))
            .map_err(|problem| ApiError::bad_request(format!("invalid resource version: {problem}")))?;
        if asked > state.revision {
            return Err(too_large(asked, state.revision));
        }
        let exact = request.parameter("resourceVersionMatch") == "Exact"
            // A page of a list at a version is a page of exactly that version.
            || request.parameter("resourceVersionMatch").is_empty() && limit > 0 && asked > 0;
        Ok(Self {
            revision: if exact { asked } else { state.revision },
            start: None,
            limit,
            continued: false,
        })
    }

    fn expired(&self, revision: u64, oldest: u64) -> ApiError {
        if self.continued {
            let mut error = ApiError::new(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            );
            error.continue_token = self.start.as_ref().map(|start| token(NOW, start));
            error
        } else {
            ApiError::expired(revision, oldest)
        }
    }

    fn token(&self, last: &Key) -> String {
        token(self.revision, last)
    }
}

/// In a token: the list continues with the objects that exist when it is used.
const NOW: u64 = 0;

fn token(revision: u64, last: &Key) -> String {
    let text = json!([revision, last.0, last.1]).to_string();
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn read_token(token: &str) -> Option<(u64, Key)> {
    let bytes: Option<Vec<u8>> = (0..token.len())
        .step_by(2)
        .map(|index| u8::from_str_radix(token.get(index..index + 2)?, 16).ok())
        .collect();
    let value: Value = serde_json::from_slice(&bytes?).ok()?;
    Some((
        value[0].as_u64()?,
        (value[1].as_str()?.to_owned(), value[2].as_str()?.to_owned()),
    ))
}
