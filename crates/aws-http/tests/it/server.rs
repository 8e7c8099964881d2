//! A server on loopback that answers one request after the other from a script, and keeps what it was asked.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A reply: status, extra header lines, body.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Reply {
            status,
            headers: Vec::new(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// What was asked: head and body.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers as many requests as there are replies; later ones are refused.
    pub(crate) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        tokio::spawn(async move {
            for reply in replies {
                let (stream, _) = listener.accept().await.unwrap();
                let request = exchange(stream, reply).await;
                kept.lock().unwrap().push(request);
            }
        });
        Server { url, asked }
    }

    /// Answers every request, for as long as the test runs, by its first line: `GET /path`.
    pub(crate) async fn routed(answer: impl Fn(&str) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Some(request) = read(&mut stream).await else {
                    continue;
                };
                let line = request.head.lines().next().unwrap_or_default();
                let line = line.rsplit_once(' ').map_or(line, |(line, _)| line);
                let reply = answer(line);
                kept.lock().unwrap().push(request);
                write(stream, reply).await;
            }
        });
        Server { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

async fn exchange(mut stream: TcpStream, reply: Reply) -> Asked {
    let asked = read(&mut stream).await.unwrap();
    write(stream, reply).await;
    asked
}

/// One request; `None` when the other side says nothing.
async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut read = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let asked = Asked {
            head: head.to_owned(),
            body: body.to_owned(),
        };
        let length = asked
            .header("content-length")
            .and_then(|value| value.parse().ok())
            .unwrap_or(0_usize);
        if body.len() >= length {
            return Some(asked);
        }
    }
}

async fn write(mut stream: TcpStream, reply: Reply) {
    let mut answer = format!(
        "HTTP/1.1 {} x\r\ncontent-length: {}\r\nconnection: close\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in reply.headers {
        answer.push_str(&format!("{name}: {value}\r\n"));
    }
    answer.push_str("\r\n");
    answer.push_str(&reply.body);
    // Whoever has asked may have gone.
    drop(stream.write_all(answer.as_bytes()).await);
    stream.shutdown().await.ok();
}
