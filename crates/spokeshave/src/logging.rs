//! The one global subscriber: JSON lines as upstream's (P §15.3), or text.
//!
//! Owns which events are written and where to. How a JSON line looks is `log_lines`' affair.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use spokeshave_ports::SharedClock;
use tracing::Subscriber;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

use crate::log_lines::JsonLines;
use crate::settings::{LogFormat, LogLevel, LogOutput};

/// The commit of the build, where it is known: releases are built with it.
pub(crate) const COMMIT: Option<&str> = option_env!("SPOKESHAVE_COMMIT");

/// Installs the subscriber.
///
/// # Errors
/// A log file cannot be opened.
pub(crate) fn install(
    level: LogLevel,
    format: LogFormat,
    outputs: &[LogOutput],
    clock: SharedClock,
) -> Result<()> {
    subscriber(level, format, Outputs::open(outputs)?, clock).init();
    Ok(())
}

/// What writes the events of a level to an output.
fn subscriber(
    level: LogLevel,
    format: LogFormat,
    out: impl Write + Send + 'static,
    clock: SharedClock,
) -> Box<dyn Subscriber + Send + Sync> {
    let (name, libraries) = match level {
        LogLevel::Debug => ("debug", "warn"),
        LogLevel::Info => ("info", "warn"),
        LogLevel::Error => ("error", "error"),
    };
    // Libraries below us speak about themselves, not about the cluster. Of each request that fails kube tells as well, without saying which: whoever has sent it
    // gets the error, and knows whether it is one.
    let filter = EnvFilter::new(format!(
        "{libraries},kube_client::client=off,kube_client::client::tls={libraries},kube_runtime::watcher=error,\
         spokeshave={name},spokeshave_controllers={name},spokeshave_runtime={name},spokeshave_provider_kwok={name},spokeshave_cluster={name}"
    ));
    let registry = Registry::default().with(filter);
    match format {
        LogFormat::Json => {
            Box::new(registry.with(JsonLines::new(out, clock, COMMIT, level == LogLevel::Debug)))
        }
        // A text line has the message; its target has the controller.
        LogFormat::Text => Box::new(
            registry.with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(false)
                    .with_writer(Mutex::new(out))
                    .with_filter(filter_fn(|metadata| metadata.is_event())),
            ),
        ),
    }
}

/// All outputs of the log.
struct Outputs(Vec<Output>);

enum Output {
    Stdout,
    Stderr,
    File(File),
}

impl Outputs {
    fn open(outputs: &[LogOutput]) -> Result<Self> {
        let open = |output: &LogOutput| match output {
            LogOutput::Stdout => Ok(Output::Stdout),
            LogOutput::Stderr => Ok(Output::Stderr),
            LogOutput::File(path) => OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map(Output::File)
                .with_context(|| format!("LOG_OUTPUT_PATHS: cannot open the log file {}", path.display())),
        };
        outputs.iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// Does it to each; the first error is reported once all had their turn.
    fn each(&mut self, mut act: impl FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let results = self.0.iter_mut().map(|output| match output {
            Output::Stdout => act(&mut io::stdout()),
            Output::Stderr => act(&mut io::stderr()),
            Output::File(file) => act(file),
        });
        let results: Vec<io::Result<()>> = results.collect();
        results.into_iter().collect()
    }
}

impl Write for Outputs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.each(|output| output.write_all(bytes)).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.each(|output| output.flush())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};
    use spokeshave_ports::{Entropy, TokioClock};
    use spokeshave_runtime::client::{ClientOptions, from_config};
    use spokeshave_runtime::{
        LeaderElection, LeaseOptions, Metrics, Reflector, Shutdown, Store, WatchOptions,
    };
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// What was written, for a test to read.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn lines(&self) -> Vec<String> {
            let bytes = self.0.lock().unwrap().clone();
            String::from_utf8(bytes)
                .unwrap()
                .lines()
                .map(str::to_owned)
                .collect()
        }
    }

    fn clock() -> SharedClock {
        let epoch = "2026-01-02T03:04:05.678Z".parse().unwrap();
        TokioClock::new(epoch, 1.0).shared()
    }

    fn logged(level: LogLevel, format: LogFormat, act: impl FnOnce()) -> Vec<String> {
        let out = Written::default();
        tracing::subscriber::with_default(subscriber(level, format, out.clone(), clock()), act);
        out.lines()
    }

    fn say() {
        let span = tracing::error_span!("reconcile", controller = "node.termination", name = "n-1");
        span.in_scope(|| {
            tracing::info!(Node = "n-1", NodeClaim = %"default-x", Pod = "kube-system/dns", count = 3, "disrupted-nodes" = "[{\"Node\":{\"name\":\"a\"}}]", "tainted \"node\"");
        });
        tracing::debug!("a detail");
        tracing::error!(error = %"no such zone", "creating nodeclaim");
    }

    #[tokio::test(start_paused = true)]
    async fn p_205_json_lines_have_upstreams_keys_in_upstreams_order() {
        let lines = logged(LogLevel::Info, LogFormat::Json, say);
        let commit = COMMIT.map_or(String::new(), |commit| format!("\"commit\":\"{commit}\","));
        let first = format!(
            "{{\"level\":\"INFO\",\"time\":\"2026-01-02T03:04:05.678Z\",\"logger\":\"controller\",\"message\":\"tainted \\\"node\\\"\",{commit}\
             \"controller\":\"node.termination\",\"name\":\"n-1\",\"Node\":{{\"name\":\"n-1\"}},\"NodeClaim\":{{\"name\":\"default-x\"}},\
             \"Pod\":{{\"name\":\"dns\",\"namespace\":\"kube-system\"}},\"count\":3,\"disrupted-nodes\":[{{\"Node\":{{\"name\":\"a\"}}}}]}}"
        );
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0], first);
        let second: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!(
            (&second["level"], &second["error"], second.get("controller")),
            (&json!("ERROR"), &json!("no such zone"), None)
        );
    }

    /// Queries of logs and alerts on them look for the text of a line.
    #[tokio::test(start_paused = true)]
    async fn p_205_a_field_that_is_called_message_does_not_replace_the_text() {
        let lines = logged(LogLevel::Info, LogFormat::Json, || {
            tracing::warn!(NodeClaim = "c", message = "a budget", "termination is held up");
            tracing::warn!(message = "alone");
        });
        let read = |line: &String| serde_json::from_str::<Value>(line).unwrap();
        let lines: Vec<Value> = lines.iter().map(read).collect();
        let texts: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
        assert_eq!(texts, [&json!("termination is held up"), &json!("alone")]);
        assert_eq!(
            (&lines[0]["NodeClaim"]["name"], &lines[0]["detail"]),
            (&json!("c"), &json!("a budget"))
        );
    }

    /// The address of a server that fails whatever it is asked.
    async fn failing_server() -> SocketAddr {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let answer =
                    b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
            }
        });
        address
    }

    /// An address at which nobody listens, and what keeps it from everybody else for as long as it lives.
    fn closed_port() -> (TcpSocket, SocketAddr) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = socket.local_addr().unwrap();
        (socket, address)
    }

    fn client_of(address: SocketAddr) -> kube::Client {
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        from_config(config, &ClientOptions::default(), clock()).unwrap()
    }

    /// Whoever has sent a request knows what came of it, and whether that is worth a line.
    #[tokio::test]
    async fn p_205_a_request_that_fails_is_told_by_its_sender_only() {
        let (_closed, closed) = closed_port();
        let addresses = [failing_server().await, closed];
        for level in [LogLevel::Debug, LogLevel::Info, LogLevel::Error] {
            let out = Written::default();
            let subscriber = subscriber(level, LogFormat::Json, out.clone(), clock());
            let _guard = tracing::subscriber::set_default(subscriber);
            for address in addresses {
                assert!(client_of(address).apiserver_version().await.is_err());
            }
            assert_eq!(out.lines(), [""; 0]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn p_205_warnings_of_libraries_are_below_the_level_of_errors() {
        let say = || {
            tracing::warn!(target: "hyper::proto", "odd");
            tracing::warn!(target: "kube_client::client::tls", "failed to reload CA bundle; keeping stale roots");
            tracing::error!(target: "hyper::proto", "broken");
        };
        assert_eq!(logged(LogLevel::Info, LogFormat::Json, say).len(), 3);
        let lines = logged(LogLevel::Error, LogFormat::Json, say);
        assert!(lines.len() == 1 && lines[0].contains("broken"), "{lines:?}");
    }

    /// Refused, no such host, a certificate that has expired: runbooks send people to these lines.
    #[tokio::test]
    async fn p_205_a_connection_that_fails_is_told_with_its_cause() {
        const SAID: [&str; 2] = ["cannot reach the lease", "watch failed, retrying"];
        let (out, clock) = (Written::default(), clock());
        let subscriber = subscriber(LogLevel::Info, LogFormat::Json, out.clone(), clock.clone());
        let _guard = tracing::subscriber::set_default(subscriber);
        let (_closed, closed) = closed_port();
        let client = client_of(closed);
        let (entropy, metrics) = (Entropy::new(1), Metrics::new(clock.clone()));
        let lease = LeaseOptions::new("kube-system", "karpenter-leader-election", "a");
        let election = LeaderElection::new(client.clone(), lease, clock.clone(), &entropy, &metrics);
        let store: Store<Node> = Store::default();
        let options = WatchOptions::default();
        let watch = Reflector::new(client, &store, &options, clock, &entropy, &metrics);
        let line = |text: &str| out.lines().into_iter().find(|line| line.contains(text));
        let are_said = async {
            while !SAID.iter().all(|text| line(text).is_some()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            biased;
            said = tokio::time::timeout(Duration::from_secs(60), are_said) => said.expect("both are said"),
            _ = election.run(Shutdown::new()) => {}
            () = watch.run(Shutdown::new()) => {}
        }
        for text in SAID {
            let line = line(text).expect(text);
            assert!(line.contains("Connection refused"), "{line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn p_205_the_level_decides_what_is_written_and_debug_names_the_caller() {
        let lines = logged(LogLevel::Debug, LogFormat::Json, say);
        assert_eq!(lines.len(), 3, "{lines:?}");
        let detail: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!(
            (&detail["level"], &detail["message"]),
            (&json!("DEBUG"), &json!("a detail"))
        );
        let caller = detail["caller"].as_str().unwrap();
        assert!(caller.starts_with("src/logging.rs:"), "{caller}");
        let lines = logged(LogLevel::Error, LogFormat::Json, say);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("\"creating nodeclaim\"") && !lines[0].contains("caller"),
            "{lines:?}"
        );
    }

    /// A hundred of a message in a second, then every hundredth; other messages, other levels and the next second count for themselves.
    #[tokio::test(start_paused = true)]
    async fn p_205_floods_are_thinned_out_as_by_zap() {
        let out = Written::default();
        let clock = clock();
        let subscriber = subscriber(LogLevel::Info, LogFormat::Json, out.clone(), clock.clone());
        let _guard = tracing::subscriber::set_default(subscriber);
        for number in 1..=350 {
            tracing::info!(number, "again");
        }
        tracing::info!("another");
        tracing::error!("again");
        let numbers = |lines: &[String]| -> Vec<u64> {
            let values = lines
                .iter()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            values.filter_map(|value| value["number"].as_u64()).collect()
        };
        let lines = out.lines();
        let wanted: Vec<u64> = (1..=100).chain([200, 300]).collect();
        assert_eq!(numbers(&lines), wanted);
        assert_eq!(lines.len(), wanted.len() + 2);
        clock.sleep(Duration::from_secs(1)).await;
        tracing::info!(number = 351, "again");
        assert_eq!(numbers(&out.lines()).last(), Some(&351));
    }

    #[tokio::test(start_paused = true)]
    async fn p_205_lines_of_text_carry_no_spans() {
        let lines = logged(LogLevel::Info, LogFormat::Text, say);
        assert_eq!(lines.len(), 2, "{lines:?}");
        let end = "INFO spokeshave::logging::tests: tainted \"node\" Node=\"n-1\" NodeClaim=default-x Pod=\"kube-system/dns\" count=3 disrupted-nodes=\"[{\\\"Node\\\":{\\\"name\\\":\\\"a\\\"}}]\"";
        assert!(lines[0].ends_with(end), "{lines:?}");
    }

    #[test]
    fn p_202_a_log_goes_to_each_of_its_files_and_a_file_that_cannot_be_opened_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| directory.path().join(name));
        let mut outputs = Outputs::open(&paths.clone().map(LogOutput::File)).unwrap();
        outputs.write_all(b"line\n").unwrap();
        for path in &paths {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "line\n");
        }
        let nowhere = directory.path().join("missing").join("c");
        let error = Outputs::open(&[LogOutput::File(nowhere)])
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("LOG_OUTPUT_PATHS") && error.contains("missing/c"),
            "{error}"
        );
    }
}
