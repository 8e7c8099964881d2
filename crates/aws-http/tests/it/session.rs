//! What a session does with replies of every sort.

use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_http_client::Connector;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use spokeshave_aws_http::{CallError, Session, SessionOptions, iam, services, sqs, ssm, sts};
use spokeshave_ports::{Entropy, TokioClock};
use spokeshave_provider_aws::requests::look_up::InstancesRequest;
use spokeshave_provider_aws::requests::{Filter, FleetRequest, RunInstancesRequest};
use tokio::sync::Notify;

use crate::server::{Reply, Server};

const IDENTITY: &str = "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>1</Account><Arn>arn:aws:iam::1:role/x</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>";

fn options(region: &str, attempts: u32) -> SessionOptions {
    SessionOptions {
        region: region.to_owned(),
        endpoint_urls: Vec::new(),
        use_fips: false,
        attempts,
        attempt_timeout: Duration::from_secs(30),
        user_agent: "karpenter.sh-test".to_owned(),
    }
}

fn session(server: &Server, attempts: u32) -> Session {
    let options = SessionOptions {
        endpoint_urls: vec![(None, server.url.clone())],
        ..options("eu-west-3", attempts)
    };
    session_over(
        options,
        SharedHttpConnector::new(Connector::builder().build_http()),
    )
}

fn credentials() -> Credentials {
    Credentials::new("AKID", "secret", Some("token".to_owned()), None, "tests")
}

fn session_over(options: SessionOptions, connector: SharedHttpConnector) -> Session {
    session_of(SharedCredentialsProvider::new(credentials()), options, connector)
}

fn session_of(
    credentials: SharedCredentialsProvider,
    options: SessionOptions,
    connector: SharedHttpConnector,
) -> Session {
    // Waits between attempts are a thousandth as long; the epoch is far from the server's.
    let clock = TokioClock::new("2026-01-01T00:00:00Z".parse().unwrap(), 1000.0).shared();
    Session::new(options, credentials, connector, clock, &Entropy::new(1))
}

#[tokio::test]
async fn requests_are_signed_for_region_and_service() {
    let server = Server::start(vec![Reply::new(200, IDENTITY)]).await;
    let identity = sts::caller_identity(&session(&server, 3)).await.unwrap();
    assert_eq!(
        (identity.account.as_str(), identity.arn.as_str()),
        ("1", "arn:aws:iam::1:role/x")
    );
    let asked = &server.asked()[0];
    let authorization = asked.header("authorization").unwrap();
    assert!(
        authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/20260101/eu-west-3/sts/aws4_request"),
        "{authorization}"
    );
    assert_eq!(asked.header("x-amz-security-token").as_deref(), Some("token"));
    assert_eq!(asked.header("user-agent").as_deref(), Some("karpenter.sh-test"));
    assert_eq!(asked.body, "Action=GetCallerIdentity&Version=2011-06-15");
}

#[tokio::test]
async fn throttled_and_failed_attempts_are_repeated_and_refusals_are_not() {
    let throttled = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>m</Message></Error></Errors></Response>";
    let server = Server::start(vec![
        Reply::new(503, throttled),
        Reply::new(500, "oops"),
        Reply::new(200, IDENTITY),
    ])
    .await;
    assert!(sts::caller_identity(&session(&server, 3)).await.is_ok());
    assert_eq!(server.asked().len(), 3);

    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized to perform: iam:GetInstanceProfile</Message></Error><RequestId>r-1</RequestId></ErrorResponse>";
    let server = Server::start(vec![Reply::new(403, denied), Reply::new(200, "")]).await;
    let error = iam::get_profile(&session(&server, 3), "p").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "iam GetInstanceProfile: AccessDenied: not authorized to perform: iam:GetInstanceProfile (request r-1, status 403)"
    );
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn attempts_end_and_the_last_error_is_told() {
    let server = Server::start((0..5).map(|_| Reply::new(502, "bad gateway")).collect()).await;
    let error = sts::caller_identity(&session(&server, 2)).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Service { status: 502, code, .. } if code == "HTTP502"),
        "{error}"
    );
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_clock_that_is_off_is_corrected_once() {
    let skewed =
        "<ErrorResponse><Error><Code>RequestTimeTooSkewed</Code><Message>m</Message></Error></ErrorResponse>";
    let date = ("date", "Thu, 01 Jan 2026 00:20:00 GMT");
    let server = Server::start(vec![
        Reply::new(403, skewed).header(date.0, date.1),
        Reply::new(200, IDENTITY),
    ])
    .await;
    assert!(
        sts::caller_identity(&session(&server, 1)).await.is_ok(),
        "not counted as an attempt"
    );
    let times: Vec<String> = server
        .asked()
        .iter()
        .filter_map(|asked| asked.header("x-amz-date"))
        .collect();
    assert!(times[0].as_str() < "20260101T000100Z", "{times:?}");
    assert!(times[1].starts_with("20260101T002"), "{times:?}");
}

#[tokio::test]
async fn refused_credentials_with_a_right_clock_do_not_loop() {
    let refused = "<Response><Errors><Error><Code>AuthFailure</Code><Message>AWS was not able to validate the provided access credentials</Message></Error></Errors></Response>";
    let server = Server::start((0..5).map(|_| Reply::new(401, refused)).collect()).await;
    assert!(sts::caller_identity(&session(&server, 3)).await.is_err());
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn replies_in_json_are_read_and_broken_ones_are_errors() {
    let server = Server::start(vec![
        Reply::new(200, r#"{"Parameter":{"Name":"/x","Value":"ami-1"}}"#),
        Reply::new(400, r#"{"__type":"ParameterNotFound"}"#),
        Reply::new(200, "<html>"),
    ])
    .await;
    let session = session(&server, 1);
    assert_eq!(ssm::parameter(&session, "/x").await.unwrap(), "ami-1");
    assert_eq!(
        server.asked()[0].header("x-amz-target").as_deref(),
        Some("AmazonSSM.GetParameter")
    );
    assert_eq!(
        ssm::parameter(&session, "/y").await.unwrap_err().code(),
        "ParameterNotFound"
    );
    let unreadable = ssm::parameter(&session, "/z").await.unwrap_err().to_string();
    assert!(unreadable.contains("cannot be read"), "{unreadable}");
}

#[tokio::test]
async fn messages_keep_the_time_at_which_they_were_sent() {
    let body = r#"{"Messages":[{"Body":"b","ReceiptHandle":"h","MessageId":"m","Attributes":{"SentTimestamp":"1767225600123"}},{"Body":"c"}]}"#;
    let server = Server::start(vec![Reply::new(200, body), Reply::new(200, "{}")]).await;
    let session = session(&server, 1);
    let wait = Duration::from_secs(20);
    let received = sqs::receive(&session, "q", wait, wait).await.unwrap();
    assert_eq!(received[0].sent_at.unwrap().as_millisecond(), 1_767_225_600_123);
    assert_eq!((received[1].body.as_str(), received[1].sent_at), ("c", None));
    assert!(sqs::receive(&session, "q", wait, wait).await.unwrap().is_empty());
}

#[tokio::test]
async fn profiles_below_another_path_are_never_listed() {
    let page = |name: &str, path: &str, end: &str| {
        format!(
            "<R><ListInstanceProfilesResult><InstanceProfiles><member><InstanceProfileName>{name}</InstanceProfileName><Path>{path}</Path><Roles><member><RoleName>r</RoleName></member></Roles></member></InstanceProfiles>{end}</ListInstanceProfilesResult></R>"
        )
    };
    let server = Server::start(vec![
        Reply::new(
            200,
            &page(
                "a",
                "/karpenter/r/c/1/",
                "<IsTruncated>true</IsTruncated><Marker>next</Marker>",
            ),
        ),
        Reply::new(200, &page("b", "/somebody/", "<IsTruncated>false</IsTruncated>")),
    ])
    .await;
    let profiles = iam::list_profiles(&session(&server, 1), "/karpenter/r/c/")
        .await
        .unwrap();
    assert_eq!(profiles.len(), 1);
    assert_eq!(
        (profiles[0].name.as_str(), profiles[0].roles[0].as_str()),
        ("a", "r")
    );
    assert!(server.asked()[1].body.contains("Marker=next"));
}

/// A list is all of its pages, or an error: what is missing of it would be taken for gone.
#[tokio::test]
async fn a_090_a_104_instances_of_all_pages_are_listed_and_a_page_that_fails_fails_the_list() {
    let page = |id: &str, next: &str| {
        let text = format!(
            "<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>{id}</instanceId></item></instancesSet></item></reservationSet>{next}</DescribeInstancesResponse>"
        );
        Reply::new(200, &text)
    };
    let first = || page("i-1", "<nextToken>second</nextToken>");
    let request = InstancesRequest {
        filters: vec![Filter::tag("karpenter.sh/nodepool", "*")],
        ..InstancesRequest::default()
    };
    let server = Server::start(vec![first(), page("i-2", "")]).await;
    let found = services(&session(&server, 1))
        .ec2
        .instances(&request)
        .await
        .unwrap();
    let ids: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["i-1", "i-2"]);
    let asked = server.asked();
    for part in [
        "MaxResults=1000",
        "Filter.1.Name=tag-key",
        "Filter.1.Value.1=karpenter.sh%2Fnodepool",
    ] {
        assert!(
            asked.iter().all(|one| one.body.contains(part)),
            "{part}: {}",
            asked[1].body
        );
    }
    assert!(asked[1].body.contains("NextToken=second"), "{}", asked[1].body);
    let refused = "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>";
    let server = Server::start(vec![first(), Reply::new(403, refused)]).await;
    let list = services(&session(&server, 1)).ec2.instances(&request).await;
    assert_eq!(list.unwrap_err().code, "UnauthorizedOperation");
}

/// All classes on the same subnets are rehearsed in the same second, and what EC2 allows of calls is needed by launches.
#[tokio::test]
async fn a_035_a_rehearsal_that_ec2_has_no_time_for_is_made_once_and_a_launch_again() {
    let busy = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>m</Message></Error></Errors></Response>";
    let start = async || Server::start((0..6).map(|_| Reply::new(503, busy)).collect()).await;
    let mut fleet = FleetRequest {
        dry_run: true,
        ..FleetRequest::default()
    };
    let server = start().await;
    let aws = services(&session(&server, 3));
    let error = aws.ec2.create_fleet(&fleet).await.unwrap_err();
    assert_eq!(
        (error.code.as_str(), server.asked().len()),
        ("RequestLimitExceeded", 1)
    );
    let run = RunInstancesRequest {
        dry_run: true,
        ..RunInstancesRequest::default()
    };
    assert!(aws.ec2.rehearse_run_instances(&run).await.is_err());
    assert_eq!(server.asked().len(), 2);
    let server = start().await;
    let aws = services(&session(&server, 3));
    fleet.dry_run = false;
    assert!(aws.ec2.create_fleet(&fleet).await.is_err());
    let asked = server.asked();
    let tokens = asked.iter().map(|one| {
        let parts = one.body.split('&');
        parts
            .filter(|part| part.starts_with("ClientToken="))
            .collect::<String>()
    });
    let tokens: Vec<String> = tokens.collect();
    assert!(tokens.len() == 3 && tokens[0].len() > 20, "{tokens:?}");
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
}

/// Credentials that come when they are told to.
#[derive(Debug)]
struct Slow(Arc<Notify>);

impl ProvideCredentials for Slow {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async move {
            self.0.notified().await;
            Ok(credentials())
        })
    }
}

/// As a launch that core has given up stands still until it is asked for again (A-080).
#[tokio::test]
async fn a_call_that_stands_still_while_credentials_come_holds_up_no_other() {
    let server = Server::start(vec![Reply::new(200, IDENTITY)]).await;
    let come = Arc::new(Notify::new());
    let options = SessionOptions {
        endpoint_urls: vec![(None, server.url.clone())],
        attempt_timeout: Duration::from_secs(10_000),
        ..options("eu-west-3", 1)
    };
    let connector = SharedHttpConnector::new(Connector::builder().build_http());
    let session = session_of(
        SharedCredentialsProvider::new(Slow(come.clone())),
        options,
        connector,
    );
    let mut still = Box::pin(sts::caller_identity(&session));
    assert!(futures::poll!(&mut still).is_pending());
    come.notify_one();
    let other = tokio::time::timeout(Duration::from_secs(10), sts::caller_identity(&session));
    assert!(other.await.expect("it goes on").is_ok());
    assert_eq!(server.asked().len(), 1, "nobody polls the first one");
    drop(still);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_named() {
    let server = Server::start(Vec::new()).await;
    let session = session(&server, 1);
    let error = sts::caller_identity(&session).await.unwrap_err();
    assert!(matches!(&error, CallError::NoAnswer { .. }), "{error}");
    assert!(error.to_string().contains(&server.url), "{error}");
    assert!(error.to_string().contains("AWS_ENDPOINT_URL"), "{error}");
    drop(Arc::new(server));
}

/// A network in which no host has an address.
#[derive(Debug)]
struct NoSuchHost;

impl HttpConnector for NoSuchHost {
    fn call(&self, _request: HttpRequest) -> HttpConnectorFuture {
        let cause = std::io::Error::other("no such host is known");
        HttpConnectorFuture::ready(Err(ConnectorError::io(cause.into())))
    }
}

#[tokio::test]
async fn a_region_that_does_not_exist_is_named_with_the_host_that_is_missing() {
    let session = session_over(options("mars-north-1", 1), SharedHttpConnector::new(NoSuchHost));
    let error = sts::caller_identity(&session).await.unwrap_err();
    let text = error.to_string();
    for part in [
        "https://sts.mars-north-1.amazonaws.com",
        "no such host is known",
        "region mars-north-1 (AWS_REGION) exists",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
