//! What a node's condition says about the machine's end (Z8). Azure tells of it only inside the machine; AKS's node problem detector makes a
//! condition of it.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use spokeshave_model::interruption::InterruptionKind;

/// Conditions that tell of an end, with what they tell.
const CONDITIONS: [(&str, InterruptionKind); 2] = [
    ("PreemptionScheduled", InterruptionKind::SpotInterrupted),
    ("VMEventScheduled", InterruptionKind::ScheduledChange),
];

/// What a condition tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Names the event, so that one that is told twice is one.
    pub id: String,
    /// What will happen.
    pub kind: InterruptionKind,
    /// When, if the message says so.
    pub at: Option<Timestamp>,
}

/// What a node's condition tells; `None` for one that tells nothing of an end.
#[must_use]
pub fn read(condition_type: &str, status: &str, message: &str) -> Option<Notice> {
    let (_, kind) = CONDITIONS
        .into_iter()
        .find(|(name, _)| *name == condition_type && status == "True")?;
    let id = message.split_once("EventId:").map_or("", |(_, rest)| rest).trim();
    let id = id
        .split(|letter: char| letter.is_whitespace() || letter == '.')
        .next()
        .unwrap_or_default();
    Some(Notice {
        id: if id.is_empty() { condition_type } else { id }.to_owned(),
        kind,
        at: scheduled(message),
    })
}

/// The instant behind `Scheduled:`, as RFC 1123 writes it; the sentence ends with a full stop.
fn scheduled(message: &str) -> Option<Timestamp> {
    let (_, rest) = message.split_once("Scheduled:")?;
    let end = rest.find("GMT").map_or(rest.len(), |start| start + "GMT".len());
    let text = rest[..end].trim().trim_end_matches('.');
    DateTimeParser::new().parse_timestamp(text).ok()
}
