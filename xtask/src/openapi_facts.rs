//! Regenerates the API server's table of core kinds from the OpenAPI documents of a real server.

/// Runs the command with its arguments.
pub fn run(_args: &[String]) -> anyhow::Result<()> {
    anyhow::bail!("not built yet")
}
