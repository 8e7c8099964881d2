//! How `spokeshave operator` and `spokeshave provider-serve` start and end.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// An operator or a provider that does not outlive its test.
struct Running {
    process: Child,
    _folder: tempfile::TempDir,
}

impl Running {
    /// One whose API server is at this address.
    fn start(server: SocketAddr, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: \"http://{server}\"}}}}]\n\
             users: [{{name: a, user: {{token: x}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("written");
        let process = Command::new(env!("CARGO_BIN_EXE_spokeshave"))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .envs([("METRICS_PORT", "0"), ("HEALTH_PROBE_PORT", "0")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        Self {
            process,
            _folder: folder,
        }
    }

    /// Tells it to stop, as a kubelet does; returns its exit code.
    fn terminate(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.process), Signal::TERM).expect("it is told");
        self.process.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn told_to_stop_it_does_not_wait_for_a_cluster_that_says_nothing() {
    for command in [
        &["operator"][..],
        &["provider-serve", "--socket", "/nonexistent/provider.sock"][..],
    ] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        server.set_nonblocking(true).expect("a state");
        let address = server.local_addr().expect("its address");
        let mut running = Running::start(address, &[command, &["--cloud-provider", "kwok"][..]].concat());
        let _asking = loop {
            match server.accept() {
                Ok((stream, _)) => break stream,
                Err(_) if running.process.try_wait().expect("a state").is_none() => std::thread::yield_now(),
                Err(error) => panic!("it ended: {error}"),
            }
        };
        assert_eq!(running.terminate(), Some(0), "{command:?}");
    }
}

/// Answers what an operator asks its API server before it has a provider.
fn answer(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
    while let Some(Ok(request)) = lines.next() {
        let has_ended = lines.by_ref().map_while(Result::ok).any(|line| line.is_empty());
        let body = match request.split(' ').nth(1) {
            Some("/version") => r#"{"major":"1","minor":"34","gitVersion":"v1.34.0"}"#,
            _ => r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"1"}}"#,
        };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if !has_ended || stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The answer of the port for health probes.
fn probe(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answered");
    text
}

#[test]
fn p_204_waiting_for_its_provider_it_is_alive_and_not_ready() {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in server.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    let nowhere = [
        "operator",
        "--cloud-provider",
        "grpc",
        "--provider-socket",
        "/nonexistent/provider.sock",
    ];
    let mut running = Running::start(address, &nowhere);
    let mut log = BufReader::new(running.process.stdout.take().expect("its log")).lines();
    let health = log.by_ref().map_while(Result::ok).find_map(|line| {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        line["health"].as_str().map(str::to_owned)
    });
    let health = health.expect("it says where it listens");
    let (_, port) = health.rsplit_once(':').expect("a port");
    let port = port.parse().expect("a number");
    let alive = probe(port, "/healthz");
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
    let ready = probe(port, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    assert_eq!(running.terminate(), Some(0));
}
