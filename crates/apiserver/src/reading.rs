//! Reads: get and list, with selectors, limits and resource versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::registry::Resource;
use crate::request::Request;
use crate::response::Answer;
use crate::selector::{FieldSelector, LabelSelector};
use crate::server::{ApiServer, Scope, State};
use crate::store::{Key, Stored};
use crate::{events, table};

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
        let custom: Vec<String> = resource
            .custom()
            .map(|version| version.selectable_fields())
            .unwrap_or_default();
        let supported = |path: &str| {
            matches!(path, "metadata.name" | "metadata.namespace")
                || core_fields(resource).contains(&path)
                || custom.iter().any(|field| field == path)
        };
        let fields =
            FieldSelector::parse(request.parameter("fieldSelector"), supported).map_err(|mut error| {
                if error.message.starts_with("field label not supported") {
                    error.message = format!(
                        "Unable to find {:?} that match label selector {:?}, field selector {:?}: {}",
                        resource.plural,
                        request.parameter("labelSelector"),
                        request.parameter("fieldSelector"),
                        error.message
                    );
                }
                error
            })?;
        Ok(Self {
            namespace: scope.namespace.clone(),
            name: scope.name.clone(),
            labels: LabelSelector::parse(request.parameter("labelSelector"))?,
            fields,
        })
    }

    pub(crate) fn matches(&self, key: &Key, value: &Value) -> bool {
        (self.namespace.is_empty() || self.namespace == key.0)
            && (self.name.is_empty() || self.name == key.1)
            && (self.labels.is_empty() || self.labels.matches(&value["metadata"]["labels"]))
            && (self.fields.is_empty() || self.fields.matches(value))
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

/// An object in the version that was asked for.
pub(crate) fn view(resource: &Resource, value: &Value) -> Value {
    if resource.group == "events.k8s.io" {
        return events::to_new(value);
    }
    let mut value = value.clone();
    value["apiVersion"] = json!(resource.api_version());
    value
}

/// True when objects are kept exactly as they are shown.
pub(crate) fn is_stored_as_shown(resource: &Resource, value: &Value) -> bool {
    resource.group != "events.k8s.io"
        && value["apiVersion"]
            .as_str()
            .is_some_and(|version| version == resource.api_version())
}

/// Only what every object has.
pub(crate) fn partial(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}

pub(crate) fn parse_revision(text: &str) -> ApiResult<u64> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        ))
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
        let stored = state.find(scope)?;
        let asked = parse_revision(request.parameter("resourceVersion"))?;
        if asked > state.revision {
            return Err(too_large(asked, state.revision));
        }
        Ok(self.show(request, &scope.resource, &stored))
    }

    /// One object in the form that the client wants.
    pub(crate) fn show(&self, request: &Request, resource: &Resource, stored: &Stored) -> Answer {
        if request.wants_table() {
            let meta = json!({"resourceVersion": stored.revision.to_string()});
            return Answer::ok(table::render(
                resource,
                &[&stored.value],
                &meta,
                table::include(request),
                self.now(),
            ));
        }
        if request.wants_partial_metadata() {
            return Answer::ok(partial(&stored.value));
        }
        if is_stored_as_shown(resource, &stored.value) {
            Answer::Encoded(stored.json())
        } else {
            Answer::ok(view(resource, &stored.value))
        }
    }

    pub(crate) fn list(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
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
        let mut more = None;
        let mut remaining = 0_u64;
        let start = page
            .start
            .as_ref()
            .map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        for (key, stored) in objects.range((start, std::ops::Bound::Unbounded)) {
            if !filter.matches(key, &stored.value) {
                continue;
            }
            if page.limit > 0 && chosen.len() == page.limit {
                more = more.or_else(|| chosen.last().map(|(key, _)| (*key).clone()));
                remaining += 1;
                continue;
            }
            chosen.push((key, stored));
        }
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if let Some(last) = more {
            meta["continue"] = json!(page.token(&last));
            if filter.labels.is_empty() && filter.fields.is_empty() {
                meta["remainingItemCount"] = json!(remaining);
            }
        }
        Ok(self.show_list(request, &scope.resource, &chosen, &meta))
    }

    fn show_list(
        &self,
        request: &Request,
        resource: &Resource,
        chosen: &[(&Key, &Arc<Stored>)],
        meta: &Value,
    ) -> Answer {
        if request.wants_table() {
            let values: Vec<&Value> = chosen.iter().map(|(_, stored)| &stored.value).collect();
            return Answer::ok(table::render(
                resource,
                &values,
                meta,
                table::include(request),
                self.now(),
            ));
        }
        if request.wants_partial_metadata() {
            let items: Vec<Value> = chosen.iter().map(|(_, stored)| partial(&stored.value)).collect();
            return Answer::ok(
                json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "items": items}),
            );
        }
        let mut body = Vec::with_capacity(chosen.len() * 1024 + 256);
        body.extend_from_slice(
            format!(
                "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
                resource.kind,
                resource.api_version()
            )
            .as_bytes(),
        );
        for (index, (_, stored)) in chosen.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            if is_stored_as_shown(resource, &stored.value) {
                body.extend_from_slice(&stored.json());
            } else {
                body.extend_from_slice(view(resource, &stored.value).to_string().as_bytes());
            }
        }
        body.extend_from_slice(b"]}\n");
        Answer::Encoded(body.into())
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
            let (revision, start) = read_token(token).ok_or_else(|| {
                ApiError::bad_request("continue key is not valid: encoded continue token is malformed")
            })?;
            return Ok(Self {
                revision,
                start: Some(start),
                limit,
                continued: true,
            });
        }
        let asked = parse_revision(request.parameter("resourceVersion"))?;
        if asked > state.revision {
            return Err(too_large(asked, state.revision));
        }
        if !request.parameter("resourceVersionMatch").is_empty()
            && request.parameter("resourceVersion").is_empty()
        {
            return Err(ApiError::bad_options(
                "ListOptions",
                "FieldValueForbidden",
                "resourceVersionMatch",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        let exact = request.parameter("resourceVersionMatch") == "Exact";
        if exact && asked == 0 {
            return Err(ApiError::bad_request(
                "resourceVersionMatch is forbidden for resourceVersion \"0\"",
            ));
        }
        Ok(Self {
            revision: if exact { asked } else { state.revision },
            start: None,
            limit,
            continued: false,
        })
    }

    fn expired(&self, revision: u64, oldest: u64) -> ApiError {
        if self.continued {
            ApiError::new(
                410,
                "Expired",
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
            )
        } else {
            ApiError::expired(revision, oldest)
        }
    }

    fn token(&self, last: &Key) -> String {
        let text = json!([self.revision, last.0, last.1]).to_string();
        text.bytes().map(|byte| format!("{byte:02x}")).collect()
    }
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
