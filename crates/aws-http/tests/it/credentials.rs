//! Whose identity the operator takes, from each source that there is in a cluster, and in which region: what the loader finds in a process of its own, with
//! servers of ours in the place of STS, of Pod Identity's agent and of the instance's metadata.
//!
//! The loader reads the environment of its process, and so it runs in another one: this very program, told to run [`asks_who_it_is`] only.

use std::fs;
use std::path::PathBuf;

use spokeshave_aws_http::{load, sts};
use spokeshave_ports::{Entropy, TokioClock};
use spokeshave_provider_aws::errors::ApiError;

use crate::server::{Asked, Reply, Server};

/// Set for the process that asks.
const ASKS: &str = "SPOKESHAVE_TEST_ASKS_WHO_IT_IS";
const IDENTITY: &str = "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>1</Account><Arn>arn:aws:iam::1:role/x</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>";
/// As the metadata service and Pod Identity's agent give them.
const KEYS: &str = r#"{"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z", "AccessKeyId": "AKIDFOUND", "SecretAccessKey": "secret", "Token": "session", "Expiration": "2999-01-01T00:00:00Z"}"#;
const ASSUMED: &str = "<AssumeRoleWithWebIdentityResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AKIDFOUND</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials><AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/x/y</Arn><AssumedRoleId>A:y</AssumedRoleId></AssumedRoleUser></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>";

/// What the other process does; nothing in this one.
#[tokio::test]
async fn asks_who_it_is() {
    if std::env::var_os(ASKS).is_none() {
        return;
    }
    let clock = TokioClock::wall(1.0).shared();
    let said = match load(None, "karpenter.sh-test", clock, &Entropy::new(1)).await {
        Err(error) => format!("not loaded: {error}"),
        Ok(session) => match sts::caller_identity(&session).await {
            Ok(identity) => format!("{} in {}", identity.arn, session.region()),
            Err(error) => {
                let advice = ApiError::from(error.clone()).advice("sts:GetCallerIdentity");
                format!("refused: {error}{advice}")
            }
        },
    };
    println!("SAID {said}");
}

/// Runs the loader with these variables and no others but `PATH`.
async fn ask(variables: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().unwrap();
    let mut command = tokio::process::Command::new(program);
    command
        .args(["--exact", "credentials::asks_who_it_is", "--nocapture"])
        .env_clear()
        .env(ASKS, "yes")
        // No profile of whoever runs the test, and one attempt.
        .envs([("HOME", "/nonexistent"), ("AWS_MAX_ATTEMPTS", "1")])
        .envs(variables.iter().copied())
        .kill_on_drop(true);
    let output = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text
        .lines()
        .find_map(|line| line.split_once("SAID "))
        .map(|(_, said)| said);
    said.unwrap_or_else(|| {
        panic!(
            "it said nothing: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
    .to_owned()
}

/// A file that is gone with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("spokeshave-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// STS: what it says to a web identity, and to whoever asks who it is.
async fn security_tokens(assumed: Reply) -> Server {
    let assumed = std::sync::Mutex::new(Some(assumed));
    Server::routed(move |_| {
        let first = assumed.lock().unwrap().take();
        first.unwrap_or_else(|| Reply::new(200, IDENTITY))
    })
    .await
}

fn key_of(asked: &Asked) -> String {
    let authorization = asked.header("authorization").unwrap_or_default();
    let key = authorization.split("Credential=").nth(1).unwrap_or_default();
    key.split('/').next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn keys_and_region_of_the_environment_are_used() {
    let sts = Server::routed(|_| Reply::new(200, IDENTITY)).await;
    let said = ask(&[
        ("AWS_ACCESS_KEY_ID", "AKIDFOUND"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "eu-west-3"),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ])
    .await;
    assert_eq!(said, "arn:aws:iam::1:role/x in eu-west-3");
    assert_eq!(key_of(&sts.asked()[0]), "AKIDFOUND");
}

#[tokio::test]
async fn irsa_trades_the_token_of_the_service_account_at_sts() {
    let sts = security_tokens(Reply::new(200, ASSUMED)).await;
    let token = File::new("irsa", "the-token-of-the-service-account");
    let said = ask(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/Spokeshave"),
        ("AWS_REGION", "eu-west-3"),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ])
    .await;
    assert_eq!(said, "arn:aws:iam::1:role/x in eu-west-3");
    let asked = sts.asked();
    assert!(
        asked[0].body.contains("Action=AssumeRoleWithWebIdentity"),
        "{}",
        asked[0].body
    );
    assert!(
        asked[0]
            .body
            .contains("WebIdentityToken=the-token-of-the-service-account")
    );
    assert!(
        asked[0]
            .body
            .contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2FSpokeshave")
    );
    assert_eq!(key_of(&asked[1]), "AKIDFOUND");
    assert_eq!(
        asked[1].header("x-amz-security-token").as_deref(),
        Some("session")
    );
}

/// Where STS is reached through the proxy only: a host that does not exist, so that whoever asks it directly gets no answer.
const BEHIND_THE_PROXY: &str = "http://sts.behind-the-proxy.invalid";

#[tokio::test]
async fn irsa_goes_through_the_proxy_of_the_environment_as_the_calls_after_it() {
    let proxy = security_tokens(Reply::new(200, ASSUMED)).await;
    let token = File::new("proxied", "the-token-of-the-service-account");
    let said = ask(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/Spokeshave"),
        ("AWS_REGION", "eu-west-3"),
        ("AWS_ENDPOINT_URL_STS", BEHIND_THE_PROXY),
        ("HTTP_PROXY", &proxy.url),
    ])
    .await;
    assert_eq!(said, "arn:aws:iam::1:role/x in eu-west-3");
    let asked = proxy.asked();
    assert!(asked[0].body.contains("Action=AssumeRoleWithWebIdentity"));
    assert_eq!(key_of(&asked[1]), "AKIDFOUND");
    for one in &asked {
        let through = format!("POST {BEHIND_THE_PROXY}/");
        assert!(one.head.starts_with(&through), "{}", one.head);
    }
}

#[tokio::test]
async fn irsa_asks_https_proxy_for_a_tunnel_to_sts() {
    let proxy = Server::routed(|_| Reply::new(403, "")).await;
    let token = File::new("tunnelled", "the-token-of-the-service-account");
    let said = ask(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/Spokeshave"),
        ("AWS_REGION", "eu-west-3"),
        ("HTTPS_PROXY", &proxy.url),
    ])
    .await;
    assert!(said.contains("no credentials"), "{said}");
    let asked = proxy.asked();
    let first = asked.first().expect("the proxy was asked");
    let tunnel = "CONNECT sts.eu-west-3.amazonaws.com:443 ";
    assert!(first.head.starts_with(tunnel), "{}", first.head);
}

#[tokio::test]
async fn what_gives_credentials_on_the_machine_is_asked_directly_also_with_a_proxy() {
    let proxy = Server::routed(|_| Reply::new(200, IDENTITY)).await;
    let agent = Server::routed(|_| Reply::new(200, KEYS)).await;
    let imds = Server::routed(metadata).await;
    let token = File::new("direct", "the-token-of-the-pod");
    let agents_url = format!("{}/v1/credentials", agent.url);
    let of_the_pod = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", agents_url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path()),
        ("AWS_REGION", "ap-south-1"),
    ];
    let of_the_instance = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url.as_str())];
    for source in [&of_the_pod[..], &of_the_instance[..]] {
        let proxied = [
            ("AWS_ENDPOINT_URL_STS", BEHIND_THE_PROXY),
            ("HTTP_PROXY", proxy.url.as_str()),
        ];
        let said = ask(&[source, &proxied[..]].concat()).await;
        assert_eq!(said, "arn:aws:iam::1:role/x in ap-south-1");
    }
    let asked = proxy.asked();
    assert_eq!(asked.len(), 2, "the calls to STS, and nothing else: {asked:?}");
    assert!(asked.iter().all(|one| key_of(one) == "AKIDFOUND"), "{asked:?}");
    let agents = [agent.asked(), imds.asked()].concat();
    assert!(
        agents
            .iter()
            .all(|one| one.head.starts_with("GET /") || one.head.starts_with("PUT /")),
        "{agents:?}"
    );
}

#[tokio::test]
async fn a_role_that_does_not_trust_the_service_account_is_named_with_what_to_do() {
    let denied = "<ErrorResponse xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>";
    let sts = security_tokens(Reply::new(403, denied)).await;
    let token = File::new("untrusted", "a-token");
    let said = ask(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.path()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/Spokeshave"),
        ("AWS_REGION", "eu-west-3"),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ])
    .await;
    for part in [
        "refused: sts GetCallerIdentity: no credentials",
        "Not authorized to perform sts:AssumeRoleWithWebIdentity",
        "give the service account a role (IRSA or Pod Identity)",
    ] {
        assert!(said.contains(part), "{part:?} is missing: {said}");
    }
}

#[tokio::test]
async fn pod_identity_asks_its_agent_with_the_token_of_the_pod() {
    let agent = Server::routed(|_| Reply::new(200, KEYS)).await;
    let sts = Server::routed(|_| Reply::new(200, IDENTITY)).await;
    let token = File::new("pod-identity", "the-token-of-the-pod");
    let said = ask(&[
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            &format!("{}/v1/credentials", agent.url),
        ),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path()),
        ("AWS_REGION", "eu-west-3"),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ])
    .await;
    assert_eq!(said, "arn:aws:iam::1:role/x in eu-west-3");
    let asked = &agent.asked()[0];
    assert!(asked.head.starts_with("GET /v1/credentials "), "{}", asked.head);
    assert_eq!(
        asked.header("authorization").as_deref(),
        Some("the-token-of-the-pod")
    );
    assert_eq!(key_of(&sts.asked()[0]), "AKIDFOUND");
}

/// The metadata of an instance, as IMDSv2 gives it: nothing without a session's token.
fn metadata(line: &str) -> Reply {
    match line {
        "PUT /latest/api/token" => {
            Reply::new(200, "a-session").header("x-aws-ec2-metadata-token-ttl-seconds", "21600")
        }
        "GET /latest/meta-data/placement/region" => Reply::new(200, "ap-south-1"),
        _ if line.ends_with("/NodeRole") => Reply::new(200, KEYS),
        _ if line.contains("/security-credentials") => Reply::new(200, "NodeRole"),
        _ => Reply::new(404, ""),
    }
}

#[tokio::test]
async fn the_instances_metadata_gives_role_and_region() {
    let imds = Server::routed(metadata).await;
    let sts = Server::routed(|_| Reply::new(200, IDENTITY)).await;
    let said = ask(&[
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &imds.url),
        ("AWS_ENDPOINT_URL_STS", &sts.url),
    ])
    .await;
    assert_eq!(said, "arn:aws:iam::1:role/x in ap-south-1");
    assert_eq!(key_of(&sts.asked()[0]), "AKIDFOUND");
    let asked = imds.asked();
    let reads = asked.iter().filter(|one| one.head.starts_with("GET "));
    for read in reads {
        assert_eq!(
            read.header("x-aws-ec2-metadata-token").as_deref(),
            Some("a-session"),
            "{}",
            read.head
        );
    }
}

#[tokio::test]
async fn without_region_and_without_credentials_it_says_what_to_give() {
    let nothing = Server::routed(|_| Reply::new(404, "")).await;
    let said = ask(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &nothing.url)]).await;
    assert!(
        said.contains("set AWS_REGION to the region of the cluster"),
        "{said}"
    );
    let said = ask(&[
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &nothing.url),
        ("AWS_REGION", "eu-west-3"),
    ])
    .await;
    assert!(said.contains("no credentials"), "{said}");
    assert!(
        said.contains("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        "{said}"
    );
}

#[tokio::test]
async fn an_expired_token_and_a_wrong_key_are_named_with_what_to_do() {
    for (code, message) in [
        (
            "ExpiredToken",
            "The security token included in the request is expired",
        ),
        (
            "InvalidClientTokenId",
            "The security token included in the request is invalid.",
        ),
    ] {
        let sts = Server::routed(move |_| {
            let body = format!(
                "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
            );
            Reply::new(403, &body)
        })
        .await;
        let said = ask(&[
            ("AWS_ACCESS_KEY_ID", "AKIDFOUND"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_SESSION_TOKEN", "old"),
            ("AWS_REGION", "eu-west-3"),
            ("AWS_ENDPOINT_URL_STS", &sts.url),
        ])
        .await;
        assert!(said.contains(code) && said.contains(message), "{said}");
        assert!(said.contains("; check the operator's credentials"), "{said}");
    }
}
