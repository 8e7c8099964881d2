//! Who we are and where: credentials and region by Amazon's own rules (A13, line 24).
//!
//! Owns the loading of identity, region and endpoints from what Amazon's SDKs read: environment, profiles, IRSA, Pod Identity, IMDS. The rules themselves are
//! `aws-config`'s.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_runtime_api::client::http::{HttpConnectorSettings, SharedHttpConnector};
use aws_types::SdkConfig;
use aws_types::region::Region;
use aws_types::service_config::ServiceConfigKey;
use spokeshave_ports::{Entropy, SharedClock};

use crate::endpoints::Service;
use crate::proxy::{CredentialsClient, connector};
use crate::session::{Session, SessionOptions};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_ATTEMPTS: u32 = 3;
const SERVICES: [Service; 8] = [
    Service::Ec2,
    Service::Iam,
    Service::Sts,
    Service::Ssm,
    Service::Eks,
    Service::Sqs,
    Service::Pricing,
    Service::ArcZonalShift,
];

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The region is not known.
    #[error(
        "no region: neither AWS_REGION nor a profile nor the instance's metadata names one; set AWS_REGION to the region of the cluster"
    )]
    NoRegion,
    /// There is no source of credentials.
    #[error(
        "no source of credentials: give the service account a role (IRSA or Pod Identity), the instance a profile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    NoCredentials,
}

/// A session as the environment describes it. `region` wins over what the environment says. No call is made to AWS but for the region, where only the
/// metadata of the instance knows it.
///
/// # Errors
///
/// Without a region, or without any source of credentials.
pub async fn load(
    region: Option<String>,
    user_agent: &str,
    clock: SharedClock,
    entropy: &Entropy,
) -> Result<Session, LoadError> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(CredentialsClient::default())
        .sleep_impl(TokioSleep::new());
    if let Some(region) = region {
        loader = loader.region(Region::new(region));
    }
    let config = loader.load().await;
    let region = config.region().ok_or(LoadError::NoRegion)?.to_string();
    let credentials = config.credentials_provider().ok_or(LoadError::NoCredentials)?;
    let settings = HttpConnectorSettings::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .build();
    let connector = connector(settings, ProxyConfig::from_env());
    let options = SessionOptions {
        endpoint_urls: endpoint_urls(&config),
        use_fips: config.use_fips().unwrap_or(false),
        attempts: config
            .retry_config()
            .map_or(DEFAULT_ATTEMPTS, |retry| retry.max_attempts()),
        attempt_timeout: ATTEMPT_TIMEOUT,
        user_agent: user_agent.to_owned(),
        region,
    };
    Ok(Session::new(
        options,
        credentials,
        SharedHttpConnector::new(connector),
        clock,
        entropy,
    ))
}

/// `AWS_ENDPOINT_URL_<service>` and `AWS_ENDPOINT_URL`, also from profiles.
fn endpoint_urls(config: &SdkConfig) -> Vec<(Option<Service>, String)> {
    let mut urls = Vec::new();
    for service in SERVICES {
        let key = ServiceConfigKey::builder()
            .service_id(service.setting())
            .env("AWS_ENDPOINT_URL")
            .profile("endpoint_url")
            .build();
        let found = key.ok().and_then(|key| config.service_config()?.load_config(key));
        if let Some(url) = found {
            urls.push((Some(service), url));
        }
    }
    if let Some(url) = config.endpoint_url() {
        urls.push((None, url.to_owned()));
    }
    urls
}
