//! Embeds the commit in release builds (P-205): `SPOKESHAVE_COMMIT` if it is set, else from git, else nothing.
//!
//! Not in development builds, so that they are not rebuilt with every commit.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=SPOKESHAVE_COMMIT");
    if std::env::var("PROFILE").as_deref() != Ok("release") || std::env::var_os("SPOKESHAVE_COMMIT").is_some()
    {
        return;
    }
    let Some(commit) = git(&["rev-parse", "--short=7", "HEAD"]) else {
        return;
    };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]).unwrap_or_default();
    let suffix = if changes.is_empty() { "" } else { "-dirty" };
    println!("cargo:rustc-env=SPOKESHAVE_COMMIT={commit}{suffix}");
}

/// The output of git, if it is installed and this is a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
