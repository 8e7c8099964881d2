//! The listener: TLS, tokens, loopback, a port in use.

use std::net::SocketAddr;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use spokeshave_apiserver::{Listener, ListenerError, kubeconfig};

use crate::client::{Client, MAPS};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

async fn connect(listener: &Listener, token: &str) -> kube::Client {
    let text = kubeconfig(listener.address(), listener.ca_pem(), token);
    let parsed = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .expect("a configuration");
    kube::Client::try_from(config).expect("a client")
}

#[tokio::test]
async fn only_who_has_the_token_is_answered() {
    let client = Client::with(|config| config.token = Some("secret".to_owned()));
    let listener = Listener::start(&client.server, ANY_PORT)
        .await
        .expect("a free port");
    let get = || http::Request::get(MAPS).body(Vec::new()).expect("a request");
    let list: serde_json::Value = connect(&listener, "secret")
        .await
        .request(get())
        .await
        .expect("a list");
    assert_eq!(list["kind"], "ConfigMapList");
    let refused = connect(&listener, "guess")
        .await
        .request::<serde_json::Value>(get())
        .await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 401));
    listener.stop().await;
}

// RFC 9110 section 6.6.1: by this, clients see a clock that runs faster than theirs.
#[tokio::test]
async fn answers_are_dated_by_the_cluster_s_clock() {
    let client = Client::with(|config| config.token = Some("secret".to_owned()));
    let listener = Listener::start(&client.server, ANY_PORT)
        .await
        .expect("a free port");
    let request = http::Request::get(MAPS)
        .body(kube::client::Body::empty())
        .expect("a request");
    let answer = connect(&listener, "secret")
        .await
        .send(request)
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["date"], "Fri, 15 Jan 2027 08:00:00 GMT");
    listener.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_answered_on_the_wire() {
    let client = Client::with(|config| config.token = Some("secret".to_owned()));
    let listener = Listener::start(&client.server, ANY_PORT)
        .await
        .expect("a free port");
    let body = json!({"metadata": {"name": "big"}, "data": {"key": "x".repeat(8 << 20)}}).to_string();
    let request = http::Request::post(MAPS)
        .header("content-type", "application/json")
        .body(body.into_bytes())
        .expect("a request");
    let refused = connect(&listener, "secret")
        .await
        .request::<serde_json::Value>(request)
        .await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(status)) if status.code == 413),
        "{refused:?}"
    );
    listener.stop().await;
}

#[tokio::test]
async fn a_port_in_use_and_the_open_network_are_refused() {
    let client = Client::new();
    let listener = Listener::start(&client.server, ANY_PORT)
        .await
        .expect("a free port");
    let second = Listener::start(&client.server, listener.address())
        .await
        .map(drop);
    let Err(error @ ListenerError::Bind { .. }) = second else {
        panic!("two servers on one port")
    };
    assert!(
        error.to_string().contains(&listener.address().to_string()),
        "{error}"
    );
    let open = Listener::start(&client.server, ([0, 0, 0, 0], 0).into())
        .await
        .map(drop);
    assert!(matches!(open, Err(ListenerError::NotLoopback(_))));
    listener.stop().await;
}
