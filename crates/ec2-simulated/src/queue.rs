//! The queue of interruptions: messages as EventBridge writes them, each delivered again until it is deleted.
//!
//! Owns delivery. When something is said is decided by the machines.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use spokeshave_provider_aws::replies::Received;

use crate::account::OWNER;
use crate::catalogue::REGION;
use crate::instants::later;

/// A message that nobody deletes is kept for this long (A9.5).
const RETENTION: SignedDuration = SignedDuration::from_secs(300);
/// As many as one call receives.
const BATCH: usize = 10;

#[derive(Clone, Debug)]
struct Message {
    body: String,
    sent: Timestamp,
    hidden_until: Timestamp,
    deliveries: u32,
}

/// A queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    messages: BTreeMap<u64, Message>,
    sent: u64,
}

impl Queue {
    pub(crate) fn send(&mut self, body: String, now: Timestamp) {
        self.sent += 1;
        let message = Message {
            body,
            sent: now,
            hidden_until: now,
            deliveries: 0,
        };
        self.messages.insert(self.sent, message);
    }

    /// Up to ten messages that are not hidden. Each is hidden for a while.
    pub(crate) fn receive(&mut self, visibility: Duration, now: Timestamp) -> Vec<Received> {
        self.messages
            .retain(|_, message| now.duration_since(message.sent) < RETENTION);
        let until = later(now, visibility);
        let visible = self
            .messages
            .iter_mut()
            .filter(|(_, message)| message.hidden_until <= now);
        let received = visible.take(BATCH).map(|(number, message)| {
            message.deliveries += 1;
            message.hidden_until = until;
            Received {
                message_id: format!("00000000-0000-4000-8000-{number:012}"),
                body: message.body.clone(),
                receipt_handle: format!("{number}/{}", message.deliveries),
                sent_at: Some(message.sent),
            }
        });
        received.collect()
    }

    /// When the next message can be received; `None` without any.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.messages.values().map(|message| message.hidden_until).min()
    }

    /// Deletes by the handle of a delivery; one that has no message is no error, as with SQS. `false` for what never was a handle.
    pub(crate) fn delete(&mut self, receipt_handle: &str) -> bool {
        let number = receipt_handle
            .split_once('/')
            .and_then(|(number, _)| number.parse::<u64>().ok());
        if let Some(number) = number {
            self.messages.remove(&number);
        }
        number.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }
}

/// An event in EventBridge's envelope.
fn event(source: &str, detail_type: &str, resources: &Value, detail: &Value, now: Timestamp) -> String {
    json!({
        "version": "0", "id": format!("{:016x}", now.as_microsecond()), "detail-type": detail_type, "source": source, "account": OWNER,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), "region": REGION, "resources": resources, "detail": detail,
    })
    .to_string()
}

fn about(detail_type: &str, instance: &str, detail: &Value, now: Timestamp) -> String {
    let resource = json!([format!("arn:aws:ec2:{REGION}:{OWNER}:instance/{instance}")]);
    event("aws.ec2", detail_type, &resource, detail, now)
}

pub(crate) fn spot_interruption(instance: &str, now: Timestamp) -> String {
    let detail = json!({"instance-id": instance, "instance-action": "terminate"});
    about("EC2 Spot Instance Interruption Warning", instance, &detail, now)
}

pub(crate) fn rebalance(instance: &str, now: Timestamp) -> String {
    about(
        "EC2 Instance Rebalance Recommendation",
        instance,
        &json!({"instance-id": instance}),
        now,
    )
}

pub(crate) fn state_change(instance: &str, state: &str, now: Timestamp) -> String {
    let detail = json!({"instance-id": instance, "state": state});
    about("EC2 Instance State-change Notification", instance, &detail, now)
}

pub(crate) fn maintenance(instance: &str, now: Timestamp) -> String {
    let detail = json!({
        "eventArn": format!("arn:aws:health:{REGION}::event/EC2/AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED/{instance}"),
        "service": "EC2", "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", "eventTypeCategory": "scheduledChange",
        "affectedEntities": [{"entityValue": instance}],
    });
    event("aws.health", "AWS Health Event", &json!([instance]), &detail, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spokeshave_provider_aws::messages::{Kind, parse};

    #[test]
    fn messages_come_again_until_they_are_deleted() {
        let mut queue = Queue::default();
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds| start.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
        (0..12).for_each(|number| queue.send(number.to_string(), start));
        let hidden = Duration::from_secs(20);
        assert_eq!(queue.receive(hidden, at(0)).len(), 10);
        assert_eq!(queue.receive(hidden, at(1)).len(), 2);
        let again = queue.receive(hidden, at(20));
        assert_eq!(again.len(), 10);
        assert!(queue.delete(&again[0].receipt_handle) && queue.delete(&again[0].receipt_handle));
        assert!(!queue.delete("nonsense"));
        assert_eq!((queue.len(), queue.next()), (11, Some(at(21))));
        assert!(queue.receive(hidden, at(300)).is_empty(), "none is kept for ever");
    }

    #[test]
    fn a_110_events_are_those_that_the_operator_reads() {
        let now: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
        for (body, kind) in [
            (spot_interruption("i-1", now), Kind::SpotInterrupted),
            (rebalance("i-1", now), Kind::RebalanceRecommendation),
            (state_change("i-1", "stopping", now), Kind::InstanceStopped),
            (state_change("i-1", "terminated", now), Kind::InstanceTerminated),
            (maintenance("i-1", now), Kind::ScheduledChange),
        ] {
            let message = parse(&body).unwrap();
            assert_eq!(
                (message.kind, message.instance_ids.as_slice()),
                (kind, &["i-1".to_owned()][..]),
                "{body}"
            );
        }
    }
}
