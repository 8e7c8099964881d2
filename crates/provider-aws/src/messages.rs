//! What a message of the interruption queue means (A9.2): an EventBridge envelope around one of five events, in any of which instances are
//! named.
//!
//! Owns parsing. What is done about a message is decided by core.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// What a message says; the label `message_type` of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// EC2 takes a spot instance back in two minutes.
    SpotInterrupted,
    /// A spot instance has a raised risk of being taken back.
    RebalanceRecommendation,
    /// An instance stops or has stopped.
    InstanceStopped,
    /// An instance ends or has ended.
    InstanceTerminated,
    /// EC2 takes back an instance of an interruptible capacity reservation.
    CapacityReservationInterrupted,
    /// AWS will maintain or retire the hardware.
    ScheduledChange,
    /// Nothing that concerns nodes.
    NoOp,
}

impl Kind {
    /// As in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::SpotInterrupted => "spot_interrupted",
            Kind::RebalanceRecommendation => "rebalance_recommendation",
            Kind::InstanceStopped => "instance_stopped",
            Kind::InstanceTerminated => "instance_terminated",
            Kind::CapacityReservationInterrupted => "capacity_reservation_interrupted",
            Kind::ScheduledChange => "scheduled_change",
            Kind::NoOp => "no_op",
        }
    }
}

/// A message that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What it says.
    pub kind: Kind,
    /// The instances that it names, in the message's order.
    pub instance_ids: Vec<String>,
    /// When the event happened, if it says so.
    pub start_time: Option<Timestamp>,
    /// When EC2 will end the instance, if it says so.
    pub ends_at: Option<Timestamp>,
}

/// Why a message is not understood. It is logged and deleted, because it would not be understood the next time either.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It is not JSON.
    #[error("message is not JSON: {0}")]
    NotJson(String),
    /// It is JSON, and not an event.
    #[error("message is {0}, expected an event as an object")]
    NotAnObject(&'static str),
    /// A field has a value of a wrong type.
    #[error("field {field} of the message is {found}, expected {expected}")]
    Field {
        /// Path of the field.
        field: &'static str,
        /// What was found.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
}

/// Parses the body of a message. Field names are matched whatever their case, as Go's decoder does.
///
/// # Errors
/// When the body is not an event in EventBridge's envelope, or an event of a known type lacks what it needs.
pub fn parse(body: &str) -> Result<Message, MessageError> {
    if body.is_empty() {
        return Ok(no_op(None));
    }
    let value: Value =
        serde_json::from_str(body).map_err(|error| MessageError::NotJson(error.to_string()))?;
    let event = match &value {
        Value::Object(event) => event,
        Value::Null => return Ok(no_op(None)),
        other => return Err(MessageError::NotAnObject(type_name(other))),
    };
    let start_time = match text(event, "time", "time")? {
        None | Some("") => None,
        Some(time) => Some(time.parse().map_err(|_| MessageError::Field {
            field: "time",
            found: format!("{time:?}"),
            expected: "a time such as 2026-01-02T15:04:05Z",
        })?),
    };
    let envelope = (
        text(event, "version", "version")?,
        text(event, "source", "source")?,
        text(event, "detail-type", "detail-type")?,
    );
    let (Some("0"), Some(source), Some(detail_type)) = envelope else {
        return Ok(no_op(start_time));
    };
    let kind = match (source, detail_type) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => Kind::SpotInterrupted,
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => Kind::RebalanceRecommendation,
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning") => {
            Kind::CapacityReservationInterrupted
        }
        ("aws.ec2", "EC2 Instance State-change Notification") => {
            let Some(kind) = state_change(detail(event)?)? else {
                return Ok(no_op(start_time));
            };
            kind
        }
        ("aws.health", "AWS Health Event") => {
            return health(detail(event)?, start_time);
        }
        _ => return Ok(no_op(start_time)),
    };
    let detail = detail(event)?;
    let instance_id = text(detail, "instance-id", "detail.instance-id")?;
    let instance_id = instance_id
        .filter(|id| !id.is_empty())
        .ok_or(MessageError::Field {
            field: "detail.instance-id",
            found: "absent".to_owned(),
            expected: "the ID of an instance",
        })?;
    Ok(Message {
        kind,
        instance_ids: vec![instance_id.to_owned()],
        start_time,
        ends_at: ends_at(detail),
    })
}

fn no_op(start_time: Option<Timestamp>) -> Message {
    Message {
        kind: Kind::NoOp,
        instance_ids: Vec::new(),
        start_time,
        ends_at: None,
    }
}

/// What cannot be read says nothing: the instance ends all the same.
fn ends_at(detail: &Map<String, Value>) -> Option<Timestamp> {
    let told = field(detail, "instance-termination-time")?;
    told.as_str()?.parse().ok()
}

fn state_change(detail: &Map<String, Value>) -> Result<Option<Kind>, MessageError> {
    let state = text(detail, "state", "detail.state")?.map(str::to_lowercase);
    Ok(match state.as_deref() {
        Some("stopping" | "stopped") => Some(Kind::InstanceStopped),
        Some("shutting-down" | "terminated") => Some(Kind::InstanceTerminated),
        _ => None,
    })
}

fn health(detail: &Map<String, Value>, start_time: Option<Timestamp>) -> Result<Message, MessageError> {
    let about_instances = text(detail, "service", "detail.service")? == Some("EC2")
        && text(detail, "eventTypeCategory", "detail.eventTypeCategory")? == Some("scheduledChange");
    if !about_instances {
        return Ok(no_op(start_time));
    }
    let mut instance_ids = Vec::new();
    let entities = field(detail, "affectedEntities").and_then(Value::as_array);
    for entity in entities.into_iter().flatten().filter_map(Value::as_object) {
        let id = text(entity, "entityValue", "detail.affectedEntities[].entityValue")?;
        instance_ids.extend(id.filter(|id| !id.is_empty()).map(str::to_owned));
    }
    Ok(Message {
        kind: Kind::ScheduledChange,
        instance_ids,
        start_time,
        ends_at: None,
    })
}

fn detail(event: &Map<String, Value>) -> Result<&Map<String, Value>, MessageError> {
    match field(event, "detail") {
        Some(Value::Object(detail)) => Ok(detail),
        other => Err(MessageError::Field {
            field: "detail",
            found: other.map_or("absent", type_name).to_owned(),
            expected: "an object",
        }),
    }
}

/// A field by its name in any case; the exact name wins.
fn field<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).or_else(|| {
        object
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    })
}

fn text<'a>(
    object: &'a Map<String, Value>,
    name: &str,
    path: &'static str,
) -> Result<Option<&'a str>, MessageError> {
    match field(object, name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(MessageError::Field {
            field: path,
            found: type_name(other).to_owned(),
            expected: "a text",
        }),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
