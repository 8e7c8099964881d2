//! Requests to Azure over HTTP, and who asks: the ports of `azure-cloud`, served.
//!
//! Owns connections, also those through proxies, limits of time and size, and files. What is asked, and what a reply means, is `azure-cloud`'s.

mod proxy;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use serde::Deserialize;
use spokeshave_azure_cloud::{Assertion, Endpoints, Http, Request, Response};
use spokeshave_ports::causes;

use crate::proxy::{Connector, Proxies};

/// A request that takes longer has no reply.
const LONGEST: Duration = Duration::from_secs(60);
/// A larger reply is none: the list of sizes of a location is about 10 MB.
const LARGEST_BYTES: usize = 64 << 20;

/// Sends requests over HTTP and HTTPS, through the proxies that the environment names. It follows no redirections: a token goes where it was meant to.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    proxies: Proxies,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

impl HttpClient {
    /// A client that trusts whom this machine trusts.
    ///
    /// # Errors
    /// When the machine's certificates cannot be read.
    pub fn new() -> std::io::Result<Self> {
        Self::through(Proxies::of_environment())
    }

    fn through(proxies: Proxies) -> std::io::Result<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusted = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .with_native_roots()?
            .with_no_client_auth();
        let trusted = Arc::new(trusted);
        let connector = Connector::new(proxies.clone(), trusted.clone());
        let connector = HttpsConnector::from((connector, trusted));
        Ok(HttpClient {
            client: Client::builder(TokioExecutor::new()).build(connector),
            proxies,
        })
    }

    async fn exchange(&self, request: Request) -> Result<Response, String> {
        let mut builder = http::Request::builder()
            .method(request.method)
            .uri(&request.url)
            .header("accept", "application/json")
            .header("user-agent", concat!("spokeshave/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let mut request = builder
            .body(Full::new(Bytes::from(request.body)))
            .map_err(|error| format!("the request cannot be sent: {error}"))?;
        if let Some(authorization) = self.proxies.authorization(request.uri()) {
            let headers = request.headers_mut();
            headers.insert(http::header::PROXY_AUTHORIZATION, authorization);
        }
        let reply = self
            .client
            .request(request)
            .await
            .map_err(|error| causes(&error))?;
        let (head, body) = reply.into_parts();
        let body = Limited::new(body, LARGEST_BYTES).collect().await;
        let body = body.map_err(|error| format!("reading the reply: {error}"))?;
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        Ok(Response {
            status: head.status.as_u16(),
            headers: head.headers.iter().filter_map(header).collect(),
            body: body.to_bytes().to_vec(),
        })
    }
}

impl Http for HttpClient {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        async move {
            let limited = tokio::time::timeout(LONGEST, self.exchange(request)).await;
            limited.unwrap_or_else(|_| Err(format!("no reply in {} s", LONGEST.as_secs())))
        }
        .boxed()
    }
}

/// The service account's token in its file, which the kubelet renews (`AZURE_FEDERATED_TOKEN_FILE`).
#[derive(Debug, Clone)]
pub struct TokenFile(pub PathBuf);

impl Assertion for TokenFile {
    fn token(&self) -> Result<String, String> {
        let path = self.0.display();
        let text = std::fs::read_to_string(&self.0).map_err(|error| format!("{path}: {error}"))?;
        if text.trim().is_empty() {
            return Err(format!(
                "{path} is empty; expected the token of a service account"
            ));
        }
        Ok(text)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvironmentFile {
    resource_manager_endpoint: Option<String>,
    active_directory_endpoint: Option<String>,
    token_audience: Option<String>,
    retail_prices_endpoint: Option<String>,
}

/// Where Azure is, from the text of a file in JSON such as sovereign clouds have (`AZURE_ENVIRONMENT_FILEPATH`, Z-058). What it does not name is the
/// public cloud's; an audience that it does not name is its resource manager.
///
/// # Errors
/// When it is no JSON, or names what is no address.
pub fn endpoints(text: &str) -> Result<Endpoints, String> {
    let file: EnvironmentFile = serde_json::from_str(text)
        .map_err(|error| format!("the environment file is no JSON object: {error}"))?;
    let address = |field: &str, value: Option<String>, default: &str| match value {
        None => Ok(default.to_owned()),
        Some(value) if value.starts_with("https://") || value.starts_with("http://") => Ok(value),
        Some(value) => Err(format!(
            "{field} of the environment file is {value:?}; expected an address such as {default}"
        )),
    };
    let public = Endpoints::default();
    let resource_manager = address(
        "resourceManagerEndpoint",
        file.resource_manager_endpoint,
        &public.resource_manager,
    )?;
    Ok(Endpoints {
        login: address(
            "activeDirectoryEndpoint",
            file.active_directory_endpoint,
            &public.login,
        )?,
        audience: file.token_audience.unwrap_or_else(|| resource_manager.clone()),
        prices: address(
            "retailPricesEndpoint",
            file.retail_prices_endpoint,
            &public.prices,
        )?,
        resource_manager,
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn z_058_an_environment_file() {
        let china = r#"{"resourceManagerEndpoint": "https://management.chinacloudapi.cn/", "activeDirectoryEndpoint": "https://login.chinacloudapi.cn/"}"#;
        let found = endpoints(china).unwrap();
        assert_eq!(found.resource_manager, "https://management.chinacloudapi.cn/");
        assert_eq!(found.audience, "https://management.chinacloudapi.cn/");
        assert_eq!(found.login, "https://login.chinacloudapi.cn/");
        assert_eq!(found.prices, "https://prices.azure.com");
        assert_eq!(endpoints("{}").unwrap(), Endpoints::default());
        let error = endpoints(r#"{"activeDirectoryEndpoint": "login.example"}"#).unwrap_err();
        assert!(
            error.contains("activeDirectoryEndpoint") && error.contains("login.example"),
            "{error}"
        );
        assert!(endpoints("x").is_err());
    }

    #[test]
    fn z_057_a_token_that_is_not_there_is_named() {
        let missing = TokenFile("/nowhere/token".into()).token().unwrap_err();
        assert!(missing.starts_with("/nowhere/token: "), "{missing}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_an_error_with_its_cause() {
        let request = Request {
            method: "GET",
            url: "http://127.0.0.1:1/".to_owned(),
            ..Request::default()
        };
        let error = HttpClient::new().unwrap().send(request).await.unwrap_err();
        assert!(error.contains("refused"), "{error}");
    }

    /// A server that answers its first connection with these bytes and then waits.
    async fn answered(head: &'static str, body: usize, then_close: bool) -> Result<Response, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(head.as_bytes()).await;
            for _ in 0..body.div_ceil(1 << 20) {
                if stream.write_all(&[b'x'; 1 << 20]).await.is_err() {
                    return;
                }
            }
            if !then_close {
                std::future::pending::<()>().await;
            }
        });
        let request = Request {
            method: "GET",
            url,
            ..Request::default()
        };
        let answer = HttpClient::new().unwrap().send(request).await;
        server.abort();
        answer
    }

    #[tokio::test]
    async fn z_035_a_reply_of_100_mib_is_not_taken_in() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n";
        let error = answered(head, 100 << 20, true).await.unwrap_err();
        assert!(error.contains("limit"), "{error}");
    }

    #[tokio::test]
    async fn z_035_a_reply_that_breaks_off_is_none() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"value\": [";
        let error = answered(head, 0, true).await.unwrap_err();
        assert!(error.starts_with("reading the reply: "), "{error}");
        let error = answered("this is no HTTP\r\n\r\n", 0, true).await.unwrap_err();
        assert!(error.contains("invalid HTTP"), "{error}");
    }

    /// Time stands still until everybody waits, and goes on then: the minute is not waited for.
    #[tokio::test(start_paused = true)]
    async fn z_035_a_server_that_hangs_is_given_up() {
        let error = answered("", 0, false).await.unwrap_err();
        assert_eq!(error, "no reply in 60 s");
    }

    #[tokio::test]
    async fn z_058_a_redirection_is_an_answer_and_the_token_goes_nowhere_else() {
        let head =
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n";
        let reply = answered(head, 0, true).await.unwrap();
        assert_eq!((reply.status, reply.is_success()), (307, false));
    }
}
