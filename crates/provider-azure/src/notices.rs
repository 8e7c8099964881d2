//! What a node's condition says about the machine's end (Z8). Azure tells of it only inside the machine; AKS's node problem detector makes a
//! condition of it. One that tells of an event that a machine survives tells of no end.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use spokeshave_model::interruption::InterruptionKind;

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
    let kind = kind(condition_type, message).filter(|_| status == "True")?;
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

/// What will happen to the machine; `None` where it goes on as it is. A message begins with the name of its event; without a name that is known it is taken for
/// an end.
fn kind(condition_type: &str, message: &str) -> Option<InterruptionKind> {
    let event = message.split_whitespace().next().unwrap_or_default();
    match (condition_type, event.to_ascii_lowercase().as_str()) {
        ("PreemptionScheduled", _) | ("VMEventScheduled", "preempt") => {
            Some(InterruptionKind::SpotInterrupted)
        }
        // It stands still for seconds, or starts anew with its disks: neither does AKS drain a node for them unless it is asked to.
        ("VMEventScheduled", "freeze" | "reboot") => None,
        ("VMEventScheduled", _) => Some(InterruptionKind::ScheduledChange),
        _ => None,
    }
}

/// The instant behind `Scheduled:`, as RFC 1123 writes it; the sentence ends with a full stop.
fn scheduled(message: &str) -> Option<Timestamp> {
    let (_, rest) = message.split_once("Scheduled:")?;
    let end = rest.find("GMT").map_or(rest.len(), |start| start + "GMT".len());
    let text = rest[..end].trim().trim_end_matches('.');
    DateTimeParser::new().parse_timestamp(text).ok()
}
