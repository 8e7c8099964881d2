//! `freeze` and `thaw`: the one DisruptionPolicy that stops voluntary disruption by hand.
//!
//! Owns its name and what is said. Nothing else writes to that object but its status.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_api::{DisruptionPolicy, NodePool};
use spokeshave_story::explain::near_matches;

use crate::cluster::Cluster;

/// The name of the object.
const NAME: &str = "freeze";

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
    #[arg(long, value_name = "TEXT")]
    because: String,
    /// How long, such as 2h, 1h30m or 1d; by default until `thaw`
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
    /// The cluster; by default the current one of KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    kubeconfig: Option<PathBuf>,
}

/// Arguments of `thaw`.
#[derive(Debug, Args)]
pub(crate) struct ThawArgs {
    /// The cluster; by default the current one of KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    kubeconfig: Option<PathBuf>,
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
    let cluster = Cluster::reach(args.kubeconfig.as_deref()).await?;
    let length = args.duration.map(SignedDuration::try_from).transpose();
    let length = length.context("--for is too long")?;
    let until = length.map(|length| cluster.now.checked_add(length)).transpose();
    let until = until.context("--for is too long")?;
    if !args.node_pools.is_empty() {
        let pools: Api<NodePool> = Api::all(cluster.client.clone());
        let pools = pools.list(&ListParams::default()).await;
        let pools = pools.context("cannot list NodePools")?.items;
        let names: Vec<&str> = pools.iter().map(NodePool::name).collect();
        refuse_unknown(&args.node_pools, &names)?;
    }
    let api: Api<DisruptionPolicy> = Api::all(cluster.client);
    // Server-side apply by one owner, so that fields set by an earlier freeze only are removed.
    let parameters = PatchParams::apply("spokeshave-freeze").force();
    api.patch(NAME, &parameters, &Patch::Apply(policy(args, until)))
        .await
        .context(
            "the cluster rejects the DisruptionPolicy freeze; are its CRDs those of `spokeshave crds`?",
        )?;
    let end = until.map_or_else(|| "spokeshave thaw".to_owned(), |until| until.to_string());
    Ok(format!(
        "{} frozen until {end}, no voluntary disruption: {}\n",
        subject(&args.node_pools),
        args.because
    ))
}

/// Thaws, and prints it.
///
/// # Errors
/// The cluster does not answer, or refuses the deletion.
pub(crate) async fn thaw(args: &ThawArgs) -> Result<String> {
    let cluster = Cluster::reach(args.kubeconfig.as_deref()).await?;
    let api: Api<DisruptionPolicy> = Api::all(cluster.client);
    match api.delete(NAME, &DeleteParams::default()).await {
        Ok(_) => Ok("thawed; other DisruptionPolicies and budgets still apply\n".to_owned()),
        Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND.as_u16() => {
            Ok("nothing was frozen by spokeshave freeze\n".to_owned())
        }
        Err(error) => Err(error).context("cannot delete the DisruptionPolicy freeze"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_policy_as_defined() {
        let args = FreezeArgs {
            node_pools: vec!["default".to_owned()],
            because: "incident 42".to_owned(),
            duration: None,
            kubeconfig: None,
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
