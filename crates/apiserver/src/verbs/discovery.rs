//! Discovery: which groups, versions and resources there are, in the old and the aggregated form; and the other paths at the root.

use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::store::registry::{Registry, Resource};
use crate::store::state::ApiServer;
use crate::verbs::answer::Answer;
use crate::verbs::openapi;
use crate::wire::accept;
use crate::wire::request::Request;

/// What `/version` says: the Kubernetes version whose behaviour this server follows.
fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0+spokeshave", "gitCommit": "", "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

impl ApiServer {
    pub(crate) fn root(&self, request: &Request, path: &str) -> ApiResult<Answer> {
        if !matches!(request.method.as_str(), "GET" | "HEAD") {
            // Reviews of access are the only posts outside a resource, and they are resources here.
            return Err(ApiError::no_such_path());
        }
        if path == "/metrics" {
            return Ok(self.own_metrics());
        }
        let state = self.lock();
        let aggregated = accept::aggregated_discovery(&request.accept);
        match path {
            "/version" => Ok(Answer::ok(version())),
            "/healthz" | "/livez" | "/readyz" => Ok(Answer::Text(200, "ok".to_owned())),
            "/api" if aggregated => Ok(aggregated_list(&state.registry, true)),
            "/apis" if aggregated => Ok(aggregated_list(&state.registry, false)),
            "/api" => Ok(Answer::ok(
                json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
            )),
            "/apis" => {
                let groups: Vec<Value> = state
                    .registry
                    .groups()
                    .iter()
                    .filter(|(group, _)| !group.is_empty())
                    .map(|(group, versions)| group_value(group, versions))
                    .collect();
                Ok(Answer::ok(
                    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
                ))
            }
            "" => {
                let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
                for (group, versions) in state
                    .registry
                    .groups()
                    .into_iter()
                    .filter(|(group, _)| !group.is_empty())
                {
                    paths.push(format!("/apis/{group}"));
                    paths.extend(versions.iter().map(|version| format!("/apis/{group}/{version}")));
                }
                paths.extend(
                    [
                        "/healthz",
                        "/livez",
                        "/metrics",
                        "/openapi/v2",
                        "/openapi/v3",
                        "/readyz",
                        "/version",
                    ]
                    .map(str::to_owned),
                );
                Ok(Answer::ok(json!({"paths": paths})))
            }
            "/openapi/v2" => Ok(openapi::v2_answer(&state.registry, &request.accept)),
            "/openapi/v3" => Ok(Answer::ok(openapi::v3_index(&state.registry))),
            _ => match path
                .strip_prefix("/openapi/v3/")
                .and_then(|rest| openapi::v3(&state.registry, rest))
            {
                Some(document) => Ok(Answer::ok(document)),
                None if path.starts_with("/healthz/")
                    || path.starts_with("/livez/")
                    || path.starts_with("/readyz/") =>
                {
                    Ok(Answer::Text(200, "ok".to_owned()))
                }
                None => Ok(Answer::Text(404, "404 page not found\n".to_owned())),
            },
        }
    }

    pub(crate) fn group_discovery(&self, group: &str) -> ApiResult<Answer> {
        let state = self.lock();
        let groups = state.registry.groups();
        let versions = groups
            .get(group)
            .filter(|_| !group.is_empty())
            .ok_or_else(ApiError::no_such_path)?;
        let mut value = group_value(group, versions);
        value["kind"] = json!("APIGroup");
        value["apiVersion"] = json!("v1");
        Ok(Answer::ok(value))
    }

    pub(crate) fn version_discovery(&self, group: &str, version: &str) -> ApiResult<Answer> {
        let state = self.lock();
        if !group.is_empty() && !state.registry.groups().contains_key(group) {
            return Ok(Answer::Text(404, "404 page not found\n".to_owned()));
        }
        let mut resources = Vec::new();
        for resource in state.registry.of_version(group, version) {
            resources.push(legacy_resource(resource));
            for sub in &resource.subresources {
                let mut entry = json!({
                    "name": format!("{}/{}", resource.plural, sub["name"].as_str().unwrap_or_default()), "singularName": "",
                    "namespaced": resource.namespaced, "kind": sub["kind"], "verbs": sub["verbs"],
                });
                for key in ["group", "version"] {
                    if sub[key].is_string() {
                        entry[key] = sub[key].clone();
                    }
                }
                resources.push(entry);
            }
        }
        if resources.is_empty() {
            return Err(ApiError::no_such_path());
        }
        let group_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        let mut list =
            json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
        // The core group leaves it out, as it has since before there were groups.
        if !group.is_empty() {
            list["apiVersion"] = json!("v1");
        }
        Ok(Answer::ok(list))
    }
}

fn group_value(group: &str, versions: &[&str]) -> Value {
    let entry = |version: &&str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(entry).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn legacy_resource(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced, "kind": resource.kind, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    entry
}

fn aggregated_list(registry: &Registry, core: bool) -> Answer {
    let items: Vec<Value> = registry
        .groups()
        .into_iter()
        .filter(|(group, _)| group.is_empty() == core)
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = registry
                        .of_version(group, version)
                        .map(|resource| aggregated_resource(resource))
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let mut metadata = json!({});
            if !group.is_empty() {
                metadata["name"] = json!(group);
            }
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items});
    Answer::Typed(
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        list,
    )
}

/// Group and version of a kind are named where they are not those of the list.
fn aggregated_resource(resource: &Resource) -> Value {
    let scope = if resource.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    let mut entry = json!({
        "resource": resource.plural, "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": scope, "singularResource": resource.singular, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        entry["subresources"] = resource
            .subresources
            .iter()
            .map(|sub| {
                let text = |key: &str| sub[key].as_str().unwrap_or_default();
                json!({
                    "subresource": sub["name"], "verbs": sub["verbs"],
                    "responseKind": {"group": text("group"), "version": text("version"), "kind": sub["kind"]},
                })
            })
            .collect();
    }
    entry
}
