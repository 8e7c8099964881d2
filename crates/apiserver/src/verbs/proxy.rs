//! What answers behind a port of a pod, and `/metrics` of the server itself.
//!
//! No container runs, so a port works only if it was registered: with a function in this process that was registered for pods with a
//! label, or, by an annotation of the pod, to a loopback address. Everything else keeps its 501. Only GET is passed on.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::{ApiError, ApiResult};
use crate::store::backends::{MetricsFn, PodMetrics};
use crate::store::objects::Stored;
use crate::store::state::{ApiServer, State};
use crate::verbs::answer::Answer;

/// Annotation of a pod: which of its ports lead to which loopback address, `8080=127.0.0.1:18080`, with commas between several.
const PORTS: &str = "sim.spokeshave.dev/ports";
/// What Prometheus' text format is called.
pub(crate) const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// How long a program on this machine may take to answer.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);
const MOST_BYTES: u64 = 64 * 1024 * 1024;

impl ApiServer {
    /// Serves metrics under `/metrics`, which answers 404 without.
    pub fn serve_metrics(&self, metrics: MetricsFn) {
        self.lock().backends.metrics = Some(metrics);
    }

    /// Serves metrics under `/metrics` of a port of every pod with a label: `pods/NAME:PORT/proxy/metrics`.
    pub fn serve_pod_metrics(&self, label: (&str, &str), port: u16, metrics: MetricsFn) {
        let label = (label.0.to_owned(), label.1.to_owned());
        self.lock()
            .backends
            .pods
            .push(PodMetrics { label, port, metrics });
    }

    /// `/metrics`.
    pub(crate) fn own_metrics(&self) -> Answer {
        let metrics = self.lock().backends.metrics.clone();
        match metrics {
            Some(metrics) => Answer::Bytes(METRICS_TYPE, metrics().into()),
            None => Answer::Text(404, "404 page not found\n".to_owned()),
        }
    }
}

/// The name, and the port if one is named, of `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
pub(crate) fn name_and_port(text: &str) -> (&str, Option<u16>) {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["http" | "https", name, port] | [name, port] => (name, port.parse().ok()),
        _ => (text, None),
    }
}

/// What a pod's port answers to a path; `None` where it leads nowhere.
pub(crate) fn answer(
    state: &State,
    pod: &Stored,
    port: Option<u16>,
    (method, path): (&str, &str),
) -> ApiResult<Option<Answer>> {
    let port = port.or_else(|| {
        let first = &pod.value["spec"]["containers"][0]["ports"][0]["containerPort"];
        u16::try_from(first.as_u64()?).ok()
    });
    let Some(port) = port else { return Ok(None) };
    let address = address(&pod.value, port)?;
    let labels = &pod.value["metadata"]["labels"];
    let known = state
        .backends
        .pods
        .iter()
        .find(|known| known.port == port && labels[&known.label.0] == known.label.1.as_str());
    if address.is_none() && known.is_none() {
        return Ok(None);
    }
    if method != "GET" {
        return Err(ApiError::method_not_allowed());
    }
    Ok(match (address, known) {
        (Some(address), _) => Some(Answer::Forward(address, path.to_owned())),
        (None, Some(known)) if path == "/metrics" => {
            Some(Answer::Bytes(METRICS_TYPE, (known.metrics)().into()))
        }
        (None, _) => Some(Answer::Text(404, "404 page not found\n".to_owned())),
    })
}

/// Where the annotation leads a port to.
fn address(pod: &Value, port: u16) -> ApiResult<Option<SocketAddr>> {
    let text = pod["metadata"]["annotations"][PORTS].as_str().unwrap_or_default();
    let wanted = port.to_string();
    let found = text
        .split(',')
        .filter_map(|part| part.trim().split_once('='))
        .find(|(own, _)| own.trim() == wanted);
    let Some((_, address)) = found else {
        return Ok(None);
    };
    match address.trim().parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(Some(address)),
        _ => Err(ApiError::bad_request(format!(
            "annotation {PORTS} leads port {port} to {:?}: a loopback address with a port is needed, such as 127.0.0.1:8080",
            address.trim()
        ))),
    }
}

/// Asks a program on this machine.
pub(crate) async fn forward(address: SocketAddr, path: &str) -> Result<(u16, String, Bytes), ApiError> {
    let unreachable = |problem: String| {
        ApiError::new(
            503,
            "ServiceUnavailable",
            format!("error trying to reach service: {address}: {problem}"),
        )
    };
    let asked = tokio::time::timeout(LONGEST_ANSWER, ask(address, path)).await;
    match asked {
        Ok(Ok(answer)) => read_answer(&answer).ok_or_else(|| unreachable("its answer is no HTTP".to_owned())),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(_) => Err(unreachable("it does not answer".to_owned())),
    }
}

/// HTTP/1.0, whose answers end with the connection.
async fn ask(address: SocketAddr, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Status, content type and body of an answer.
fn read_answer(answer: &[u8]) -> Option<(u16, String, Bytes)> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let code = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let content_type = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
        .map_or("application/octet-stream", |(_, value)| value.trim());
    Some((
        code,
        content_type.to_owned(),
        Bytes::copy_from_slice(&answer[end + 4..]),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_ports() {
        for (text, expected) in [
            ("a", ("a", None)),
            ("a:8080", ("a", Some(8080))),
            ("http:a:8080", ("a", Some(8080))),
            ("a:http", ("a", None)),
        ] {
            assert_eq!(name_and_port(text), expected);
        }
    }

    #[test]
    fn answers_are_read() {
        let answer = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\na 1\n";
        let (code, content_type, body) = read_answer(answer).expect("an answer");
        assert_eq!(
            (code, content_type.as_str(), &body[..]),
            (200, "text/plain", &b"a 1\n"[..])
        );
        assert!(read_answer(b"nonsense").is_none());
    }
}
