//! The cluster that a command asks: a client that has got an answer, and the time there. Never writes.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http::Request;
use http::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use kube::Client;
use kube::client::Body;
use spokeshave_ports::TokioClock;

use crate::connection::{ClusterArgs, configuration, connect};

/// How long the first answer may take, before which a name is resolved, a connection made, and perhaps a token fetched.
const FIRST_ANSWER: Duration = Duration::from_secs(30);
/// How long every other answer may take. Without a limit, a cluster that has stopped answering would look like one in which nothing happens.
const ANSWER: Duration = Duration::from_secs(10);

/// A cluster that has answered.
pub(crate) struct Cluster {
    /// For reading it.
    pub(crate) client: Client,
    /// The instant there, in whole seconds: the `Date` of its answer (RFC 9110 section 6.6.1). The clock of `spokeshave up --speed` runs ahead of this
    /// machine's, and this machine's may be wrong; ages and windows are the cluster's. This machine's where the answer has no date.
    pub(crate) now: Timestamp,
    /// Its address.
    pub(crate) server: String,
}

impl Cluster {
    /// Asks the cluster that a kubeconfig and its context lead to, by default the current one.
    ///
    /// # Errors
    /// The kubeconfig or the context cannot be used, or the cluster does not answer.
    pub(crate) async fn reach(cluster: &ClusterArgs) -> Result<Self> {
        let config = configuration(cluster).await?;
        let server = config.cluster_url.to_string();
        let client = connect(&config, cluster, None, &TokioClock::wall(1.0).shared(), None)?;
        let now = ask(&client, &server, FIRST_ANSWER).await?;
        Ok(Cluster { client, now, server })
    }

    /// The instant there now.
    ///
    /// # Errors
    /// The cluster does not answer in time.
    pub(crate) async fn ask_again(&self) -> Result<Timestamp> {
        ask(&self.client, &self.server, ANSWER).await
    }
}

/// Asks for the version, and reads the time of the answer.
async fn ask(client: &Client, server: &str, limit: Duration) -> Result<Timestamp> {
    let request = Request::get("/version").body(Body::empty())?;
    let answer = tokio::time::timeout(limit, client.send(request))
        .await
        .map_err(|_| {
            anyhow!(
                "the cluster at {server} does not answer within {} seconds",
                limit.as_secs()
            )
        })?
        .with_context(|| format!("the cluster at {server} does not answer"))?;
    anyhow::ensure!(
        answer.status().is_success(),
        "the cluster at {server} answers {} to /version",
        answer.status()
    );
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    Ok(date.and_then(timestamp).unwrap_or_else(Timestamp::now))
}

/// The instant of a `Date` header.
fn timestamp(date: &str) -> Option<Timestamp> {
    let zoned = rfc2822::parse(date).ok()?;
    Some(zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_is_an_instant() {
        let instant = timestamp("Sun, 06 Nov 1994 08:49:37 GMT").expect("a date");
        assert_eq!(instant.to_string(), "1994-11-06T08:49:37Z");
        assert_eq!(timestamp("yesterday"), None);
    }
}
