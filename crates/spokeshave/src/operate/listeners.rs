//! Sockets of metrics and health probes, on all addresses of the pod.
//!
//! Owns the choice between IPv6 and IPv4. What is served on them is the runtime's.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::Result;
use spokeshave_runtime::bind;
use tokio::net::TcpListener;

/// Linux' default for sockets of IPv6: `1` where they take no IPv4.
const IPV6_ALONE: &str = "/proc/sys/net/ipv6/bindv6only";

/// Listens on this port of all addresses, of IPv6 and IPv4: in an IPv6 cluster a kubelet that probes and a Prometheus that scrapes have nothing but IPv6.
///
/// # Errors
/// The port is in use, or may not be used.
pub(super) async fn listen(port: u16, purpose: &str) -> Result<TcpListener> {
    let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    // Without IPv4, clusters that run today would lose their probes.
    if is_ipv6_alone() {
        return Ok(bind(ipv4, purpose).await?);
    }
    match bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), purpose).await {
        Err(error) if lacks_ipv6(&error) => Ok(bind(ipv4, purpose).await?),
        bound => Ok(bound?),
    }
}

/// True where a socket of IPv6 would not take connections over IPv4.
fn is_ipv6_alone() -> bool {
    std::fs::read_to_string(IPV6_ALONE).is_ok_and(|text| text.trim() == "1")
}

/// True when the host is to blame and not the port. An address family that is not supported has no kind of its own, so that what may be wrong with a port is
/// named instead.
fn lacks_ipv6(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use spokeshave_ports::TokioClock;
    use spokeshave_runtime::{HttpServer, Metrics, Shutdown};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    /// What a scrape of this address gets.
    async fn scrape(address: IpAddr, port: u16) -> String {
        let mut stream = TcpStream::connect((address, port))
            .await
            .unwrap_or_else(|error| panic!("{address}: {error}"));
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn p_204_a_port_answers_over_ipv6_and_over_ipv4() {
        let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        let listener = listen(0, "metrics (METRICS_PORT)").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let clock = TokioClock::new(jiff::Timestamp::UNIX_EPOCH, 1.0).shared();
        let metrics = Metrics::new(clock);
        metrics.gauge("up", "It is.", &[]).set(&[], 1.0);
        let server = HttpServer {
            metrics: Some(metrics),
            ..HttpServer::default()
        };
        let shutdown = Shutdown::new();
        let serving = tokio::spawn(server.serve(listener, shutdown.clone()));
        let mut addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        if has_ipv6 && !is_ipv6_alone() {
            addresses.push(IpAddr::from(Ipv6Addr::LOCALHOST));
        }
        for address in addresses {
            let answer = scrape(address, port).await;
            assert!(answer.contains("\nup 1\n"), "{address}: {answer}");
        }
        shutdown.request();
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn p_204_a_port_in_use_is_an_error_and_no_reason_for_ipv4_alone() {
        let taken = listen(0, "metrics").await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listen(port, "health probes (HEALTH_PROBE_PORT)")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("HEALTH_PROBE_PORT"), "{error}");
    }

    #[test]
    fn p_204_a_host_without_ipv6_is_told_from_a_port_that_cannot_be_had() {
        // EAFNOSUPPORT and EADDRNOTAVAIL of Linux.
        for code in [97, 99] {
            assert!(lacks_ipv6(&io::Error::from_raw_os_error(code)), "{code}");
        }
        for kind in [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied] {
            assert!(!lacks_ipv6(&kind.into()), "{kind}");
        }
    }
}
