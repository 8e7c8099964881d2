//! `freeze` and `thaw`: the one DisruptionPolicy that stops voluntary disruption by hand.
//!
//! Owns its name and what is said. Whatever another client has written to that object, a freeze takes the place of.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use spokeshave_api::{DisruptionPolicy, NodePool};
use spokeshave_story::explain::near_matches;

use crate::cluster::Cluster;
use crate::connection::ClusterArgs;

/// The name of the object.
const NAME: &str = "freeze";
/// How often the object is written, if each time another client is quicker.
const TRIES: usize = 5;

pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave freeze --for 2h --because \"incident 42\"     all NodePools, for two hours
  spokeshave freeze --because migration default          one NodePool, until spokeshave thaw

It writes the DisruptionPolicy named freeze. Commands that have not deleted a node yet are rolled back; interruption, expiry and repair continue.";

/// Arguments of `freeze`.
#[derive(Debug, Args)]
pub(crate) struct FreezeArgs {
    /// NodePools to freeze; by default all
    #[arg(value_name = "NODEPOOL")]
    node_pools: Vec<String>,
    /// The reason, shown wherever the freeze is reported
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    because: String,
    /// How long, such as 2h, 1h30m or 1d; by default until `thaw`
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
    /// The cluster
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Arguments of `thaw`.
#[derive(Debug, Args)]
pub(crate) struct ThawArgs {
    /// The cluster
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// A time that is more than none.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = "expected a duration above zero, such as 2h, 1h30m or 1d";
    match spokeshave_scenario::duration_ms(text) {
        Ok(0) => Err(format!("is 0; {expected}")),
        Ok(milliseconds) => Ok(Duration::from_millis(milliseconds)),
        Err(problem) => Err(format!("{problem}; {expected}")),
    }
}

/// Refuses names that no NodePool has: a policy that selects none freezes nothing, and would look as if it did.
fn refuse_unknown(wanted: &[String], known: &[&str]) -> Result<()> {
    let unknown = wanted.iter().filter(|name| !known.contains(&name.as_str()));
    let unknown: Vec<String> = unknown
        .map(|name| {
            let near = near_matches(name, known.iter().copied());
            let hint = match (near.is_empty(), known) {
                (false, _) => format!("did you mean {}?", near.join(", ")),
                (true, []) => "there is none at all".to_owned(),
                (true, known) => format!("there are: {}", known.join(", ")),
            };
            format!("there is no NodePool {name:?}; {hint}")
        })
        .collect();
    if !unknown.is_empty() {
        bail!("{}\nnothing was frozen", unknown.join("\n"));
    }
    Ok(())
}

/// What a freeze is about, as the beginning of a sentence.
fn subject(node_pools: &[String]) -> String {
    match node_pools {
        [] => "all NodePools are".to_owned(),
        [one] => format!("NodePool {one} is"),
        several => format!("NodePools {} are", several.join(", ")),
    }
}

/// The object, whole.
fn policy(args: &FreezeArgs, until: Option<Timestamp>) -> Value {
    let mut spec = json!({"freeze": {"reason": args.because}});
    if let Some(until) = until {
        spec["freeze"]["until"] = json!(until.to_string());
    }
    if !args.node_pools.is_empty() {
        spec["nodePools"] = json!({"names": args.node_pools});
    }
    json!({
        "apiVersion": format!("{}/{}", DisruptionPolicy::GROUP, DisruptionPolicy::VERSION),
        "kind": DisruptionPolicy::KIND,
        "metadata": {"name": NAME},
        "spec": spec,
    })
}

/// Freezes, and prints it.
///
/// # Errors
/// The cluster does not answer, refuses the object, or does not know the kind; or there is no such NodePool.
pub(crate) async fn freeze(args: &FreezeArgs) -> Result<String> {
    let cluster = Cluster::reach(&args.cluster).await?;
    freeze_in(cluster.client, cluster.now, args).await
}

async fn freeze_in(client: Client, now: Timestamp, args: &FreezeArgs) -> Result<String> {
    let length = args.duration.map(SignedDuration::try_from).transpose();
    let length = length.context("--for is too long")?;
    let until = length.map(|length| now.checked_add(length)).transpose();
    let until = until.context("--for is too long")?;
    if !args.node_pools.is_empty() {
        // As they are: only their names are needed, and those of what this version cannot read, too.
        let pools: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<NodePool>(&()));
        let pools = pools.list(&ListParams::default()).await;
        let pools = pools.context("cannot list NodePools")?.items;
        let names = pools.iter().filter_map(|pool| pool.metadata.name.as_deref());
        let names: Vec<&str> = names.collect();
        refuse_unknown(&args.node_pools, &names)?;
    }
    let written = write(&objects(client), policy(args, until)).await;
    let written = written.context(
        "the cluster rejects the DisruptionPolicy freeze; are its CRDs those of `spokeshave crds`?",
    )?;
    said(&written)
}

/// DisruptionPolicies as they are: what is replaced or deleted need not be one that this version can read.
pub(crate) fn objects(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &ApiResource::erase::<DisruptionPolicy>(&()))
}

/// Makes the object, or replaces the whole spec of the one that is there: of a field that another client has set before, such as an end in the past, nothing may stay.
async fn write(api: &Api<DynamicObject>, policy: Value) -> Result<DynamicObject> {
    let parameters = PostParams {
        field_manager: Some("spokeshave-freeze".to_owned()),
        ..PostParams::default()
    };
    let spec = policy["spec"].clone();
    let new: DynamicObject = serde_json::from_value(policy)?;
    let mut tries_left = TRIES;
    loop {
        let written = match api.get_opt(NAME).await? {
            // With the version that was read, so that a change in between is noticed.
            Some(mut known) => {
                known.data["spec"] = spec.clone();
                api.replace(NAME, &parameters, &known).await
            }
            None => api.create(&parameters, &new).await,
        };
        tries_left -= 1;
        match written {
            Err(kube::Error::Api(status)) if tries_left > 0 && is_outrun(status.code) => {}
            written => return Ok(written?),
        }
    }
}

/// Whether another client has made, changed or deleted the object in between.
fn is_outrun(code: u16) -> bool {
    [StatusCode::CONFLICT, StatusCode::NOT_FOUND]
        .iter()
        .any(|outrun| outrun.as_u16() == code)
}

/// What the cluster has now, in words.
fn said(written: &DynamicObject) -> Result<String> {
    // An old status that cannot be read says nothing about the freeze.
    let written = DisruptionPolicy::salvaged(&serde_json::to_value(written)?)
        .context("what the cluster has made of the DisruptionPolicy freeze cannot be read")?;
    if let Some(why) = written.spec.unreadable {
        bail!("what the cluster has made of the DisruptionPolicy freeze cannot be read: {why}");
    }
    let Some(freeze) = written.spec.freeze else {
        bail!(
            "nothing is frozen: the cluster has dropped spec.freeze of the DisruptionPolicy freeze; are its CRDs those of `spokeshave crds`?"
        );
    };
    let node_pools = written.spec.node_pools.unwrap_or_default().names;
    let end = freeze
        .until
        .map_or_else(|| "spokeshave thaw".to_owned(), |until| until.0.to_string());
    Ok(format!(
        "{} frozen until {end}, no voluntary disruption: {}\n",
        subject(&node_pools),
        freeze.reason
    ))
}

/// Thaws, and prints it.
///
/// # Errors
/// The cluster does not answer, or refuses the deletion.
pub(crate) async fn thaw(args: &ThawArgs) -> Result<String> {
    let cluster = Cluster::reach(&args.cluster).await?;
    match objects(cluster.client)
        .delete(NAME, &DeleteParams::default())
        .await
    {
        Ok(_) => Ok("thawed; other DisruptionPolicies and budgets still apply\n".to_owned()),
        Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => {
            Ok("nothing was frozen by spokeshave freeze\n".to_owned())
        }
        Err(error) => Err(error).context("cannot delete the DisruptionPolicy freeze"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Method, Request};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::api::{Patch, PatchParams};
    use kube::client::Body;
    use spokeshave_apiserver::{ApiServer, Config};
    use tower::ServiceExt as _;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    /// A server with our definitions, and a client that may do everything.
    async fn a_cluster() -> (Arc<ApiServer>, Client) {
        let server = ApiServer::new(Config::new(Arc::new(now), 7));
        let client = Client::new(server.service(), "default");
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in spokeshave_api::crds::crds() {
            let made = definitions.create(&PostParams::default(), &definition).await;
            made.expect("a definition");
        }
        (server, client)
    }

    /// A freeze of one NodePool that is over, as another client has applied it.
    async fn another_client_has_frozen(client: &Client) {
        let theirs = json!({
            "apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy",
            "metadata": {"name": NAME, "labels": {"team": "storage"}},
            "spec": {"nodePools": {"names": ["other"]}, "freeze": {"reason": "an old one", "until": "2025-12-01T00:00:00Z"}},
        });
        let applied = objects(client.clone())
            .patch(NAME, &PatchParams::apply("kubectl"), &Patch::Apply(theirs))
            .await;
        applied.expect("a policy");
    }

    fn for_two_hours() -> FreezeArgs {
        FreezeArgs {
            node_pools: Vec::new(),
            because: "incident 42".to_owned(),
            duration: Some(Duration::from_secs(7200)),
            cluster: ClusterArgs::default(),
        }
    }

    async fn is_frozen(client: Client) {
        let written: Api<DisruptionPolicy> = Api::all(client);
        let written = written.get(NAME).await.expect("the policy");
        let spec = serde_json::to_value(&written.spec).expect("JSON");
        let freeze = json!({"reason": "incident 42", "until": "2026-01-01T02:00:00Z"});
        assert_eq!(spec, json!({"freeze": freeze}));
    }

    const SAID: &str =
        "all NodePools are frozen until 2026-01-01T02:00:00Z, no voluntary disruption: incident 42\n";

    #[tokio::test(start_paused = true)]
    async fn a_freeze_takes_the_place_of_what_another_client_has_written() {
        let (_server, client) = a_cluster().await;
        let frozen = freeze_in(client.clone(), now(), &for_two_hours()).await;
        assert_eq!(frozen.expect("a new one"), SAID);
        objects(client.clone())
            .delete(NAME, &DeleteParams::default())
            .await
            .expect("it goes");
        another_client_has_frozen(&client).await;
        let frozen = freeze_in(client.clone(), now(), &for_two_hours()).await;
        assert_eq!(frozen.expect("another one"), SAID);
        let object = objects(client.clone()).get(NAME).await.expect("the policy");
        let labels = object.metadata.labels.expect("labels");
        assert_eq!(labels["team"], "storage", "metadata is theirs");
        is_frozen(client).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_is_written_again_when_another_client_was_quicker() {
        let (server, client) = a_cluster().await;
        another_client_has_frozen(&client).await;
        let (quicker, was_quicker) = (client.clone(), Arc::new(AtomicBool::new(false)));
        let outrun = tower::service_fn(move |request: Request<Body>| {
            let is_first = request.method() == Method::PUT && !was_quicker.swap(true, Ordering::Relaxed);
            let (service, quicker) = (server.service(), quicker.clone());
            async move {
                if is_first {
                    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "network"}}}));
                    let patched = objects(quicker)
                        .patch(NAME, &PatchParams::default(), &label)
                        .await;
                    patched.expect("a label");
                }
                service.oneshot(request).await
            }
        });
        let frozen = freeze_in(Client::new(outrun, "default"), now(), &for_two_hours()).await;
        assert_eq!(frozen.expect("at the second try"), SAID);
        let object = objects(client.clone()).get(NAME).await.expect("the policy");
        let labels = object.metadata.labels.expect("labels");
        assert_eq!(
            labels["team"], "network",
            "what the other client wrote in between stays"
        );
        is_frozen(client).await;
    }

    #[test]
    fn a_freeze_stands_although_the_status_beside_it_cannot_be_read() {
        let mut object = policy(&for_two_hours(), Some(now()));
        object["status"] = json!({"summary": 7});
        let told = |object: &Value| said(&serde_json::from_value(object.clone()).expect("an object"));
        let expected =
            "all NodePools are frozen until 2026-01-01T00:00:00Z, no voluntary disruption: incident 42\n";
        assert_eq!(told(&object).expect("a freeze"), expected);
        object["spec"]["freeze"]["until"] = json!("2026-01-01T00:00:00+99:00");
        let refused = told(&object).expect_err("nobody knows").to_string();
        assert!(refused.contains("cannot be read: "), "{refused}");
    }

    #[test]
    fn what_is_written_is_a_policy_as_defined() {
        let args = FreezeArgs {
            node_pools: vec!["default".to_owned()],
            because: "incident 42".to_owned(),
            duration: None,
            cluster: ClusterArgs::default(),
        };
        let until = "2026-01-01T00:00:00Z".parse().ok();
        let written: DisruptionPolicy = serde_json::from_value(policy(&args, until)).expect("a policy");
        let freeze = written.spec.freeze.as_ref().expect("a freeze");
        assert_eq!(freeze.reason, "incident 42");
        assert_eq!(freeze.until.as_ref().map(|until| until.0), until);
        assert!(written.selects("default", &std::collections::BTreeMap::default()));
        assert!(!written.selects("other", &std::collections::BTreeMap::default()));
    }

    #[test]
    fn a_freeze_lasts_for_more_than_no_time() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("1d"), Ok(Duration::from_secs(86_400)));
        for wrong in ["0s", "two hours", "5", "-1h"] {
            let said = duration(wrong).expect_err(wrong);
            assert!(said.ends_with("such as 2h, 1h30m or 1d"), "{said}");
        }
    }

    #[test]
    fn names_that_no_nodepool_has_are_refused() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
        let known = ["batch", "default"];
        assert!(refuse_unknown(&names(&["default", "batch"]), &known).is_ok());
        for (wanted, known, expected) in [
            (
                &["batch", "defualt"][..],
                &known[..],
                "there is no NodePool \"defualt\"; did you mean default?\nnothing was frozen",
            ),
            (
                &["zzzzzzz"][..],
                &known[..],
                "there is no NodePool \"zzzzzzz\"; there are: batch, default\nnothing was frozen",
            ),
            (
                &["default"][..],
                &known[..0],
                "there is no NodePool \"default\"; there is none at all\nnothing was frozen",
            ),
        ] {
            let said = refuse_unknown(&names(wanted), known)
                .expect_err("there is none")
                .to_string();
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn what_is_frozen_is_named() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
        assert_eq!(subject(&[]), "all NodePools are");
        assert_eq!(subject(&names(&["x"])), "NodePool x is");
        assert_eq!(subject(&names(&["x", "y"])), "NodePools x, y are");
    }
}
