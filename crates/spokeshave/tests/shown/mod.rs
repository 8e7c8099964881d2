//! An API server that has some objects and does not list every kind, for commands that read a cluster or watch it. It is no more of one than they need.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// What there is, and what is not shown.
#[derive(Default)]
pub(crate) struct Shown {
    /// All objects, each with its kind.
    pub(crate) objects: Vec<Value>,
    /// The last part of the path of a list, and the status that answers it.
    pub(crate) refused: Option<(&'static str, u16)>,
    /// The time there, if answers have one.
    pub(crate) date: Option<&'static str>,
    /// The first line of each request.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

/// Writes the kubeconfig of such a server, which ends with the test program.
pub(crate) fn kubeconfig(folder: &Path, shown: Shown) -> PathBuf {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("its address");
    let shown = Arc::new(shown);
    std::thread::spawn(move || {
        for stream in server.incoming().map_while(Result::ok) {
            let shown = Arc::clone(&shown);
            std::thread::spawn(move || answer(stream, &shown));
        }
    });
    let path = folder.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: \"http://{address}\"}}}}]\n\
         users: [{{name: a, user: {{token: x}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n"
    );
    std::fs::write(&path, text).expect("written");
    path
}

/// Answers the requests of a connection.
fn answer(mut stream: TcpStream, shown: &Shown) {
    let mut lines = BufReader::new(stream.try_clone().expect("a stream")).lines();
    while let Some(Ok(request)) = lines.next() {
        let has_ended = lines.by_ref().map_while(Result::ok).any(|line| line.is_empty());
        let address = request.split(' ').nth(1).unwrap_or_default().to_owned();
        shown.asked.lock().expect("nobody panics").push(request);
        let (path, query) = address.split_once('?').unwrap_or((address.as_str(), ""));
        let kind = path.rsplit('/').next().unwrap_or_default();
        let (status, body) = match shown.refused {
            Some((refused, status)) if refused == kind => {
                let message = "sam may not do this";
                let why = json!({"kind": "Status", "status": "Failure", "message": message, "reason": "R", "code": status});
                (status, why)
            }
            _ if query.contains("watch=") => {
                // Nothing ever happens.
                let head =
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
                if stream.write_all(head.as_bytes()).is_ok() {
                    lines.map_while(Result::ok).for_each(drop);
                }
                return;
            }
            _ if kind == "version" => {
                let version = json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"});
                (200, version)
            }
            _ => {
                let plural =
                    |object: &Value| object["kind"].as_str().unwrap_or_default().to_lowercase() + "s";
                let above = path.rsplit('/').nth(1).unwrap_or_default();
                let is_it = |object: &&Value| plural(object) == above && object["metadata"]["name"] == kind;
                let items = shown.objects.iter().filter(|object| plural(object) == kind);
                let items: Vec<&Value> = items.collect();
                let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items});
                (200, shown.objects.iter().find(is_it).cloned().unwrap_or(list))
            }
        };
        let body = body.to_string();
        let date = shown.date.map(|date| format!("date: {date}\r\n"));
        let date = date.unwrap_or_default();
        let head = format!("HTTP/1.1 {status} Said\r\n{date}content-type: application/json");
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if !has_ended || stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
