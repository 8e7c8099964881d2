//! What `spokeshave record` writes: a head, and after it what is different from the last time, one JSON object a line.
//!
//! Owns what of an object is written when it comes or changes, and the order of lines. It lists nothing, and leaves nothing out that is secret.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spokeshave_api::labels;
use spokeshave_scenario::import::record::FORMAT;

use super::recorder::{NODE_CLAIMS, WORKLOADS};

/// What a NodeClaim says of its instance.
const OF_INSTANCES: [&str; 4] = [
    labels::NODE_POOL,
    labels::INSTANCE_TYPE,
    labels::ZONE,
    labels::CAPACITY_TYPE,
];

/// The first line. Whose cluster it was is a name, too.
pub(super) fn head(server: &str, every: Duration, is_hashed: bool) -> Value {
    let mut head = json!({"recording": FORMAT, "everySeconds": every.as_secs_f64()});
    match is_hashed {
        true => head["hashedNames"] = Value::from(true),
        false => head["cluster"] = Value::from(server),
    }
    head
}

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    /// Workloads, pods and PodDisruptionBudgets.
    pub(super) workloads: Vec<Value>,
    /// NodeClaims; none where the cluster did not list them.
    pub(super) node_claims: Option<Vec<Value>>,
    /// Nodes, which are written once.
    pub(super) nodes: Vec<Value>,
}

/// What is written of an object that comes or changes: of a NodeClaim what its instance is, and nothing while it has none but that it is there.
fn brief(object: &Value) -> Cow<'_, Value> {
    if object["kind"] != NODE_CLAIMS.1 {
        return Cow::Borrowed(object);
    }
    let metadata = &object["metadata"];
    let known = OF_INSTANCES.iter().filter_map(|key| {
        let value = metadata["labels"].get(key)?;
        Some(((*key).to_owned(), value.clone()))
    });
    let known: Map<String, Value> = known.collect();
    Cow::Owned(json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": metadata["name"], "creationTimestamp": metadata["creationTimestamp"], "labels": known},
        "status": {"providerID": object["status"]["providerID"]},
    }))
}

/// Kinds whose changes are written, in their order within one look.
fn kinds() -> impl Iterator<Item = &'static str> {
    let workloads: &'static [(&str, &str, bool)] = &WORKLOADS;
    workloads.iter().chain([&NODE_CLAIMS]).map(|(_, kind, _)| *kind)
}

/// What has been written.
pub(super) struct Recorder<W: Write> {
    out: BufWriter<W>,
    /// The last of each object in brief, by position of its kind, namespace and name.
    known: BTreeMap<(usize, String, String), String>,
    last: Timestamp,
    /// Nothing is written yet but the head.
    is_new: bool,
}

impl<W: Write> Recorder<W> {
    /// A recording with this first line.
    pub(super) fn begin(out: W, head: &Value) -> Result<Self> {
        let mut recorder = Recorder {
            out: BufWriter::new(out),
            known: BTreeMap::new(),
            last: Timestamp::UNIX_EPOCH,
            is_new: true,
        };
        writeln!(recorder.out, "{head}")?;
        Ok(recorder)
    }

    /// Writes what is different from the last time; the first time all of it, and whole.
    pub(super) fn note(&mut self, now: Timestamp, found: Found) -> Result<()> {
        // The clock of a cluster may be set back.
        let now = now.max(self.last);
        self.last = now;
        let is_first = std::mem::take(&mut self.is_new);
        for node in &found.nodes {
            self.applied(now, node)?;
        }
        let has_node_claims = found.node_claims.is_some();
        let mut there = BTreeMap::new();
        for object in found
            .workloads
            .into_iter()
            .chain(found.node_claims.into_iter().flatten())
        {
            let text = |pointer: &str| {
                object
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let kind = text("/kind");
            let rank = kinds().position(|known| known == kind).unwrap_or(0);
            there.insert(
                (rank, text("/metadata/namespace"), text("/metadata/name")),
                object,
            );
        }
        for (key, object) in &there {
            let brief = brief(object);
            let text = brief.to_string();
            if self.known.get(key) != Some(&text) {
                let shown: &Value = if is_first { object } else { &brief };
                self.applied(now, shown)?;
                self.known.insert(key.clone(), text);
            }
        }
        let gone: Vec<_> = self
            .known
            .keys()
            .filter(|key| !there.contains_key(*key))
            // Those that were not listed are as they were.
            .filter(|(rank, _, _)| has_node_claims || *rank < WORKLOADS.len())
            .cloned()
            .collect();
        for key in gone {
            let (rank, namespace, name) = &key;
            let kind = kinds().nth(*rank).unwrap_or_default();
            let object = json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}});
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

    fn applied(&mut self, now: Timestamp, object: &Value) -> Result<()> {
        let line = json!({"at": now, "what": "applied", "object": object});
        writeln!(self.out, "{line}")?;
        Ok(())
    }

    /// Writes until when was recorded, so long after the last list: whoever repeats the recording knows how long it is, even if nothing changed any more.
    pub(super) fn end(&mut self, after: Duration) -> Result<()> {
        let now = self.last.checked_add(after).unwrap_or(self.last);
        writeln!(self.out, "{}", json!({"at": now, "what": "ended"}))?;
        self.out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a cluster that does not list nodes.
    fn workloads(workloads: Vec<Value>) -> Found {
        Found {
            workloads,
            ..Found::default()
        }
    }

    /// What a recorder has written, line by line.
    fn written(recorder: Recorder<Vec<u8>>) -> Vec<Value> {
        let text = String::from_utf8(recorder.out.into_inner().expect("memory")).expect("text");
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    /// When what was done to which kind, after the head.
    fn told(lines: &[Value]) -> Vec<String> {
        let told = lines[1..].iter().map(|line| {
            let part = |pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            format!("{} {} {}", part("/at"), part("/what"), part("/object/kind"))
        });
        told.collect()
    }

    #[test]
    fn only_differences_are_written() {
        let mut recorder = Recorder::begin(Vec::new(), &json!({"recording": FORMAT})).expect("memory");
        let web = |replicas: u32| json!({"kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"}, "spec": {"replicas": replicas}});
        let pod = json!({"kind": "Pod", "metadata": {"namespace": "shop", "name": "web-1"}});
        let at = |text: &str| text.parse().expect("an instant");
        recorder
            .note(at("2026-03-02T10:00:15Z"), workloads(vec![pod.clone(), web(1)]))
            .expect("memory");
        recorder
            .note(at("2026-03-02T10:00:30Z"), workloads(vec![pod, web(1)]))
            .expect("memory");
        // The clock was set back.
        recorder
            .note(at("2026-03-02T10:00:00Z"), workloads(vec![web(2)]))
            .expect("memory");
        recorder.end(Duration::from_secs(15)).expect("memory");
        let lines = written(recorder);
        assert_eq!(lines[0]["recording"], FORMAT, "the head comes first");
        assert_eq!(
            told(&lines),
            [
                "2026-03-02T10:00:15Z applied Deployment",
                "2026-03-02T10:00:15Z applied Pod",
                "2026-03-02T10:00:30Z applied Deployment",
                "2026-03-02T10:00:30Z deleted Pod",
                "2026-03-02T10:00:45Z ended ",
            ]
        );
    }

    /// Kubelets and controllers write into Nodes and NodeClaims all the time: only what an instance is, and whether it is there, is written again.
    #[test]
    fn nodes_are_written_at_the_start_and_node_claims_when_they_come_and_go() {
        let claim = |name: &str, instance: Value, since: &str| {
            let labels = json!({"karpenter.sh/nodepool": "default", "node.kubernetes.io/instance-type": "m5.large", "team": "red"});
            json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name, "labels": labels},
                "spec": {"expireAfter": "720h"}, "status": {"providerID": instance, "lastPodEventTime": since}})
        };
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
        let mut recorder = Recorder::begin(Vec::new(), &json!({"recording": FORMAT})).expect("memory");
        let mut note = |minute: u32, node_claims: Option<Vec<Value>>, nodes: Vec<Value>| {
            let at = format!("2026-03-02T10:0{minute}:00Z")
                .parse()
                .expect("an instant");
            let found = Found {
                workloads: Vec::new(),
                node_claims,
                nodes,
            };
            recorder.note(at, found).expect("memory");
        };
        let old = |since: &str| claim("old", json!("cloud://1"), since);
        note(0, Some(vec![old("0")]), vec![node.clone()]);
        note(
            1,
            Some(vec![old("1"), claim("new", Value::Null, "1")]),
            Vec::new(),
        );
        note(
            2,
            Some(vec![old("2"), claim("new", json!("cloud://2"), "2")]),
            Vec::new(),
        );
        // They were not listed.
        note(3, None, Vec::new());
        note(4, Some(vec![claim("new", json!("cloud://2"), "4")]), Vec::new());
        let lines = written(recorder);
        assert_eq!(
            told(&lines),
            [
                "2026-03-02T10:00:00Z applied Node",
                "2026-03-02T10:00:00Z applied NodeClaim",
                "2026-03-02T10:01:00Z applied NodeClaim",
                "2026-03-02T10:02:00Z applied NodeClaim",
                "2026-03-02T10:04:00Z deleted NodeClaim",
            ]
        );
        assert_eq!(lines[1]["object"], node);
        assert_eq!(
            lines[2]["object"],
            old("0"),
            "whole, so that a simulation can begin with it"
        );
        let later = &lines[4]["object"];
        assert_eq!(later["status"], json!({"providerID": "cloud://2"}));
        assert_eq!(
            later["metadata"]["labels"]["node.kubernetes.io/instance-type"],
            "m5.large"
        );
        assert_eq!(
            (&later["spec"], &later["metadata"]["labels"]["team"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(lines[5]["object"]["metadata"]["name"], "old");
    }

    #[test]
    fn a_head_without_names_does_not_say_whose_cluster_it_is() {
        let of = |is_hashed: bool| head("https://shop.example", Duration::from_secs(15), is_hashed);
        assert_eq!(of(false)["cluster"], "https://shop.example");
        let hashed = of(true);
        assert!(!hashed.to_string().contains("shop"), "{hashed}");
        assert_eq!(
            (&hashed["recording"], &hashed["hashedNames"]),
            (&json!(FORMAT), &json!(true))
        );
    }
}
