//! Watches: a stream of changes from a revision on, with bookmarks, initial events and the end of a history that was forgotten.
//!
//! A watch holds nothing but its place in the log: it pulls changes when its client takes them, so a slow or vanished client costs nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use spokeshave_watched as watch;
use tokio::time::Instant;

use crate::error::{ApiError, ApiResult};
use crate::fields::packed::write_json;
use crate::kinds::conversion;
use crate::store::objects::{Change, Stored};
use crate::store::registry::Resource;
use crate::store::state::{ApiServer, Scope, State};
use crate::verbs::answer::Answer;
use crate::verbs::reading::{self, Filter, parse_revision};
use crate::verbs::table;
use crate::wire::accept::Form;
use crate::wire::request::Request;

/// Changes or objects that a watch takes at a time.
const BATCH: usize = 500;
/// Longest time without a bookmark for those who want them.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Length of a watch that names none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Nobody can tell a watch of a year from a longer one, of which the end may be no time that a clock shows.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Everything that a watch needs.
pub(crate) struct WatchRequest {
    resource: Arc<Resource>,
    filter: Filter,
    revision: u64,
    initial: VecDeque<Arc<Stored>>,
    /// A bookmark is due that ends the initial events.
    ends_initial: bool,
    bookmarks: bool,
    form: Form,
    include: table::Include,
    timeout: Duration,
    changed: watch::Receiver<u64>,
}

impl ApiServer {
    pub(crate) fn watch(&self, state: &mut State, request: &Request, scope: &Scope) -> ApiResult<Answer> {
        check_watch_options(request)?;
        let timeout = match request.whole_number("timeoutSeconds")? {
            None | Some(0) => DEFAULT_TIMEOUT,
            // What should have ended already ends at once.
            Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(LONGEST_TIMEOUT),
        };
        let filter = Filter::of(request, scope)?;
        // A real server, too, calls this its own fault.
        let asked = parse_revision(request.parameter("resourceVersion"))
            .map_err(|problem| ApiError::new(500, "", problem))?;
        let send_initial = request.flag("sendInitialEvents");
        let resource = scope.resource.clone();
        let current = state.revision;
        let collection = state.collection(&resource.storage());
        let from_now = asked == 0 || send_initial;
        let with_objects = from_now && (send_initial || !request.query.contains_key("sendInitialEvents"));
        let initial = if with_objects {
            let objects = filter
                .range(&collection.objects)
                .filter(|(key, stored)| filter.matches(key, &stored.value));
            objects.map(|(_, stored)| stored.clone()).collect()
        } else {
            VecDeque::new()
        };
        let bookmarks = request.flag("allowWatchBookmarks");
        Ok(Answer::Watch(Box::new(WatchRequest {
            resource,
            filter,
            revision: if from_now { current } else { asked },
            initial,
            ends_initial: send_initial && bookmarks,
            bookmarks,
            form: request.form(),
            include: table::include(request),
            timeout,
            changed: collection.changed.subscribe(),
        })))
    }
}

fn check_watch_options(request: &Request) -> ApiResult<()> {
    let refuse = |field: &str, reason: &str, message: &str| {
        Err(ApiError::bad_options("ListOptions", reason, field, message))
    };
    match (
        request.query.contains_key("sendInitialEvents"),
        request.parameter("resourceVersionMatch"),
    ) {
        (true, "NotOlderThan") | (false, "") => Ok(()),
        (true, _) => refuse(
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (false, _) => refuse(
            "resourceVersionMatch",
            "FieldValueForbidden",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
    }
}

struct Watch {
    server: Arc<ApiServer>,
    request: WatchRequest,
    deadline: Instant,
    next_bookmark: Instant,
    /// A table's columns are only sent once.
    columns_sent: bool,
    ended: bool,
}

impl WatchRequest {
    /// The stream of encoded events.
    pub(crate) fn stream(self, server: Arc<ApiServer>) -> impl Stream<Item = Bytes> + Send + 'static {
        let now = Instant::now();
        let deadline = now + self.timeout;
        let watch = Watch {
            server,
            request: self,
            deadline,
            next_bookmark: now + BOOKMARK_PERIOD,
            columns_sent: false,
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
        loop {
            if self.ended {
                return None;
            }
            if let Some(chunk) = self.initial_events() {
                return Some(chunk);
            }
            // Marked as seen before reading, so that a change in between wakes the wait below.
            self.request.changed.borrow_and_update();
            if let Some(chunk) = self.changes() {
                return Some(chunk);
            }
            let wake = if self.request.bookmarks {
                self.next_bookmark.min(self.deadline)
            } else {
                self.deadline
            };
            tokio::select! {
                biased;
                changed = self.request.changed.changed() => {
                    // The collection is gone together with its definition.
                    self.ended = changed.is_err();
                }
                () = tokio::time::sleep_until(wake) => {
                    let now = Instant::now();
                    self.ended = now >= self.deadline;
                    if self.request.bookmarks {
                        self.next_bookmark = now + BOOKMARK_PERIOD;
                        return Some(self.bookmark());
                    }
                }
            }
        }
    }

    fn initial_events(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::new();
        let count = self.request.initial.len().min(BATCH);
        let batch: Vec<Arc<Stored>> = self.request.initial.drain(..count).collect();
        for stored in &batch {
            self.write("ADDED", stored, &mut chunk);
        }
        if self.request.initial.is_empty() && std::mem::take(&mut self.request.ends_initial) {
            self.write_bookmark(true, &mut chunk);
        }
        (!chunk.is_empty()).then(|| chunk.into())
    }

    /// A bookmark at the newest revision that this watch has seen everything of.
    fn bookmark(&mut self) -> Bytes {
        let mut chunk = Vec::new();
        let mut state = self.server.lock();
        let newest = state.revision;
        let pending = state
            .collection(&self.request.resource.storage())
            .changes_after(self.request.revision, 1);
        if pending.is_some_and(|changes| changes.is_empty()) {
            self.request.revision = self.request.revision.max(newest);
        }
        drop(state);
        self.write_bookmark(false, &mut chunk);
        chunk.into()
    }

    /// An object that says nothing but its version, in the form in which the client wants objects.
    fn write_bookmark(&mut self, ends_initial_events: bool, chunk: &mut Vec<u8>) {
        let (resource, revision) = (&self.request.resource, self.request.revision);
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if ends_initial_events {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let value =
            json!({"kind": resource.kind, "apiVersion": resource.api_version(), "metadata": metadata});
        let include = self.request.include;
        if ends_initial_events && include == table::Include::Nothing {
            // Without it the bookmark could not be recognized.
            self.request.include = table::Include::Metadata;
        }
        self.write("BOOKMARK", &Stored::new(value, revision), chunk);
        self.request.include = include;
    }

    /// Changes since the last ones, encoded; `None` when there are none for this watch.
    fn changes(&mut self) -> Option<Bytes> {
        let storage = self.request.resource.storage();
        let mut chunk = Vec::new();
        while chunk.is_empty() {
            let (changes, oldest) = {
                let mut state = self.server.lock();
                let collection = state.collection(&storage);
                (
                    collection.changes_after(self.request.revision, BATCH),
                    collection.compacted,
                )
            };
            let Some(changes) = changes else {
                self.ended = true;
                let status = ApiError::expired(self.request.revision, oldest).status();
                return Some(line(&json!({"type": "ERROR", "object": status})));
            };
            self.request.revision = changes.last()?.revision;
            for change in &changes {
                self.event(change, &mut chunk);
            }
        }
        Some(chunk.into())
    }

    /// An object that begins or ceases to match a selector is added or deleted for this watch.
    fn event(&mut self, change: &Change, chunk: &mut Vec<u8>) {
        let filter = &self.request.filter;
        let before = change
            .old
            .as_ref()
            .is_some_and(|old| filter.matches(&change.key, &old.value));
        let after = !change.deleted && filter.matches(&change.key, &change.new.value);
        match (before, after, &change.old) {
            (false, true, _) => self.write("ADDED", &change.new, chunk),
            (true, true, _) => self.write("MODIFIED", &change.new, chunk),
            (true, false, Some(old)) if !change.deleted => {
                // It left the selector: its last version that was selected, under the new revision.
                let mut last = old.value.clone();
                last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                self.write("DELETED", &Stored::new(last, change.revision), chunk);
            }
            (true, false, _) => self.write("DELETED", &change.new, chunk),
            (false, false, _) => {}
        }
    }

    fn write(&mut self, kind: &str, stored: &Stored, chunk: &mut Vec<u8>) {
        let resource = &self.request.resource;
        chunk.extend_from_slice(b"{\"type\":\"");
        chunk.extend_from_slice(kind.as_bytes());
        chunk.extend_from_slice(b"\",\"object\":");
        match self.request.form {
            // Bookmarks of converted kinds have the requested form, too, and nothing to convert.
            Form::Object if kind == "BOOKMARK" || conversion::is_stored_as_shown(resource, &stored.value) => {
                chunk.extend_from_slice(&stored.json())
            }
            Form::Object => write_json(chunk, &conversion::view(resource, &stored.value)),
            Form::Partial(version) | Form::PartialList(version) => {
                write_json(chunk, &reading::partial(&stored.value, version));
            }
            Form::Table(version) => {
                let wanted = (version, self.request.include);
                let meta = json!({"resourceVersion": stored.value["metadata"]["resourceVersion"]});
                let mut table = table::render(resource, &[&stored.value], &meta, wanted, self.server.now());
                if std::mem::replace(&mut self.columns_sent, true) {
                    table["columnDefinitions"] = Value::Null;
                }
                write_json(chunk, &table);
            }
        }
        chunk.extend_from_slice(b"}\n");
    }
}

fn line(value: &Value) -> Bytes {
    let mut bytes = serde_json::to_vec(value).unwrap_or_default();
    bytes.push(b'\n');
    bytes.into()
}
