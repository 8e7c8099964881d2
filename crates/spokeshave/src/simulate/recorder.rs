//! `spokeshave record`, and the dump of `simulate init`: records the workloads of a cluster, without secrets.
//!
//! Owns the listing and its pace. What may be written down is decided by `redact` of the crate `scenario`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueHint};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use spokeshave_scenario::import::record::FORMAT;
use spokeshave_scenario::import::redact::redacted;
use tokio::time::Instant;

use super::may_be_written;
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
}

/// Lists, the kind of their items, and whether a cluster may lack them. What makes pods comes before pods.
const WORKLOADS: [(&str, &str, bool); 7] = [
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

/// EC2NodeClasses, where there are any. Who may not list them gets the rest without.
async fn ec2_node_classes(client: &Client) -> Vec<Value> {
    let found = objects(client, &[EC2_NODE_CLASSES]).await;
    found.unwrap_or_else(|error| {
        say(&format!("note: {error:#}; the dump has none"));
        Vec::new()
    })
}

/// Objects of some lists, redacted.
async fn objects(client: &Client, lists: &[(&str, &str, bool)]) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for (path, kind, optional) in lists {
        let pages = live::list(client, path, *optional)
            .await
            .with_context(|| format!("the cluster does not list {path}"))?;
        for page in pages {
            let mut list: Value =
                serde_json::from_str(&page).with_context(|| format!("the answer to {path} is no list"))?;
            let version = list["apiVersion"].take();
            let Value::Array(items) = list["items"].take() else {
                continue;
            };
            for mut item in items {
                item["kind"] = Value::from(*kind);
                item["apiVersion"] = version.clone();
                found.extend(redacted(&item));
            }
        }
    }
    Ok(found)
}

/// A cluster's workloads and NodePools as a List.
///
/// # Errors
/// The cluster does not answer, or refuses a list.
pub(crate) async fn dump(cluster: &ClusterArgs) -> Result<String> {
    let cluster = Cluster::reach(cluster).await?;
    let mut items = objects(&cluster.client, &SETTINGS).await?;
    items.extend(ec2_node_classes(&cluster.client).await);
    items.extend(objects(&cluster.client, &WORKLOADS).await?);
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
    let cluster = Cluster::reach(&args.cluster).await?;
    let head =
        json!({"recording": FORMAT, "cluster": cluster.server, "everySeconds": args.every.as_secs_f64()});
    say("Recording; press Ctrl-C to stop.");
    let mut end = std::pin::pin!(signals::wait(args.duration));
    // There is no recording before there is something in it: a recorder that is started again would refuse what is left of an attempt.
    let mut recording: Option<(Recorder<Box<dyn Write + Send>>, Instant)> = None;
    loop {
        let listed = tokio::select! {
            biased;
            () = &mut end => break,
            listed = look(&cluster) => listed,
        };
        match listed {
            Ok((now, found)) => {
                if recording.is_none() {
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
        recorder.out.flush()?;
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

async fn look(cluster: &Cluster) -> Result<(Timestamp, Vec<Value>)> {
    let found = objects(&cluster.client, &WORKLOADS).await?;
    Ok((cluster.ask_again().await?, found))
}

/// What has been written.
struct Recorder<W: Write> {
    out: BufWriter<W>,
    /// Each object as it was written last, by position of its kind, namespace and name.
    known: BTreeMap<(usize, String, String), String>,
    last: Timestamp,
}

impl<W: Write> Recorder<W> {
    /// A recording with this first line.
    fn begin(out: W, head: &Value) -> Result<Self> {
        let mut recorder = Recorder {
            out: BufWriter::new(out),
            known: BTreeMap::new(),
            last: Timestamp::UNIX_EPOCH,
        };
        writeln!(recorder.out, "{head}")?;
        Ok(recorder)
    }

    /// Writes what is different from the last time.
    fn note(&mut self, now: Timestamp, found: Vec<Value>) -> Result<()> {
        // The clock of a cluster may be set back.
        let now = now.max(self.last);
        self.last = now;
        let mut there = BTreeMap::new();
        for object in found {
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let kind = text("/kind");
            let rank = WORKLOADS
                .iter()
                .position(|(_, known, _)| *known == kind)
                .unwrap_or(0);
            there.insert(
                (rank, text("/metadata/namespace"), text("/metadata/name")),
                object,
            );
        }
        for (key, object) in &there {
            let text = object.to_string();
            if self.known.get(key) != Some(&text) {
                writeln!(
                    self.out,
                    "{}",
                    json!({"at": now, "what": "applied", "object": object})
                )?;
                self.known.insert(key.clone(), text);
            }
        }
        let gone: Vec<_> = self
            .known
            .keys()
            .filter(|key| !there.contains_key(*key))
            .cloned()
            .collect();
        for key in gone {
            let (rank, namespace, name) = &key;
            let object =
                json!({"kind": WORKLOADS[*rank].1, "metadata": {"namespace": namespace, "name": name}});
            writeln!(
                self.out,
                "{}",
                json!({"at": now, "what": "deleted", "object": object})
            )?;
            self.known.remove(&key);
        }
        // So that a recording that is killed has lost nothing.
        self.out.flush()?;
        Ok(())
    }

    /// Writes until when was recorded, so long after the last list: whoever repeats the recording knows how long it is, even if nothing changed any more.
    fn end(&mut self, after: Duration) -> Result<()> {
        let now = self.last.checked_add(after).unwrap_or(self.last);
        writeln!(self.out, "{}", json!({"at": now, "what": "ended"}))?;
        Ok(())
    }
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

    #[test]
    fn only_differences_are_written() {
        let mut recorder = Recorder::begin(Vec::new(), &json!({"recording": FORMAT})).expect("memory");
        let web = |replicas: u32| json!({"kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"}, "spec": {"replicas": replicas}});
        let pod = json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": "web-1"}});
        let at = |text: &str| text.parse().expect("an instant");
        recorder
            .note(at("2026-03-02T10:00:15Z"), vec![pod.clone(), web(1)])
            .expect("memory");
        recorder
            .note(at("2026-03-02T10:00:30Z"), vec![pod, web(1)])
            .expect("memory");
        // The clock was set back.
        recorder
            .note(at("2026-03-02T10:00:00Z"), vec![web(2)])
            .expect("memory");
        recorder.end(Duration::from_secs(15)).expect("memory");
        let text = String::from_utf8(recorder.out.into_inner().expect("memory")).expect("text");
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(lines[0]["recording"], FORMAT, "the head comes first");
        let told = lines[1..].iter().map(|line| {
            let part = |pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            format!("{} {} {}", part("/at"), part("/what"), part("/object/kind"))
        });
        assert_eq!(
            told.collect::<Vec<_>>(),
            [
                "2026-03-02T10:00:15Z applied Deployment",
                "2026-03-02T10:00:15Z applied Pod",
                "2026-03-02T10:00:30Z applied Deployment",
                "2026-03-02T10:00:30Z deleted Pod",
                "2026-03-02T10:00:45Z ended ",
            ]
        );
    }
}
