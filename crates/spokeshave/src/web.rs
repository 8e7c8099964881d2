//! `spokeshave web`, and the page of `up` and `operator`: where it listens, who may read it, and the address that is printed.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use clap::Args;
use spokeshave_runtime::{Shutdown, bind};
use spokeshave_web::{Board, Gate, serve};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::connection::seed;
use crate::look::{Source, keep_looking};
use crate::plan::SourceArgs;
use crate::signals;
use crate::text::say;

/// Shown after the help.
pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave web                                    the cluster of the current kubeconfig, refreshed continuously
  spokeshave web --context staging                  that of another context
  spokeshave web -f dump.yaml                       a dump; -f manifests/ shows what the manifests would need
  spokeshave web --listen 127.0.0.1:8090            at a fixed address; the token changes with each start

It is read-only. The URL that it prints contains a token; see docs/page.md.";

/// Arguments of `web`.
#[derive(Debug, Args)]
pub(crate) struct WebArgs {
    /// Where the state comes from
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Additional host name that browsers may use for the page, such as that of a proxy; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) web_host: Vec<String>,
}

/// A page that listens, and serves as soon as it has a source.
pub(crate) struct Page {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    /// The name of its cookie.
    cookie: String,
    hosts: Vec<String>,
}

impl Page {
    /// Begins to listen.
    ///
    /// # Errors
    /// The address is taken.
    pub(crate) async fn listen(address: SocketAddr, mut hosts: Vec<String>) -> Result<Self> {
        let listener = bind(address, "the page").await?;
        let address = listener.local_addr().context("the page has no address")?;
        if !address.ip().is_unspecified() {
            hosts.push(address.ip().to_string());
        }
        Ok(Self {
            listener,
            address,
            token: token(),
            cookie: format!("spokeshave-{:016x}", seed()),
            hosts,
        })
    }

    /// Where a browser finds it, with the token.
    pub(crate) fn url(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("http://{ip}:{}/?token={}", self.address.port(), self.token)
    }

    /// Refreshes and serves until stopped.
    pub(crate) async fn run(self, source: Source, title: String, stop: Shutdown) {
        let board = Board::new();
        let gate = Gate {
            token: self.token,
            cookie: self.cookie,
            hosts: self.hosts,
            source: title,
        };
        let looking = keep_looking(source, board.clone(), stop.clone());
        let serving = serve(self.listener, board, gate, stop.requested());
        tokio::join!(looking, serving);
    }
}

/// Runs the command until it is interrupted.
///
/// # Errors
/// The dump or the catalog cannot be read, the cluster does not answer, the address is taken, or the page breaks.
pub(crate) async fn run(args: WebArgs) -> Result<()> {
    let source = Source::of(&args.source).await?;
    let title = source.title(&args.source);
    let page = Page::listen(args.listen, args.web_host).await?;
    say(&format!("Page of {title}: {}", page.url()));
    say("Press Ctrl-C to stop.");
    let stop = Shutdown::new();
    let running = tokio::spawn(page.run(source, title, stop.clone()));
    until_stopped(running, signals::wait(None), &stop).await
}

/// Waits for the signal to end. A page that breaks before is an error: nobody should wait for a program that serves nothing.
async fn until_stopped(
    mut page: JoinHandle<()>,
    signal: impl Future<Output = ()>,
    stop: &Shutdown,
) -> Result<()> {
    tokio::select! {
        biased;
        ended = &mut page => return ended.context("the page has broken"),
        () = signal => {}
    }
    stop.request();
    page.await.context("the page has broken")
}

/// A secret for this run. It is not part of the simulation, so it comes from the system and not from the seed.
pub(crate) fn token() -> String {
    format!("{:016x}{:016x}", seed(), seed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two operators are reached under one host name, and both listen on the same port where they are: their cookies bear different names.
    #[tokio::test]
    async fn no_two_runs_share_the_name_of_a_cookie() {
        let listen = || Page::listen("127.0.0.1:0".parse().expect("an address"), Vec::new());
        let (one, other) = (listen().await, listen().await);
        let (one, other) = (one.expect("it listens"), other.expect("it listens"));
        assert_ne!(one.cookie, other.cookie);
        let run = one.cookie.strip_prefix("spokeshave-").expect("a cookie of ours");
        assert!(!one.token.contains(run), "a name is no secret");
    }

    #[tokio::test]
    async fn a_page_that_breaks_ends_the_command_with_an_error() {
        let page: JoinHandle<()> = tokio::spawn(async { panic!("a bug") });
        let ended = until_stopped(page, std::future::pending(), &Shutdown::new()).await;
        let error = format!("{:#}", ended.expect_err("it has broken"));
        assert!(
            error.contains("the page has broken") && error.contains("a bug"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_signal_stops_a_page_that_serves() {
        let stop = Shutdown::new();
        let asked = stop.clone();
        let page = tokio::spawn(async move { asked.requested().await });
        let ended = until_stopped(page, std::future::ready(()), &stop).await;
        ended.expect("it ends as it was asked to");
    }
}
