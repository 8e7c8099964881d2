//! `operator --shadow`: decides beside another operator, and serves what differs.
//!
//! Owns the pages of the report and its shutdown. The comparison is in `controllers`.

use std::sync::Arc;

use spokeshave_controllers::shadow::{Report, Shadow};
use spokeshave_ports::SharedClock;
use spokeshave_runtime::{Document, HttpServer, Shutdown, TaskGroup};
use tokio::net::TcpListener;

use crate::signals;
use crate::signals::STOP_LIMIT;

/// Where a shadow is asked.
pub(crate) struct Ports {
    pub(crate) metrics: TcpListener,
    pub(crate) health: TcpListener,
}

/// Runs a shadow until it is stopped.
pub(crate) async fn run(
    shadow: Shadow,
    ports: Ports,
    mut tasks: TaskGroup,
    clock: SharedClock,
    shutdown: Shutdown,
) {
    let report = shadow.report();
    let metrics = HttpServer {
        metrics: Some(shadow.metrics().clone()),
        documents: documents(&report),
        ..HttpServer::default()
    };
    tasks.spawn("metrics", metrics.serve(ports.metrics, shutdown.clone()));
    let health = HttpServer {
        readiness: Some(shadow.readiness().clone()),
        ..HttpServer::default()
    };
    tasks.spawn("health", health.serve(ports.health, shutdown.clone()));
    tracing::info!("a shadow: it decides, reports under /shadow, and changes nothing");
    tasks.spawn("shadow", shadow.run(shutdown.clone()));
    signals::wait(None).await;
    shutdown.request();
    drop(tasks.drain(&clock, STOP_LIMIT).await);
}

fn documents(report: &Report) -> Vec<Document> {
    let (text, json) = (report.clone(), report.clone());
    vec![
        Document {
            path: "/shadow",
            content_type: "text/plain; charset=utf-8",
            write: Arc::new(move || text.text()),
        },
        Document {
            path: "/shadow.json",
            content_type: "application/json",
            write: Arc::new(move || format!("{:#}\n", json.json())),
        },
    ]
}
