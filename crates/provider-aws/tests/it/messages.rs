//! A-111: messages of the queue.

use spokeshave_provider_aws::messages::{Kind, parse};

use crate::oracle;

#[test]
fn a_111_d_275_every_message_means_what_upstream_reads_in_it() {
    let cases = oracle::json("messages.json");
    let expected = oracle::json("expected/messages.json");
    let (cases, expected) = (cases.as_array().unwrap(), expected.as_array().unwrap());
    assert_eq!(cases.len(), expected.len());
    let mut different = Vec::new();
    for (case, expected) in cases.iter().zip(expected) {
        let body = case.as_str().map_or_else(|| case.to_string(), str::to_owned);
        let message = parse(&body);
        let kind = message.as_ref().map_or(Kind::NoOp, |message| message.kind);
        let ids = message
            .as_ref()
            .map(|message| message.instance_ids.clone())
            .unwrap_or_default();
        let expected_ids: Vec<String> = serde_json::from_value(expected["instance_ids"].clone()).unwrap();
        let same = kind.as_str() == expected["kind"]
            && ids == expected_ids
            && message.is_err() == expected.get("error").is_some();
        if !same {
            different.push(body);
        }
    }
    let differences = oracle::differences("messages");
    let listed = |body: &String| differences.keys().any(|mark| body.contains(mark));
    assert!(different.iter().all(listed), "{different:#?}");
    assert_eq!(different.len(), differences.len(), "{different:#?}");
}

#[test]
fn a_111_d_276_a_state_is_read_whatever_its_case_and_an_instance_must_be_named() {
    let body = |detail: &str| {
        format!(
            r#"{{"version": "0", "source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification", "detail": {detail}}}"#
        )
    };
    assert_eq!(
        parse(&body(r#"{"instance-id": "i-1", "state": "Stopped"}"#))
            .unwrap()
            .kind,
        Kind::InstanceStopped
    );
    let error = parse(&body(r#"{"state": "stopped"}"#)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "field detail.instance-id of the message is absent, expected the ID of an instance"
    );
}

/// Of other notices, and where it is no time, nobody knows when the instance ends; it ends all the same.
#[test]
fn d_283_a_capacity_reservation_says_when_its_instance_ends() {
    let told = |detail: &str| {
        let body = format!(
            r#"{{"version": "0", "source": "aws.ec2", "detail-type": "EC2 Capacity Reservation Instance Interruption Warning", "detail": {detail}}}"#
        );
        let message = parse(&body).unwrap();
        assert_eq!(message.kind, Kind::CapacityReservationInterrupted);
        message.ends_at.map(|at| at.to_string())
    };
    let at = "2026-01-02T15:04:05Z";
    let named = format!(r#"{{"instance-id": "i-1", "instance-termination-time": "{at}"}}"#);
    assert_eq!(told(&named).as_deref(), Some(at));
    assert_eq!(told(r#"{"instance-id": "i-1"}"#), None);
    assert_eq!(
        told(r#"{"instance-id": "i-1", "instance-termination-time": "soon"}"#),
        None
    );
    assert_eq!(
        told(r#"{"instance-id": "i-1", "instance-termination-time": 7}"#),
        None
    );
}
