//! Objects that have a say in the health of roll-outs: read when a policy asks for them, and judged by its expressions.
//!
//! Each look is bounded: ten objects a policy, five seconds for all of them. What cannot be read holds the roll-out up, and is named.

use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use serde_json::Value;
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption_policy::ObjectHealth;
use spokeshave_plan::disruption_policy::expressions;
use spokeshave_ports::SharedClock;

const LIMIT: Duration = Duration::from_secs(5);

/// The first object of a policy that does not say what it has to, in words; an empty text when all do, and nothing when it asks for none.
pub(crate) async fn waits_for(
    client: &Client,
    clock: &SharedClock,
    policy: &DisruptionPolicy,
) -> Option<String> {
    let health = policy.spec.rollout.as_ref()?.health.as_ref()?;
    if health.objects.is_empty() {
        return None;
    }
    let looks = join_all(health.objects.iter().map(|object| look(client, object)));
    let found = tokio::select! {
        biased;
        found = looks => found,
        () = clock.sleep(LIMIT) => vec![Some(format!("health.objects could not be read within {} seconds", LIMIT.as_secs()))],
    };
    Some(found.into_iter().flatten().next().unwrap_or_default())
}

fn path(object: &ObjectHealth) -> String {
    let root = if object.api_version.contains('/') {
        "apis"
    } else {
        "api"
    };
    let namespace = object.namespace.as_ref();
    let within = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
    format!(
        "/{root}/{}{within}/{}/{}",
        object.api_version, object.resource, object.name
    )
}

async fn look(client: &Client, object: &ObjectHealth) -> Option<String> {
    let place = object
        .namespace
        .as_deref()
        .map_or_else(String::new, |namespace| format!("{namespace}/"));
    let name = format!("{} {place}{}", object.resource, object.name);
    let request = match http::Request::get(path(object)).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Some(format!("{name} cannot be asked for: {error}")),
    };
    match client.request::<Value>(request).await {
        Err(error) => Some(format!("{name} cannot be read: {error}")),
        Ok(found) => match expressions::holds(&object.expression, &found) {
            Ok(true) => None,
            Ok(false) => Some(format!("{name} is not healthy: {} is false", object.expression)),
            Err(why) => Some(format!("{name}: {} {why}", object.expression)),
        },
    }
}
