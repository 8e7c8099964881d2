//! A client in the process, with its own clock.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use spokeshave_apiserver::{ApiServer, Config, ResponseBody};
use tower::ServiceExt as _;

pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";
pub const JSON: &str = "application/json";

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[derive(Clone)]
pub struct Client {
    pub server: Arc<ApiServer>,
    seconds: Arc<AtomicI64>,
    accept: String,
}

/// Status code, body, and the warnings of the headers.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

impl Answer {
    /// The body of a success.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }

    /// The body of a refusal with this code and reason.
    #[track_caller]
    pub fn refused(self, code: u16, reason: &str) -> Value {
        assert_eq!(
            (self.code, self.body["reason"].as_str().unwrap_or_default()),
            (code, reason),
            "{}",
            self.body
        );
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["status"], "Failure");
        assert_eq!(self.body["code"], code);
        self.body
    }
}

impl Client {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let seconds = Arc::new(AtomicI64::new(1_800_000_000));
        let clock = seconds.clone();
        let now = move || jiff::Timestamp::from_second(clock.load(Ordering::SeqCst)).expect("a time");
        let mut config = Config::new(Arc::new(now), 7);
        change(&mut config);
        Self {
            server: ApiServer::new(config),
            seconds,
            accept: JSON.to_owned(),
        }
    }

    pub fn accepting(&self, accept: &str) -> Self {
        Self {
            accept: accept.to_owned(),
            ..self.clone()
        }
    }

    pub fn pass_seconds(&self, seconds: i64) {
        self.seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    pub async fn raw(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> http::Response<ResponseBody> {
        let request = http::Request::builder()
            .method(method)
            .uri(path.replace(' ', "%20"))
            .header("content-type", content_type)
            .header("accept", &self.accept)
            .header("user-agent", "tests/1.0")
            .body(Full::new(body.into()))
            .expect("a request");
        let answer: Result<_, Infallible> = self.server.service().oneshot(request).await;
        let Ok(response) = answer;
        response
    }

    pub async fn text(&self, method: &str, path: &str, content_type: &str, body: impl Into<Bytes>) -> Answer {
        let response = self.raw(method, path, content_type, body).await;
        let code = response.status().as_u16();
        let header = |value: &http::HeaderValue| value.to_str().expect("text").to_owned();
        let warnings = response.headers().get_all("warning").iter().map(header).collect();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { code, body, warnings }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.text("GET", path, JSON, Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.text("POST", path, JSON, body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.text("PUT", path, JSON, body.to_string()).await
    }

    pub async fn patch(&self, path: &str, content_type: &str, body: Value) -> Answer {
        self.text("PATCH", path, content_type, body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.text("DELETE", path, JSON, Bytes::new()).await
    }

    pub async fn delete_with(&self, path: &str, options: Value) -> Answer {
        self.text("DELETE", path, JSON, options.to_string()).await
    }

    pub async fn exists(&self, path: &str) -> bool {
        self.get(path).await.code == 200
    }

    /// Creates a ConfigMap with one entry and some labels.
    pub async fn map(&self, name: &str, labels: Value) -> Value {
        let body = json!({"metadata": {"name": name, "labels": labels}, "data": {"key": "value"}});
        self.post(MAPS, body).await.ok()
    }

    /// Creates a Namespace.
    pub async fn namespace(&self, name: &str) -> Value {
        let body = json!({"metadata": {"name": name}});
        self.post("/api/v1/namespaces", body).await.ok()
    }

    /// Creates an event of `events.k8s.io/v1` about a pod, which a controller reports.
    pub async fn new_event(&self, name: &str, controller: &str) {
        let regarding = json!({"kind": "Pod", "namespace": "default", "name": "web"});
        let event = json!({"metadata": {"name": name}, "regarding": regarding, "reason": "Seen", "note": "a note", "type": "Normal", "action": "See",
            "reportingController": controller, "reportingInstance": format!("{controller}-1"), "eventTime": "2027-01-15T08:00:00.000000Z"});
        self.post("/apis/events.k8s.io/v1/namespaces/default/events", event)
            .await
            .ok();
    }

    /// Starts a watch.
    pub async fn watch(&self, path: &str) -> Watch {
        let response = self.raw("GET", path, JSON, Bytes::new()).await;
        assert_eq!(response.status(), 200, "{path}");
        Watch {
            body: Mutex::new(response.into_body()),
            ready: VecDeque::new(),
        }
    }
}

/// An open watch.
pub struct Watch {
    body: Mutex<ResponseBody>,
    ready: VecDeque<Value>,
}

impl Watch {
    /// The next event; `None` at the end of the stream. On a paused clock it never blocks: time jumps to the next bookmark or the end.
    pub async fn next(&mut self) -> Option<Value> {
        while self.ready.is_empty() {
            let frame = self.body.get_mut().expect("no panic").frame().await?;
            let data = frame.expect("a frame").into_data().expect("data");
            for line in data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.ready
                    .push_back(serde_json::from_slice(line).expect("one event a line"));
            }
        }
        self.ready.pop_front()
    }

    /// Kind and name of the next event.
    pub async fn brief(&mut self) -> String {
        match self.next().await {
            Some(event) => {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                format!("{} {name}", event["type"].as_str().unwrap_or_default())
                    .trim_end()
                    .to_owned()
            }
            None => "END".to_owned(),
        }
    }
}

/// Names of the items of a list.
pub fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

/// What is wrong with an object that was refused: place and problem of each cause.
pub fn causes(body: &Value) -> Vec<String> {
    let causes = body["details"]["causes"].as_array().expect("causes").iter();
    causes
        .map(|cause| {
            format!(
                "{}: {}",
                cause["field"].as_str().unwrap(),
                cause["message"].as_str().unwrap()
            )
        })
        .collect()
}

/// The same of a change that is refused.
pub async fn refused(client: &Client, path: &str, content_type: &str, patch: Value) -> Vec<String> {
    let answer = client.patch(path, content_type, patch).await;
    causes(&answer.refused(422, "Invalid"))
}

/// A pod that the server accepts.
pub fn pod(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}})
}

/// A template of such pods.
pub fn template() -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}})
}

/// A Job that the server accepts.
pub fn job(name: &str) -> Value {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/app:1"}]}});
    json!({"metadata": {"name": name}, "spec": {"template": template}})
}

/// A definition of Widgets, which exercises validation, pruning, defaults, rules, scale and printer columns.
pub fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}},
                "selectableFields": [{"jsonPath": ".spec.colour"}],
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
                ],
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "size": {"type": "integer", "minimum": 0, "maximum": 10, "default": 1},
                            "colour": {"type": "string", "enum": ["red", "green"]},
                            "owner": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "owner is immutable"}]},
                            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                                      "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 2}}}},
                            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        },
                        "x-kubernetes-validations": [{"rule": "!has(self.colour) || self.colour != 'red' || self.size < 5", "message": "red widgets are small"}],
                    },
                    "status": {"type": "object", "properties": {"size": {"type": "integer"}, "selector": {"type": "string"}, "phase": {"type": "string"}}},
                }}},
            }],
        },
    })
}
