//! Findings as text: what, where, why, and the fix.

use std::fmt::Write as _;

use spokeshave_plan::report::some_of;
use spokeshave_story::doctor::{Finding, Level};

use crate::text::{count, wrap};

/// The whole answer.
pub(crate) fn render(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "Nothing is wrong.\n".to_owned();
    }
    let mut out = String::new();
    for finding in findings {
        one(&mut out, finding);
        out.push('\n');
    }
    let number = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let totals = [
        (Level::Error, "error"),
        (Level::Warning, "warning"),
        (Level::Note, "note"),
    ];
    let totals: Vec<String> = totals
        .into_iter()
        .filter(|(level, _)| number(*level) > 0)
        .map(|(level, word)| count(number(level), word))
        .collect();
    let _ = writeln!(out, "{}", totals.join(", "));
    out
}

fn one(out: &mut String, finding: &Finding) {
    let level = match finding.level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    let title = format!(
        "{level}[{}] {}: {}",
        finding.code, finding.object, finding.message
    );
    let _ = writeln!(out, "{}", wrap(&title, 0, 2));
    let field = finding.field.as_deref().map(|field| ("field", field.to_owned()));
    let costs = finding.keeps_dollars_per_month.map(|dollars| {
        let nodes = format!(
            "{} ({})",
            count(finding.nodes.len(), "node"),
            some_of(&finding.nodes, 3)
        );
        ("keeps", format!("{nodes} at ${dollars:.2} a month"))
    });
    let write = finding.suggestion.clone().map(|text| ("write", text));
    let proof = Some(("proof", finding.proof.clone()));
    for (name, text) in [field, proof, costs, write].into_iter().flatten() {
        // Lines of YAML are not to be broken.
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let _ = writeln!(out, "{}", wrap(&format!("{name:6} {first}"), 2, 9));
        for line in lines {
            let _ = writeln!(out, "         {line}");
        }
    }
}
