//! How long the pods of a trace of SimKube lived, as its tracer saw them: when each was running, and when it had finished.
//!
//! Owns their reading and when what they belong to is over. A pod that ran on when the trace ended has no end.

use std::collections::{BTreeMap, BTreeSet};

use rmpv::Value;

use super::ImportError;
use super::packed::Packed;
use super::sktrace::no_trace;
use super::stream::{Identity, Stream};

/// Lives in one trace, and what they belong to.
const MOST: usize = 2_000_000;
/// A life of a pod, two instants and a word, and a name of Kubernetes: more bytes are something else.
const MOST_BYTES: usize = 4_096;

/// A pod's life in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    began: i64,
    /// None: it still ran.
    ended: Option<i64>,
}

impl Life {
    fn end_ms(&self) -> Option<i64> {
        Some(self.ended?.saturating_mul(1_000))
    }
}

/// What becomes of something that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nobody has seen its end.
    Unknown,
    /// It was seen to run when the trace ended.
    RunsOn,
    /// It ends then, in milliseconds since 1970.
    Ends(i64),
    /// It had ended before.
    IsOver,
}

/// The lives of the pods of each object whose pods were followed, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Lives(BTreeMap<Identity, Vec<Life>>);

impl Lives {
    /// Reads `pod_lifecycles`: by kind and name, and by the hash of the pod's specification. What has another form says nothing.
    ///
    /// # Errors
    /// There are more than fit into memory.
    pub(super) fn read(mut packed: Packed<'_>) -> Result<Self, ImportError> {
        let mut lives = Self::default();
        let mut count = 0;
        for _ in 0..packed.map().unwrap_or(0) {
            let identity = identity(passed(&mut packed)?.1);
            let (mut hashes, _) = passed(&mut packed)?;
            let mut found = Vec::new();
            for _ in 0..hashes.map().unwrap_or(0) {
                passed(&mut hashes)?;
                let (mut list, _) = passed(&mut hashes)?;
                for _ in 0..list.list().unwrap_or(0) {
                    found.extend(life(passed(&mut list)?.1));
                    refuse_more(count + found.len())?;
                }
            }
            if let Some(identity) = identity {
                count += 1 + found.len();
                refuse_more(count)?;
                lives.0.entry(identity).or_default().extend(found);
            }
        }
        for found in lives.0.values_mut() {
            found.sort_unstable();
        }
        Ok(lives)
    }

    /// What becomes of a bare pod that is there at this instant, in milliseconds since 1970. Others may have had its name before, or have it later.
    pub(super) fn of_pod(&self, identity: &Identity, instant_ms: i64) -> Fate {
        let Some(lives) = self.0.get(identity).filter(|lives| !lives.is_empty()) else {
            return Fate::Unknown;
        };
        let mut ends = lives.iter().map(Life::end_ms);
        match ends.find(|end| end.is_none_or(|end| end >= instant_ms)) {
            Some(Some(end)) => Fate::Ends(end),
            Some(None) => Fate::RunsOn,
            None => Fate::IsOver,
        }
    }

    /// What becomes of an object that is over when all of its pods are.
    pub(super) fn of_all(&self, identity: &Identity, instant_ms: i64) -> Fate {
        let lives = self.0.get(identity).map_or(&[][..], Vec::as_slice);
        if lives.iter().any(|life| life.ended.is_none()) {
            return Fate::RunsOn;
        }
        match lives.iter().filter_map(Life::end_ms).max() {
            Some(end) if end >= instant_ms => Fate::Ends(end),
            Some(_) => Fate::IsOver,
            None => Fate::Unknown,
        }
    }

    /// For how many milliseconds the pods of an object ran, one after the other.
    pub(super) fn lengths(&self, identity: &Identity) -> Vec<u64> {
        let lives = self.0.get(identity).into_iter().flatten();
        let lengths = lives.filter_map(|life| {
            let length = life.ended?.saturating_sub(life.began);
            u64::try_from(length.saturating_mul(1_000)).ok()
        });
        lengths.collect()
    }
}

fn refuse_more(count: usize) -> Result<(), ImportError> {
    match count <= MOST {
        true => Ok(()),
        false => Err(ImportError::whole(format!(
            "has more than {MOST} lives of pods; cut the trace into pieces"
        ))),
    }
}

/// The next value: where it is, and its bytes.
fn passed<'b>(packed: &mut Packed<'b>) -> Result<(Packed<'b>, &'b [u8]), ImportError> {
    let found = *packed;
    let bytes = packed.value().map_err(|broken| no_trace(&broken))?;
    Ok((found, bytes))
}

/// `["batch/v1.CronJob", "shop/tick"]`.
fn identity(bytes: &[u8]) -> Option<Identity> {
    let Value::Array(parts) = small(bytes)? else {
        return None;
    };
    let [kind, name] = parts.as_slice() else {
        return None;
    };
    let (namespace, name) = name.as_str()?.split_once('/')?;
    Some((kind.as_str()?.to_owned(), namespace.to_owned(), name.to_owned()))
}

/// `{"Running": s}` or `{"Finished": [s, e]}`; `"Empty"` says nothing.
fn life(bytes: &[u8]) -> Option<Life> {
    let Value::Map(entries) = small(bytes)? else {
        return None;
    };
    let (what, when) = entries.first()?;
    // An instant of the years that a trace may be of, in which nothing overflows.
    let second = |value: &Value| {
        value
            .as_i64()
            .filter(|second| (0..=100_000_000_000).contains(second))
    };
    match (what.as_str()?, when) {
        ("Running", began) => Some(Life {
            began: second(began)?,
            ended: None,
        }),
        ("Finished", Value::Array(both)) => match both.as_slice() {
            [began, ended] => Some(Life {
                began: second(began)?,
                ended: Some(second(ended)?),
            }),
            _ => None,
        },
        _ => None,
    }
}

fn small(mut bytes: &[u8]) -> Option<Value> {
    let read = (bytes.len() <= MOST_BYTES).then(|| rmpv::decode::read_value_with_max_depth(&mut bytes, 8));
    read?.ok()
}

/// What is going to end, in order.
#[derive(Debug, Default)]
pub(super) struct Ends {
    sorted: BTreeSet<(i64, Identity)>,
    due: BTreeMap<Identity, i64>,
}

impl Ends {
    /// It ends at this instant, whatever was said of it before.
    pub(super) fn at(&mut self, instant_ms: i64, identity: Identity) {
        self.forget(&identity);
        self.sorted.insert((instant_ms, identity.clone()));
        self.due.insert(identity, instant_ms);
    }

    /// It has ended otherwise.
    pub(super) fn forget(&mut self, identity: &Identity) {
        if let Some((identity, instant_ms)) = self.due.remove_entry(identity) {
            self.sorted.remove(&(instant_ms, identity));
        }
    }

    /// Tells the stream what ends until an instant.
    pub(super) fn until(&mut self, instant_ms: i64, stream: &mut Stream) -> Result<(), ImportError> {
        while self.sorted.first().is_some_and(|(end, _)| *end <= instant_ms) {
            let Some((end, identity)) = self.sorted.pop_first() else {
                break;
            };
            self.due.remove(&identity);
            let (kind, namespace, name) = &identity;
            stream.deleted(end, kind, namespace, name)?;
        }
        Ok(())
    }
}
