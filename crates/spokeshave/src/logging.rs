//! The one global subscriber: JSON lines as upstream's (P §15.3), or text.

use std::fs::OpenOptions;
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::settings::{LogFormat, LogLevel, LogOutput};

/// Installs the subscriber.
///
/// # Errors
/// The log file cannot be opened.
pub(crate) fn install(level: LogLevel, format: LogFormat, output: &LogOutput) -> Result<()> {
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Error => "error",
    };
    // Libraries below us speak about themselves, not about the cluster.
    let filter = EnvFilter::new(format!(
        "warn,spokeshave={level},spokeshave_controllers={level},spokeshave_runtime={level},spokeshave_provider_kwok={level},spokeshave_sim={level}"
    ));
    let writer = match output {
        LogOutput::Stdout => BoxMakeWriter::new(std::io::stdout),
        LogOutput::Stderr => BoxMakeWriter::new(std::io::stderr),
        LogOutput::File(path) => {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("cannot open the log file {}", path.display()))?;
            BoxMakeWriter::new(Mutex::new(file))
        }
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    match format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .init(),
        LogFormat::Text => builder.with_ansi(false).init(),
    }
    Ok(())
}
