//! The queue that tells of interruptions (A9.1).

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use spokeshave_provider_aws::replies::Received;

use crate::endpoints::Service;
use crate::error::CallError;
use crate::session::{Request, Session};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Address {
    queue_url: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Reply {
    messages: Vec<Message>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Message {
    message_id: String,
    body: String,
    receipt_handle: String,
    attributes: Attributes,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Attributes {
    sent_timestamp: Option<String>,
}

fn request(action: &str, body: &serde_json::Value) -> Request {
    Request::json(Service::Sqs, "1.0", "AmazonSQS", action, body)
}

/// `GetQueueUrl`: the address of a queue of this account and region.
///
/// # Errors
///
/// `QueueDoesNotExist`, denied calls, or no answer.
pub async fn queue_url(session: &Session, name: &str) -> Result<String, CallError> {
    let address: Address = session
        .json(&request("GetQueueUrl", &json!({ "QueueName": name })))
        .await?;
    Ok(address.queue_url)
}

/// `ReceiveMessage`: up to ten messages; waits up to `wait` for the first. Each stays hidden for `visibility`, and comes again after it unless it is deleted.
///
/// # Errors
///
/// `QueueDoesNotExist`, denied calls, or no answer.
pub async fn receive(
    session: &Session,
    queue_url: &str,
    wait: Duration,
    visibility: Duration,
) -> Result<Vec<Received>, CallError> {
    let body = json!({
        "QueueUrl": queue_url,
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": wait.as_secs(),
        "VisibilityTimeout": visibility.as_secs(),
        "AttributeNames": ["SentTimestamp"],
        "MessageAttributeNames": ["All"],
    });
    let reply: Reply = session
        .json(&request("ReceiveMessage", &body).long_poll(wait))
        .await?;
    let received = reply.messages.into_iter().map(|message| Received {
        message_id: message.message_id,
        body: message.body,
        receipt_handle: message.receipt_handle,
        sent_at: message
            .attributes
            .sent_timestamp
            .and_then(|milliseconds| Timestamp::from_millisecond(milliseconds.parse().ok()?).ok()),
    });
    Ok(received.collect())
}

/// `DeleteMessage`.
///
/// # Errors
///
/// `ReceiptHandleIsInvalid`, denied calls, or no answer.
pub async fn delete(session: &Session, queue_url: &str, receipt_handle: &str) -> Result<(), CallError> {
    let body = json!({ "QueueUrl": queue_url, "ReceiptHandle": receipt_handle });
    session.call(&request("DeleteMessage", &body)).await.map(drop)
}
