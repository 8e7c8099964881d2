//! The queue of interruptions (A9): messages in, and out again when all that follows from them is done.
//!
//! Owns which message is in hand and which instances of it are still to be answered for. What a message means is decided in `provider-aws`, what is done
//! about it by core.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use spokeshave_api::{NodeClaim, labels as api};
use spokeshave_model::CapacityType;
use spokeshave_model::interruption::InterruptionKind;
use spokeshave_ports::{CloudError, Interruption, Interruptions};
use spokeshave_provider_aws::errors::{ApiError, steady};
use spokeshave_provider_aws::fleet::Mark;
use spokeshave_provider_aws::instances;
use spokeshave_provider_aws::labels::CAPACITY_RESERVATION_ID;
use spokeshave_provider_aws::messages::{self, Kind, Message};
use spokeshave_provider_aws::replies::Received;
use spokeshave_provider_aws::unavailable::OfferingKey;

use crate::in_hand::Pending;
use crate::notices;
use crate::provider::{Inner, cloud_error};

/// How long one poll waits for a message, and how long a message that was received stays hidden from the next.
const WAIT: Duration = Duration::from_secs(20);
/// Pause after a poll that failed.
const RETRY: Duration = Duration::from_secs(5);
/// EC2 takes an instance back so long after it says so, if it does not say when.
const NOTICE: SignedDuration = SignedDuration::from_mins(2);
/// Instances that nobody knows are looked for no more often than this.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// Whose an instance of a message is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Ours, by its provider ID.
    Ours(String),
    /// Somebody else's.
    Others,
    /// EC2 did not say.
    Unknown,
}

fn kind_of(kind: Kind) -> InterruptionKind {
    match kind {
        Kind::SpotInterrupted => InterruptionKind::SpotInterrupted,
        Kind::RebalanceRecommendation => InterruptionKind::RebalanceRecommendation,
        Kind::InstanceStopped => InterruptionKind::InstanceStopped,
        Kind::InstanceTerminated => InterruptionKind::InstanceTerminated,
        Kind::CapacityReservationInterrupted => InterruptionKind::CapacityReservationInterrupted,
        Kind::ScheduledChange => InterruptionKind::ScheduledChange,
        Kind::NoOp => InterruptionKind::NoOp,
    }
}

/// How long an instance has from the moment on in which EC2 says that it takes it back. Both times are of EC2's clock, which may be another than ours.
fn notice_of(message: &Message) -> SignedDuration {
    let told = message.start_time.zip(message.ends_at);
    let told = told.map(|(said, end)| end.duration_since(said));
    told.filter(|told| !told.is_negative()).unwrap_or(NOTICE)
}

/// When EC2 takes an instance back that it says so of. What was said was said before it is read, whatever our clock shows; and what seems older than its
/// notice counts from now on. Either the clocks differ by minutes, and its pods keep their time, or it is gone, and nothing waits for them.
fn taken_back_at(said: Option<Timestamp>, notice: SignedDuration, now: Timestamp) -> Timestamp {
    let is_recent = |said: &Timestamp| now.duration_since(*said) < notice;
    let said = said.map_or(now, |said| said.min(now));
    let said = Some(said).filter(is_recent).unwrap_or(now);
    said.saturating_add(notice).unwrap_or(Timestamp::MAX)
}

impl Inner {
    /// The messages of the queue, for as long as somebody listens; none without a queue.
    pub(crate) fn listen(&self) -> Interruptions<'_> {
        let polls = stream::unfold((), move |()| async move { Some((self.poll().await, ())) });
        let polls = polls.flat_map(stream::iter);
        let others = stream::select(self.unhealthy(), self.ending_blocks());
        stream::select(polls.boxed(), others).boxed()
    }

    async fn poll(&self) -> Vec<Interruption> {
        let Some(queue) = &self.options.interruption_queue else {
            // Nobody will ever send one.
            return std::future::pending().await;
        };
        let received = match self.receive(queue).await {
            Ok(received) => received,
            Err(error) => {
                self.tell_unread(queue, &error);
                self.clock.sleep(RETRY).await;
                return Vec::new();
            }
        };
        self.tell_read(queue);
        let mut interruptions = Vec::new();
        for message in received {
            interruptions.extend(self.take(message).await);
        }
        interruptions
    }

    async fn receive(&self, queue: &str) -> Result<Vec<Received>, String> {
        let failed = |call: &'static str| {
            move |error: ApiError| {
                if error.is_not_found() {
                    return "it does not exist; create it with its rules (deploy/aws/cloudformation.yaml), or name the one that exists in INTERRUPTION_QUEUE".to_owned();
                }
                error.told(call)
            }
        };
        let known = self.messages.state().queue_url.clone();
        let url = match known {
            Some(url) => url,
            None => {
                let url = self.aws.sqs.queue_url(queue).await;
                let url = url.map_err(failed("sqs:GetQueueUrl"))?;
                self.messages.state().queue_url = Some(url.clone());
                url
            }
        };
        let received = self.aws.sqs.receive(&url, WAIT, WAIT).await;
        received.map_err(|error| {
            if error.is_not_found() {
                self.messages.state().queue_url = None;
            }
            failed("sqs:ReceiveMessage")(error)
        })
    }

    /// Says once why the queue cannot be read: in the log, and in an event on each class, since spot nodes of all of them end without notice.
    fn tell_unread(&self, queue: &str, error: &str) {
        let text = format!(
            "cannot read the SQS queue {queue}, so that nobody hears of interruptions: {}",
            steady(error)
        );
        let mut state = self.messages.state();
        if state.failure_logged.as_deref() != Some(text.as_str()) {
            tracing::error!(queue, "{text}; it is tried again every {} s", RETRY.as_secs());
            state.failure_logged = Some(text.clone());
        }
        let classes = self.classes.all().unwrap_or_default();
        if state.failure_told.as_deref() != Some(text.as_str()) && !classes.is_empty() {
            for class in &classes {
                let notice = notices::of_class(class, true, "InterruptionQueueUnreadable", text.clone());
                self.notices.tell(notice);
            }
            state.failure_told = Some(text);
        }
    }

    fn tell_read(&self, queue: &str) {
        let mut state = self.messages.state();
        state.failure_told = None;
        if state.failure_logged.take().is_some() {
            tracing::info!(queue, "the interruption queue is read again");
        }
    }

    /// What a message says to core; one that says nothing about our nodes names none, and is counted and deleted (A9.1, D-278). One about instances that EC2 did
    /// not tell of just now stays in the queue and comes again.
    async fn take(&self, received: Received) -> Vec<Interruption> {
        let message = match messages::parse(&received.body) {
            Ok(message) => message,
            Err(error) => {
                let text = format!("{error}: {}", received.body.chars().take(200).collect::<String>());
                self.hold(&received, BTreeSet::from([String::new()]));
                return vec![Interruption {
                    id: format!("{}/", received.message_id),
                    provider_id: String::new(),
                    kind: Err(text),
                    sent_at: None,
                    ends_at: None,
                }];
            }
        };
        let kind = kind_of(message.kind);
        let mut ours = Vec::new();
        if kind != InterruptionKind::NoOp {
            for id in &message.instance_ids {
                match self.owner_of(id).await {
                    Owner::Ours(provider_id) => ours.push((id.clone(), provider_id)),
                    Owner::Others => {}
                    Owner::Unknown => return Vec::new(),
                }
            }
        }
        if ours.is_empty() {
            ours.push((String::new(), String::new()));
        }
        self.hold(&received, ours.iter().map(|(id, _)| id.clone()).collect());
        let is_taken_back = matches!(
            kind,
            InterruptionKind::SpotInterrupted | InterruptionKind::CapacityReservationInterrupted
        );
        let ends_at =
            is_taken_back.then(|| taken_back_at(message.start_time, notice_of(&message), self.clock.now()));
        let interruptions = ours.into_iter().map(|(id, provider_id)| {
            match kind {
                InterruptionKind::SpotInterrupted => self.withhold_spot(&id),
                InterruptionKind::CapacityReservationInterrupted => self.withhold_reservation(&id),
                _ => {}
            }
            Interruption {
                id: format!("{}/{id}", received.message_id),
                provider_id,
                kind: Ok(kind),
                sent_at: message.start_time,
                ends_at,
            }
        });
        interruptions.collect()
    }

    fn hold(&self, received: &Received, left: BTreeSet<String>) {
        let pending = Pending {
            receipt_handle: received.receipt_handle.clone(),
            left,
        };
        self.messages
            .state()
            .pending
            .insert(received.message_id.clone(), pending);
    }

    /// Another spot instance of that type in that zone would be taken back as well.
    fn withhold_spot(&self, id: &str) {
        let claimed = || {
            let claim = self.claim_of(id)?;
            let label = |key: &str| claim.label(key).map(str::to_owned);
            Some((label(api::INSTANCE_TYPE)?, label(api::ZONE)?))
        };
        let known = self.known(id).map(|known| (known.instance_type, known.zone));
        let Some((instance_type, zone)) = known.or_else(claimed) else {
            return;
        };
        let key = OfferingKey {
            capacity_type: CapacityType::Spot,
            instance_type,
            zone,
            placement_group: None,
        };
        self.market.withhold(key, self.clock.now());
    }

    /// What replaces it would be launched into the reservation from which it is taken back (D-283).
    fn withhold_reservation(&self, id: &str) {
        let claim = self.claim_of(id);
        let reservation = claim
            .as_ref()
            .and_then(|claim| claim.label(CAPACITY_RESERVATION_ID));
        let mark = reservation.map(|id| Mark::Reservation(id.to_owned()));
        self.market.apply(mark, self.clock.now());
    }

    /// Whose an instance is: as launched or listed, as NodeClaims say (EC2 may not tell of it yet), or as EC2 says now.
    pub(crate) async fn owner_of(&self, id: &str) -> Owner {
        if let Some(known) = self.known(id) {
            return Owner::Ours(instances::provider_id(&known.zone, id));
        }
        if let Some(provider_id) = self.claimed(id) {
            return Owner::Ours(provider_id);
        }
        let now = self.clock.now();
        let looked = self.messages.state().looked;
        let lately = looked.filter(|(at, _)| now.duration_since(*at) < LOOK_AGAIN);
        let has_answered = match lately {
            Some((_, has_answered)) => has_answered,
            None => {
                let answer = self.instances().await;
                if let Err(error) = &answer {
                    tracing::warn!(%error, "ec2:DescribeInstances failed: messages about instances that are not known yet stay in the queue");
                }
                self.messages.state().looked = Some((now, answer.is_ok()));
                answer.is_ok()
            }
        };
        match self.known(id) {
            Some(known) => Owner::Ours(instances::provider_id(&known.zone, id)),
            None if has_answered => Owner::Others,
            None => Owner::Unknown,
        }
    }

    /// The provider ID of this instance in the status of a NodeClaim.
    fn claimed(&self, id: &str) -> Option<String> {
        self.claim_of(id)?.provider_id().map(str::to_owned)
    }

    /// The NodeClaim of this instance.
    fn claim_of(&self, id: &str) -> Option<Arc<NodeClaim>> {
        let is_it = |claim: &Arc<NodeClaim>| claim.provider_id().and_then(instances::instance_id) == Some(id);
        self.claims.all()?.into_iter().find(is_it)
    }

    /// An instance of a message is answered for; after the last one the message is deleted.
    pub(crate) async fn acknowledge(&self, message: &Interruption) -> Result<(), CloudError> {
        let (message_id, instance) = message.id.rsplit_once('/').unwrap_or((&message.id, ""));
        let receipt = {
            let mut state = self.messages.state();
            let Some(pending) = state.pending.get_mut(message_id) else {
                return Ok(());
            };
            pending.left.remove(instance);
            if !pending.left.is_empty() {
                return Ok(());
            }
            pending.receipt_handle.clone()
        };
        self.delete_message(&receipt).await?;
        self.messages.state().pending.remove(message_id);
        Ok(())
    }

    async fn delete_message(&self, receipt_handle: &str) -> Result<(), CloudError> {
        let Some(url) = self.messages.state().queue_url.clone() else {
            return Ok(());
        };
        match self.aws.sqs.delete(&url, receipt_handle).await {
            Ok(()) => Ok(()),
            // It was delivered again since, or has ended by itself.
            Err(error) if error.code == "ReceiptHandleIsInvalid" || error.is_not_found() => Ok(()),
            Err(error) => {
                let effect = "messages about interruptions come again until they expire";
                self.tell_denied("sqs:DeleteMessage", effect, &error);
                Err(cloud_error("sqs:DeleteMessage", &error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_112_a_clock_that_is_minutes_off_gives_a_spot_instance_no_more_than_its_two_minutes() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let at = |minutes: i64| {
            let said = now.saturating_add(SignedDuration::from_mins(minutes)).unwrap();
            taken_back_at(Some(said), NOTICE, now)
                .duration_since(now)
                .as_mins()
        };
        assert_eq!([at(0), at(-1), at(5), at(600)], [2, 1, 2, 2]);
        assert_eq!(
            [at(-2), at(-5), at(-600)],
            [2, 2, 2],
            "with a clock that is fast, pods are not ended without their time"
        );
        assert_eq!(taken_back_at(None, NOTICE, now).duration_since(now), NOTICE);
        assert_eq!(
            taken_back_at(Some(Timestamp::MAX), NOTICE, Timestamp::MAX),
            Timestamp::MAX
        );
    }

    #[test]
    fn d_283_an_instance_has_as_long_as_its_message_says() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).ok();
        for (start_time, ends_at, seconds) in [
            (at(0), at(90), 90),
            (at(0), None, 120),
            (None, at(90), 120),
            (at(90), at(0), 120),
        ] {
            let message = Message {
                kind: Kind::CapacityReservationInterrupted,
                instance_ids: Vec::new(),
                start_time,
                ends_at,
            };
            assert_eq!(
                notice_of(&message),
                SignedDuration::from_secs(seconds),
                "{message:?}"
            );
        }
    }
}
