//! What a failed call says: the code, message and request ID of the service, or why there was no answer.
//!
//! Owns the reading of error bodies and whether a call is worth another attempt. What a code means to a launch is decided in `provider-aws`.

use roxmltree::Document;
use serde_json::Value;

use crate::xml;

/// Why a call gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The service answered with an error.
    #[error("{service} {action}: {code}: {message} (request {request_id}, status {status})")]
    Service {
        /// Name of the service, such as `ec2`.
        service: &'static str,
        /// Name of the call.
        action: String,
        /// Status of the reply.
        status: u16,
        /// Code, such as `UnauthorizedOperation`.
        code: String,
        /// Message.
        message: String,
        /// ID that Amazon's support asks for; empty when the reply has none.
        request_id: String,
    },
    /// No credentials.
    #[error(
        "{service} {action}: no credentials: {reason}; give the service account a role (IRSA or Pod Identity), the instance a profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    Credentials {
        /// Name of the service.
        service: &'static str,
        /// Name of the call.
        action: String,
        /// What the chain of credentials said.
        reason: String,
    },
    /// There was no reply, or an unreadable one.
    #[error("{service} {action} at {url}: {reason}")]
    NoAnswer {
        /// Name of the service.
        service: &'static str,
        /// Name of the call.
        action: String,
        /// Where it was sent.
        url: String,
        /// What happened.
        reason: String,
        /// Whether time ran out, so that the service may have acted.
        timed_out: bool,
    },
}

/// Codes that mean "later": the caller asks too often.
const THROTTLING: [&str; 13] = [
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "PriorRequestNotComplete",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
];

/// Codes that mean that the service failed for the moment.
const TRANSIENT: [&str; 6] = [
    "InternalError",
    "InternalFailure",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "Unavailable",
];

/// Codes of requests whose time is too far from the service's.
const SKEW: [&str; 6] = [
    "AuthFailure",
    "InvalidSignatureException",
    "RequestExpired",
    "RequestInTheFuture",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
];

/// Codes of credentials that have ended.
const EXPIRED: [&str; 3] = ["ExpiredToken", "ExpiredTokenException", "RequestExpired"];

impl CallError {
    /// Code of the service; empty when it gave no answer.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            CallError::Service { code, .. } => code,
            _ => "",
        }
    }

    /// The caller asks too often.
    #[must_use]
    pub fn is_throttling(&self) -> bool {
        THROTTLING.contains(&self.code()) || matches!(self, CallError::Service { status: 429, .. })
    }

    /// Another attempt may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            CallError::Service { status, code, .. } => {
                self.is_throttling()
                    || TRANSIENT.contains(&code.as_str())
                    || matches!(status, 500 | 502 | 503 | 504)
            }
            CallError::NoAnswer { .. } => true,
            CallError::Credentials { .. } => false,
        }
    }

    /// The service may have refused the request because of its time.
    #[must_use]
    pub fn may_be_skew(&self) -> bool {
        SKEW.contains(&self.code())
    }

    /// The credentials have ended: new ones must be fetched.
    #[must_use]
    pub fn is_expired_credentials(&self) -> bool {
        EXPIRED.contains(&self.code())
    }
}

/// Code, message and request ID of an error body, in XML (EC2, IAM, STS) or JSON (the others). A body that is neither, such as the page of a proxy, is
/// its own message.
#[must_use]
pub fn read_error(
    status: u16,
    body: &str,
    type_header: Option<&str>,
    id_header: Option<&str>,
) -> (String, String, String) {
    let from_header = || type_header.map(short_code);
    let read = read_xml(body).or_else(|| read_json(body));
    let (code, message, id) = read.unwrap_or_else(|| {
        let text: String = body.trim().chars().take(200).collect();
        (String::new(), text, String::new())
    });
    let code = Some(code).filter(|code| !code.is_empty()).or_else(from_header);
    let id = if id.is_empty() {
        id_header.unwrap_or_default().to_owned()
    } else {
        id
    };
    (code.unwrap_or_else(|| format!("HTTP{status}")), message, id)
}

fn read_xml(body: &str) -> Option<(String, String, String)> {
    let document = Document::parse(body).ok()?;
    let root = xml::root(&document);
    let error = root.descendant("Error")?;
    let id = ["RequestID", "RequestId", "requestId"]
        .iter()
        .find_map(|name| root.descendant(name))
        .map(xml::Element::own_text);
    Some((error.text("Code"), error.text("Message"), id.unwrap_or_default()))
}

fn read_json(body: &str) -> Option<(String, String, String)> {
    let value: Value = serde_json::from_str(body).ok()?;
    let text = |names: &[&str]| {
        let found = names.iter().find_map(|name| value.get(name)?.as_str());
        found.unwrap_or_default().to_owned()
    };
    let code = text(&["__type", "code", "Code"]);
    Some((
        short_code(&code),
        text(&["message", "Message", "errorMessage"]),
        String::new(),
    ))
}

/// The code without the namespace and the address that some services put around it: `com.amazonaws.sqs#QueueDoesNotExist`,
/// `ResourceNotFoundException:http://…`.
fn short_code(code: &str) -> String {
    let code = code.split_once('#').map_or(code, |(_, code)| code);
    let code = code.split_once([':', ';']).map_or(code, |(code, _)| code);
    code.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bodies_of_all_protocols_are_read() {
        let ec2 = "<?xml version='1.0'?><Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code><Message>no i-1</Message></Error></Errors><RequestID>abc</RequestID></Response>";
        let read = read_error(400, ec2, None, None);
        assert_eq!(
            read,
            (
                "InvalidInstanceID.NotFound".to_owned(),
                "no i-1".to_owned(),
                "abc".to_owned()
            )
        );

        let iam = "<ErrorResponse xmlns='https://iam.amazonaws.com/doc/2010-05-08/'><Error><Type>Sender</Type><Code>NoSuchEntity</Code><Message>x</Message></Error><RequestId>r</RequestId></ErrorResponse>";
        assert_eq!(read_error(404, iam, None, None).0, "NoSuchEntity");

        let sqs = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"gone"}"#;
        assert_eq!(
            read_error(400, sqs, None, Some("id")),
            ("QueueDoesNotExist".to_owned(), "gone".to_owned(), "id".to_owned())
        );

        let eks = r#"{"message":"No cluster found"}"#;
        let header = Some("ResourceNotFoundException:http://internal.amazon.com/coral/");
        assert_eq!(read_error(404, eks, header, None).0, "ResourceNotFoundException");

        let proxy = read_error(502, "<html>bad gateway", None, None);
        assert_eq!(
            (proxy.0.as_str(), proxy.1.as_str()),
            ("HTTP502", "<html>bad gateway")
        );
    }

    fn service(status: u16, code: &str) -> CallError {
        CallError::Service {
            service: "ec2",
            action: "CreateFleet".to_owned(),
            status,
            code: code.to_owned(),
            message: String::new(),
            request_id: String::new(),
        }
    }

    #[test]
    fn throttling_and_faults_of_the_service_are_retried_and_refusals_are_not() {
        assert!(service(503, "RequestLimitExceeded").is_retryable());
        assert!(service(500, "InternalError").is_retryable());
        assert!(service(429, "Whatever").is_throttling());
        assert!(!service(403, "UnauthorizedOperation").is_retryable());
        assert!(!service(400, "InvalidParameterValue").is_retryable());
        assert!(service(401, "AuthFailure").may_be_skew());
    }
}
