//! `operator --shadow`: decides beside another operator, and serves what differs.
//!
//! Owns the pages of the report. The comparison is in `controllers`.

use std::sync::Arc;

use spokeshave_controllers::shadow::{Report, Shadow};
use spokeshave_runtime::{Document, HttpServer};

/// What a shadow serves on the port of metrics.
pub(crate) fn metrics(shadow: &Shadow) -> HttpServer {
    HttpServer {
        metrics: Some(shadow.metrics().clone()),
        documents: documents(&shadow.report()),
        ..HttpServer::default()
    }
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
