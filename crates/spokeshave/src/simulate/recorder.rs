//! `spokeshave record`, and the dump of `simulate init`: records the workloads and nodes of a cluster, without secrets.
//!
//! Owns the listing and its pace. What may be written down is decided by `redact` of the crate `scenario`, and what of it is new by `recording`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use spokeshave_scenario::import::redact::redacted;
use tokio::time::Instant;

use super::hashing::{HashArgs, NameHash};
use super::may_be_written;
use super::recording::{Found, Recorder, head};
use crate::arguments::parse_duration;
use crate::cluster::Cluster;
use crate::connection::ClusterArgs;
use crate::plan::live;
use crate::signals;
use crate::text::say;

pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave record > shop.jsonl                    until Ctrl-C; lists every 15 seconds
  spokeshave record -o shop.jsonl --for 168h --every 1m
  spokeshave record -o shop.jsonl --hash-names      hashes instead of names, to pass it on

A scenario reads it with `import: {format: record, file: shop.jsonl}`. Only get and list are sent; environments, images, commands, secrets and
annotations of others are left out.";

/// Arguments of `record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Where to write; by default standard output
    #[arg(short = 'o', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// How often to list; objects created and deleted between two lists are missed
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = crate::arguments::parse_interval)]
    pub(crate) every: Duration,
    /// Stop after this long, such as 168h; by default at Ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Without names
    #[command(flatten)]
    pub(crate) hash: HashArgs,
}

/// Lists, the kind of their items, and whether a cluster may lack them. What makes pods comes before pods.
pub(super) const WORKLOADS: [(&str, &str, bool); 7] = [
    (
        "/apis/policy/v1/poddisruptionbudgets",
        "PodDisruptionBudget",
        false,
    ),
    ("/apis/apps/v1/deployments", "Deployment", false),
    ("/apis/apps/v1/replicasets", "ReplicaSet", false),
    ("/apis/apps/v1/statefulsets", "StatefulSet", false),
    ("/apis/batch/v1/cronjobs", "CronJob", false),
    ("/apis/batch/v1/jobs", "Job", false),
    ("/api/v1/pods", "Pod", false),
];

/// What a scenario needs besides.
const SETTINGS: [(&str, &str, bool); 4] = [
    ("/apis/apps/v1/daemonsets", "DaemonSet", false),
    ("/apis/karpenter.sh/v1/nodepools", "NodePool", true),
    ("/apis/karpenter.sh/v1alpha1/nodeoverlays", "NodeOverlay", true),
    (
        "/apis/spokeshave.dev/v1alpha1/disruptionpolicies",
        "DisruptionPolicy",
        true,
    ),
];

/// They say of which region prices are, and what becomes of its instance types.
const EC2_NODE_CLASSES: (&str, &str, bool) =
    ("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", "EC2NodeClass", true);

/// A simulation begins with them. What becomes of NodeClaims is recorded, too: they are fewer than pods, and smaller than Nodes.
pub(super) const NODE_CLAIMS: (&str, &str, bool) = ("/apis/karpenter.sh/v1/nodeclaims", "NodeClaim", true);
const NODES: (&str, &str, bool) = ("/api/v1/nodes", "Node", false);

/// What is asked, and how what is found is written.
struct Source<'c> {
    client: &'c Client,
    /// None where names stay.
    hash: Option<NameHash>,
}

impl Source<'_> {
    /// Objects of some lists, where there are any. Who may not list them gets the rest without, which is said to have none.
    async fn where_allowed(&self, lists: &[(&str, &str, bool)], rest: &str) -> Vec<Value> {
        let found = self.objects(lists).await;
        found.unwrap_or_else(|error| {
            say(&format!("note: {error:#}; {rest} has none"));
            Vec::new()
        })
    }

    /// Objects of some lists, redacted.
    async fn objects(&self, lists: &[(&str, &str, bool)]) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        for (path, kind, optional) in lists {
            let pages = live::list(self.client, path, *optional)
                .await
                .with_context(|| format!("the cluster does not list {path}"))?;
            for page in pages {
                let mut list: Value = serde_json::from_str(&page)
                    .with_context(|| format!("the answer to {path} is no list"))?;
                let version = list["apiVersion"].take();
                let Value::Array(items) = list["items"].take() else {
                    continue;
                };
                for mut item in items {
                    item["kind"] = Value::from(*kind);
                    item["apiVersion"] = version.clone();
                    if let Some(mut kept) = redacted(&item) {
                        if let Some(hash) = &self.hash {
                            hash.hash(&mut kept);
                        }
                        found.push(kept);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// A cluster's workloads, nodes and NodePools as a List.
///
/// # Errors
/// The cluster does not answer, or refuses a list.
pub(crate) async fn dump(cluster: &ClusterArgs, hash: Option<NameHash>) -> Result<String> {
    const DUMP: &str = "the dump";
    let cluster = Cluster::reach(cluster).await?;
    let source = Source {
        client: &cluster.client,
        hash,
    };
    let mut items = source.objects(&SETTINGS).await?;
    items.extend(source.where_allowed(&[EC2_NODE_CLASSES], DUMP).await);
    items.extend(source.where_allowed(&[NODE_CLAIMS, NODES], DUMP).await);
    items.extend(source.objects(&WORKLOADS).await?);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

/// Records until it is interrupted, or for the requested time.
///
/// # Errors
/// The cluster does not answer at the start, or the file cannot be written.
pub(crate) async fn run(args: RecordArgs) -> Result<()> {
    if let Some(path) = &args.output {
        // Before anything is asked of the cluster.
        refuse_written(path)?;
        may_be_written(path)?;
    }
    let hash = NameHash::of(&args.hash)?;
    let cluster = Cluster::reach(&args.cluster).await?;
    let head = head(&cluster.server, args.every, hash.is_some());
    let source = Source {
        client: &cluster.client,
        hash,
    };
    say("Recording; press Ctrl-C to stop.");
    let mut end = std::pin::pin!(signals::wait(args.duration));
    // There is no recording before there is something in it: a recorder that is started again would refuse what is left of an attempt.
    let mut recording: Option<(Recorder<Box<dyn Write + Send>>, Instant)> = None;
    let mut besides = Besides::AllNodes;
    loop {
        let listed = tokio::select! {
            biased;
            () = &mut end => break,
            listed = look(&cluster, &source, besides) => listed,
        };
        match listed {
            Ok((now, found)) => {
                if recording.is_none() {
                    besides = match found.node_claims {
                        Some(_) => Besides::NodeClaims,
                        None => Besides::Nothing,
                    };
                    let recorder = Recorder::begin(created(args.output.as_deref())?, &head)?;
                    recording = Some((recorder, Instant::now()));
                }
                if let Some((recorder, listed_last)) = &mut recording {
                    recorder.note(now, found)?;
                    *listed_last = Instant::now();
                }
            }
            // A cluster may be unavailable for a while; changes in that time are seen afterwards.
            Err(error) if recording.is_some() => say(&format!("note: {error:#}; trying again")),
            Err(error) => return Err(error),
        }
        tokio::select! {
            biased;
            () = &mut end => break,
            () = tokio::time::sleep(args.every) => {}
        }
    }
    if let Some((mut recorder, listed_last)) = recording {
        // Of a cluster that has been unavailable for longer nothing is known.
        recorder.end(listed_last.elapsed().min(args.every))?;
    }
    Ok(())
}

/// Refuses to write over a recording: a recorder that is started again would lose a week's.
fn refuse_written(path: &Path) -> Result<()> {
    let known = std::fs::metadata(path);
    // Nothing is lost of what is empty, nor of what is no file, such as a pipe.
    if known.is_ok_and(|known| known.is_file() && known.len() > 0) {
        bail!(
            "{} exists already and would be written over; -o names another file, for example with the time in its name",
            path.display()
        );
    }
    Ok(())
}

/// Where is written to.
fn created(path: Option<&Path>) -> Result<Box<dyn Write + Send>> {
    let Some(path) = path else {
        return Ok(Box::new(std::io::stdout()));
    };
    // Somebody else may have begun in the meantime.
    refuse_written(path)?;
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Box::new(file))
}

/// What is asked of a cluster besides its workloads.
#[derive(Clone, Copy)]
enum Besides {
    /// With which nodes the recording begins.
    AllNodes,
    /// Which NodeClaims have come and gone.
    NodeClaims,
    /// Nothing: it does not tell.
    Nothing,
}

/// Lists the cluster. Workloads do not wait for nodes: a list of these that fails leaves them as they were.
async fn look(cluster: &Cluster, source: &Source<'_>, besides: Besides) -> Result<(Timestamp, Found)> {
    let workloads = source.objects(&WORKLOADS).await?;
    let (listed, otherwise) = match besides {
        Besides::AllNodes => {
            let lists = [NODE_CLAIMS, NODES];
            (
                source.objects(&lists).await.map(Some),
                "the recording has no nodes",
            )
        }
        Besides::NodeClaims => {
            let listed = source.objects(&[NODE_CLAIMS]).await;
            (listed.map(Some), "NodeClaims are as they were")
        }
        Besides::Nothing => (Ok(None), ""),
    };
    let listed = listed.unwrap_or_else(|error| {
        say(&format!("note: {error:#}; {otherwise}"));
        None
    });
    let mut nodes = Vec::new();
    let node_claims = listed.map(|mut listed| {
        nodes.extend(listed.extract_if(.., |object| object["kind"] == NODES.1));
        listed
    });
    let found = Found {
        workloads,
        node_claims,
        nodes,
    };
    Ok((cluster.ask_again().await?, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_not_written_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("shop.jsonl");
        // As `mktemp` leaves it: nothing can be lost of it.
        std::fs::write(&path, "").expect("written");
        let mut out = created(Some(path.as_path())).expect("a file");
        out.write_all(b"{}\n").expect("written");
        let error = created(Some(path.as_path())).err().expect("refused");
        assert!(
            error
                .to_string()
                .contains("exists already and would be written over"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "{}\n");
    }
}
