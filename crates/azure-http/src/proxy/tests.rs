//! Requests behind a proxy: what it is asked, and who is asked without it.

use std::sync::Mutex;

use spokeshave_azure_cloud::{Http as _, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::HttpClient;

/// A host that does not exist, so that whoever asks it directly gets no answer.
const PLAIN: &str = "http://management.behind-the-proxy.invalid/subscriptions";
const ENCRYPTED: &str = "https://management.behind-the-proxy.invalid/subscriptions";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
/// `user` and `p@ss`.
const BASIC: &str = "Basic dXNlcjpwQHNz";

/// A proxy on this machine, and what it was asked.
struct Proxy {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// One that answers everybody so.
    async fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let heads = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = vec![0; 4096];
                let length = stream.read(&mut head).await.unwrap_or_default();
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                heads.lock().unwrap().push(head);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Proxy { address, asked }
    }

    /// A client that asks everybody through it.
    fn client(&self) -> HttpClient {
        let proxy = format!("http://user:p%40ss@{}", self.address);
        HttpClient::through(Proxies::of(Matcher::builder().all(proxy).build())).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn get(url: &str) -> Request {
    Request {
        method: "GET",
        url: url.to_owned(),
        ..Request::default()
    }
}

#[tokio::test]
async fn z_058_a_proxy_forwards_what_is_not_encrypted() {
    let proxy = Proxy::answering(OK).await;
    let reply = proxy.client().send(get(PLAIN)).await.unwrap();
    assert_eq!((reply.status, reply.body), (200, b"{}".to_vec()));
    let asked = proxy.asked();
    let (first, authorization) = (&asked[0], format!("proxy-authorization: {BASIC}\r\n"));
    assert!(first.starts_with(&format!("GET {PLAIN} HTTP/1.1\r\n")), "{first}");
    assert!(first.contains(&authorization), "{first}");
}

#[tokio::test]
async fn z_058_a_proxy_is_asked_for_a_tunnel_for_what_is_encrypted_and_named_when_it_refuses() {
    let proxy = Proxy::answering("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await;
    let error = proxy.client().send(get(ENCRYPTED)).await.unwrap_err();
    let tunnel = "CONNECT management.behind-the-proxy.invalid:443 HTTP/1.1\r\n";
    let authorization = format!("Proxy-Authorization: {BASIC}\r\n");
    let asked = proxy.asked();
    let is_tunnel = |one: &String| one.starts_with(tunnel) && one.contains(&authorization);
    assert!(!asked.is_empty() && asked.iter().all(is_tunnel), "{asked:?}");
    for part in [proxy.address.as_str(), "HTTPS_PROXY", "NO_PROXY"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("p@ss") && !error.contains("p%40ss"), "{error}");
}

#[test]
fn z_058_no_proxy_and_the_machine_itself_are_asked_directly() {
    let rules = Matcher::builder()
        .all("http://proxy.example:3128")
        .no("azure.internal, 10.0.0.0/8");
    let proxies = Proxies::of(rules.build());
    for direct in [
        "https://azure.internal/",
        "https://login.azure.internal/",
        "https://10.1.2.3/",
        "http://127.0.0.1:8080/",
        "http://localhost:8080/",
        "http://169.254.169.254/metadata/instance",
    ] {
        let proxy = proxies.for_host_of(&Uri::from_static(direct));
        assert!(proxy.is_none(), "{direct}");
    }
    for through in [
        "https://management.azure.com/",
        "http://azure.internal.example/",
        "https://11.0.0.1/",
    ] {
        let proxy = proxies.for_host_of(&Uri::from_static(through));
        let address = proxy.map(|proxy| proxy.uri().to_string());
        assert_eq!(
            address.as_deref(),
            Some("http://proxy.example:3128/"),
            "{through}"
        );
    }
}

#[tokio::test]
async fn z_058_a_proxy_of_another_kind_is_named() {
    let rules = Matcher::builder().all("socks5://127.0.0.1:1080").build();
    let client = HttpClient::through(Proxies::of(rules)).unwrap();
    let error = client.send(get(ENCRYPTED)).await.unwrap_err();
    assert!(error.contains("socks5://127.0.0.1:1080"), "{error}");
}

/// Set for the process that asks as the environment says.
const ASKS: &str = "SPOKESHAVE_TEST_ASKS_THROUGH_A_PROXY";

/// What the other process does; nothing in this one.
#[tokio::test]
async fn asks_as_the_environment_says() {
    if std::env::var_os(ASKS).is_some() {
        let reply = HttpClient::new().unwrap().send(get(PLAIN)).await.unwrap();
        assert_eq!(reply.status, 200);
    }
}

/// The environment is that of the process, and so this very program is run in another one.
#[tokio::test]
async fn z_058_the_environment_names_the_proxy() {
    let proxy = Proxy::answering(OK).await;
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "proxy::tests::asks_as_the_environment_says"]);
    for name in ["ALL_PROXY", "HTTP_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command.env(ASKS, "yes").env("HTTP_PROXY", &proxy.address);
    let output = command.kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let asked = proxy.asked();
    assert!(
        asked[0].starts_with(&format!("GET {PLAIN} HTTP/1.1\r\n")),
        "{asked:?}"
    );
}
