//! How the chain of credentials reaches STS: through the proxy that the environment names, like every later call. What gives credentials on the machine
//! itself is asked directly: no proxy can reach it.
//!
//! Owns the connectors. Which hosts are never asked through a proxy is `provider-common`'s, for every cloud.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::Connector;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use http::Uri;
use spokeshave_provider_common::proxies::is_of_the_machine;

/// A connector with these time-outs.
pub(crate) fn connector(settings: HttpConnectorSettings, proxy: ProxyConfig) -> Connector {
    Connector::builder()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .connector_settings(settings)
        .sleep_impl(TokioSleep::new())
        .proxy_config(proxy)
        .build()
}

/// Time-outs to connect and to read.
type Timeouts = (Option<Duration>, Option<Duration>);

/// The client of the chain of credentials. A connector is kept for each pair of time-outs that a source of credentials has.
#[derive(Debug, Default)]
pub(crate) struct CredentialsClient {
    connectors: Mutex<BTreeMap<Timeouts, SharedHttpConnector>>,
}

impl HttpClient for CredentialsClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let timeouts = (settings.connect_timeout(), settings.read_timeout());
        let mut connectors = self.connectors.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = connectors.entry(timeouts).or_insert_with(|| {
            SharedHttpConnector::new(ByHost {
                direct: connector(settings.clone(), ProxyConfig::disabled()),
                by_proxy: connector(settings.clone(), ProxyConfig::from_env()),
            })
        });
        kept.clone()
    }
}

/// Asks some hosts directly, and the others as the environment says.
#[derive(Debug)]
struct ByHost {
    direct: Connector,
    by_proxy: Connector,
}

impl HttpConnector for ByHost {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if is_asked_directly(request.uri()) {
            self.direct.call(request)
        } else {
            self.by_proxy.call(request)
        }
    }
}

/// Whether an address is the machine's own business. What is no address is left to the proxy, which says so.
fn is_asked_directly(uri: &str) -> bool {
    let uri: Option<Uri> = uri.parse().ok();
    uri.as_ref().and_then(Uri::host).is_some_and(is_of_the_machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_of_the_machine_are_asked_directly_and_sts_is_not() {
        for direct in [
            "http://169.254.169.254/latest/api/token",
            "http://[fd00:ec2::23]:80/v1/credentials",
            "http://127.0.0.1:8080/",
        ] {
            assert!(is_asked_directly(direct), "{direct}");
        }
        for through in [
            "https://sts.eu-west-3.amazonaws.com/",
            "https://sts.amazonaws.com",
            "",
        ] {
            assert!(!is_asked_directly(through), "{through}");
        }
    }
}
