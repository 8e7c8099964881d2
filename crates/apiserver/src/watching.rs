//! Watches: a stream of changes from a revision on, with bookmarks, initial events and the end of a history that was forgotten.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::{ApiError, ApiResult};
use crate::reading::{self, Filter, parse_revision};
use crate::registry::Resource;
use crate::request::Request;
use crate::response::Answer;
use crate::server::{ApiServer, Scope, State};
use crate::store::Change;
use crate::table;

/// Changes that a watch takes from the log at a time.
const BATCH: usize = 500;
/// Time without events after which a bookmark is sent.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Length of a watch that names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Everything that a watch needs.
pub(crate) struct WatchRequest {
    resource: Arc<Resource>,
    filter: Filter,
    revision: u64,
    initial: VecDeque<Bytes>,
    bookmarks: bool,
    form: Form,
    timeout: Duration,
    changed: watch::Receiver<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Object,
    Partial,
    Table(table::Include),
}

impl ApiServer {
    pub(crate) fn watch(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        let filter = Filter::of(request, scope)?;
        let text = request.parameter("resourceVersion");
        let asked = parse_revision(text)?;
        let initial_events = request.flag("sendInitialEvents");
        if initial_events && request.parameter("resourceVersionMatch") != "NotOlderThan" {
            return Err(ApiError::bad_options(
                "ListOptions",
                "FieldValueForbidden",
                "resourceVersionMatch",
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ));
        }
        let form = if request.wants_table() {
            Form::Table(table::include(request))
        } else if request.wants_partial_metadata() {
            Form::Partial
        } else {
            Form::Object
        };
        let bookmarks = request.flag("allowWatchBookmarks");
        let resource = scope.resource.clone();
        let current = state.revision;
        let mut initial = VecDeque::new();
        let collection = state.collection(&resource.storage());
        let mut revision = asked;
        if asked == 0 || initial_events {
            let wanted = !request.query.contains_key("sendInitialEvents") || initial_events;
            if wanted {
                for (key, stored) in &collection.objects {
                    if filter.matches(key, &stored.value) {
                        initial.push_back(encode(&resource, "ADDED", &stored.value, form, self.now()));
                    }
                }
            }
            revision = current;
            if initial_events {
                initial.push_back(bookmark(&resource, current, true));
            }
        }
        let seconds: u64 = request.parameter("timeoutSeconds").parse().unwrap_or(0);
        let timeout = if seconds == 0 {
            DEFAULT_TIMEOUT
        } else {
            Duration::from_secs(seconds)
        };
        let changed = collection.changed.subscribe();
        Ok(Answer::Watch(Box::new(WatchRequest {
            resource,
            filter,
            revision,
            initial,
            bookmarks,
            form,
            timeout,
            changed,
        })))
    }
}

struct Watch {
    server: Arc<ApiServer>,
    request: WatchRequest,
    deadline: Instant,
    ended: bool,
}

impl WatchRequest {
    /// The stream of encoded events.
    pub(crate) fn stream(self, server: Arc<ApiServer>) -> impl Stream<Item = Bytes> + Send + 'static {
        let deadline = Instant::now() + self.timeout;
        let watch = Watch {
            server,
            request: self,
            deadline,
            ended: false,
        };
        futures::stream::unfold(watch, |mut watch| async move {
            let bytes = watch.next().await?;
            Some((bytes, watch))
        })
    }
}

impl Watch {
    /// The next piece of the stream: all events that are ready, as one chunk.
    async fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        loop {
            if !self.request.initial.is_empty() {
                let mut chunk = Vec::new();
                for event in self.request.initial.drain(..) {
                    chunk.extend_from_slice(&event);
                }
                return Some(chunk.into());
            }
            // Marked as seen before reading, so that a change in between wakes the wait below.
            self.request.changed.borrow_and_update();
            match self.batch() {
                Err(gone) => {
                    self.ended = true;
                    return Some(gone);
                }
                Ok(Some(chunk)) => return Some(chunk),
                Ok(None) => {}
            }
            let bookmark_at = Instant::now() + BOOKMARK_PERIOD;
            let wake = if self.request.bookmarks {
                bookmark_at.min(self.deadline)
            } else {
                self.deadline
            };
            tokio::select! {
                biased;
                changed = self.request.changed.changed() => {
                    // The collection is gone together with its definition.
                    if changed.is_err() {
                        return None;
                    }
                }
                () = tokio::time::sleep_until(wake) => {
                    if Instant::now() >= self.deadline {
                        return None;
                    }
                    let revision = self.server.lock().revision;
                    if self.request.revision < revision && self.batch_is_empty() {
                        self.request.revision = revision;
                    }
                    return Some(bookmark(&self.request.resource, self.request.revision, false));
                }
            }
        }
    }

    fn batch_is_empty(&self) -> bool {
        let mut state = self.server.lock();
        let changes = state
            .collection(&self.request.resource.storage())
            .changes_after(self.request.revision, 1);
        changes.is_some_and(|changes| changes.is_empty())
    }

    /// Changes since the last one, encoded. `Err` is the event that says that the history is gone.
    fn batch(&mut self) -> Result<Option<Bytes>, Bytes> {
        let storage = self.request.resource.storage();
        loop {
            let (changes, oldest) = {
                let mut state = self.server.lock();
                let collection = state.collection(&storage);
                (
                    collection.changes_after(self.request.revision, BATCH),
                    collection.compacted,
                )
            };
            let Some(changes) = changes else {
                let status = ApiError::expired(self.request.revision, oldest).status();
                return Err(line(&json!({"type": "ERROR", "object": status})));
            };
            let Some(last) = changes.last() else {
                return Ok(None);
            };
            let last = last.revision;
            let mut chunk = Vec::new();
            for change in &changes {
                self.event(change, &mut chunk);
            }
            self.request.revision = last;
            if !chunk.is_empty() {
                return Ok(Some(chunk.into()));
            }
        }
    }

    /// An object that begins or ceases to match a selector is added or deleted for this watch.
    fn event(&self, change: &Change, chunk: &mut Vec<u8>) {
        let filter = &self.request.filter;
        let before = change
            .old
            .as_ref()
            .is_some_and(|old| filter.matches(&change.key, &old.value));
        let after = !change.deleted && filter.matches(&change.key, &change.new.value);
        let kind = match (before, after) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return,
        };
        let resource = &self.request.resource;
        if let (true, false, Some(old)) = (kind == "DELETED", change.deleted, &change.old) {
            // It left the selector: its last version that was selected, under the new revision.
            let mut last = old.value.clone();
            last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
            chunk.extend_from_slice(&encode(
                resource,
                kind,
                &last,
                self.request.form,
                self.server.now(),
            ));
            return;
        }
        if self.request.form == Form::Object && reading::is_stored_as_shown(resource, &change.new.value) {
            chunk.extend_from_slice(b"{\"type\":\"");
            chunk.extend_from_slice(kind.as_bytes());
            chunk.extend_from_slice(b"\",\"object\":");
            chunk.extend_from_slice(&change.new.json());
            chunk.extend_from_slice(b"}\n");
            return;
        }
        chunk.extend_from_slice(&encode(
            resource,
            kind,
            &change.new.value,
            self.request.form,
            self.server.now(),
        ));
    }
}

fn encode(resource: &Resource, kind: &str, value: &Value, form: Form, now: jiff::Timestamp) -> Bytes {
    let object = match form {
        Form::Object => reading::view(resource, value),
        Form::Partial => reading::partial(value),
        Form::Table(include) => {
            let meta = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
            table::render(resource, &[value], &meta, include, now)
        }
    };
    line(&json!({"type": kind, "object": object}))
}

fn bookmark(resource: &Resource, revision: u64, end_of_initial_events: bool) -> Bytes {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if end_of_initial_events {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line(
        &json!({"type": "BOOKMARK", "object": {"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata}}),
    )
}

fn line(value: &Value) -> Bytes {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}
