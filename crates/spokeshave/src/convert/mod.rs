//! `spokeshave convert`: manifests of older versions and of other autoscalers as `karpenter.sh/v1`, with a report.
//!
//! It reads files or a cluster, asks the crate `convert` what each field becomes, checks the result as an API server would, and prints. It
//! changes nothing that it reads.

mod args;
mod check;
mod live;
mod print;
mod source;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use spokeshave_convert::{Change, Level, Line, Options, convert};

use crate::arguments::Misuse;
use crate::connection::kubeconfigs;
use crate::same_file::{is_same, refusal, would_change};
use args::ConvertFormat;
pub(crate) use args::{ConvertArgs, EXAMPLES};
use print::{Entry, Printed};
use source::{Placed, Source};

/// What the command has to say.
pub(crate) struct Answer {
    /// For standard output.
    pub(crate) text: String,
    /// A line of the report is an error.
    pub(crate) has_errors: bool,
}

/// Runs the command; the report is written to its file or to standard error.
///
/// # Errors
/// A report that would be written over an input, a file that cannot be opened, a cluster that does not answer, nothing that could be read.
pub(crate) async fn run(args: ConvertArgs) -> Result<Answer> {
    keep_inputs(&args)?;
    let source = if args.live {
        live::read(&args.cluster).await?
    } else {
        source::read(&args.filenames)?
    };
    if source.objects.is_empty() && source.problems.is_empty() {
        bail!("there is no object to convert");
    }
    let options = Options {
        node_class: args.node_class,
        role: args.role,
    };
    let printed = converted(source, &options, args.live);
    let report = print::report(&printed);
    match (&args.report, args.output) {
        (Some(path), _) => {
            std::fs::write(path, report).with_context(|| format!("cannot write {}", path.display()))?;
        }
        (None, ConvertFormat::Yaml) => crate::text::say(report.trim_end()),
        (None, ConvertFormat::Json) => {}
    }
    let text = match args.output {
        ConvertFormat::Yaml => print::manifests(&printed)?,
        ConvertFormat::Json => print::json(&printed)?,
    };
    Ok(Answer {
        text,
        has_errors: printed.entries.iter().any(|entry| entry.level == Level::Error),
    })
}

/// Refuses a report that would be written over what is read.
///
/// # Errors
/// Names the file, and what that is: a [`Misuse`].
fn keep_inputs(args: &ConvertArgs) -> Result<()> {
    let Some(report) = args.report.as_deref() else {
        return Ok(());
    };
    let mut files = args.filenames.iter().filter(|path| *path != Path::new("-"));
    let what = if files.any(|path| would_change(report, path)) {
        "a manifest that is converted"
    } else if args.live
        && kubeconfigs(&args.cluster)
            .iter()
            .any(|path| is_same(report, path))
    {
        "the kubeconfig"
    } else {
        return Ok(());
    };
    Err(Misuse(refusal("--report", report, what)).into())
}

/// Converts and checks; what would be refused is left out.
fn converted(source: Source, options: &Options, live: bool) -> Printed {
    let Source { objects, problems } = source;
    let values = objects.iter().map(|placed| placed.object.clone()).collect();
    let conversion = convert(values, options);
    let mut lines = conversion.lines;
    let mut kept: Vec<(usize, Value)> = Vec::new();
    let (mut unchanged, mut refused) = (0, 0);
    for output in conversion.objects {
        let is_same = objects[output.from].object == output.object;
        let refusals = check::refusals(&output.object);
        if !refusals.is_empty() {
            refused += 1;
            lines.extend(refusals.into_iter().map(|(field, text)| Line {
                from: output.from,
                change: Change::Refused,
                field,
                became: Some(named(&output.object)),
                text: format!("{text}; the object is left out"),
            }));
            continue;
        }
        if is_same {
            unchanged += 1;
        }
        // A cluster has the rest already.
        if !(is_same && live) {
            kept.push((output.from, output.object));
        }
    }
    lines.sort_by_key(|line| line.from);
    let mut entries: Vec<Entry> = lines
        .iter()
        .map(|line| Entry::of(line, &objects[line.from]))
        .collect();
    entries.extend(problems.into_iter().map(Entry::unreadable));
    Printed {
        objects: kept
            .into_iter()
            .map(|(from, object)| (comment(&objects[from]), object))
            .collect(),
        entries,
        unchanged,
        refused,
    }
}

/// `NodePool default`.
fn named(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("document");
    match object["metadata"]["name"].as_str() {
        Some(name) => match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        },
        None => kind.to_owned(),
    }
}

/// What an object was made from.
fn comment(placed: &Placed) -> String {
    let line = placed.line.map(|line| format!(":{line}")).unwrap_or_default();
    let version = placed.object["apiVersion"].as_str().unwrap_or("no apiVersion");
    format!("{}{line}: {} ({version})", placed.origin, named(&placed.object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert_text(text: &str) -> Printed {
        let mut source = Source::default();
        source.text("old.yaml", text);
        converted(source, &Options::default(), false)
    }

    #[test]
    fn what_would_be_refused_is_left_out_and_named_with_its_line() {
        let text = "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata:\n  name: a\nspec:\n  subnetSelector: {a: b}\n  securityGroupSelector: {a: b}\n";
        let printed = convert_text(text);
        assert!(printed.objects.is_empty());
        let refused = printed
            .entries
            .iter()
            .find(|entry| entry.change == Change::Refused)
            .expect("a refusal");
        assert!(
            refused
                .text
                .contains("must specify exactly one of ['role', 'instanceProfile']")
        );
        assert_eq!((refused.origin.as_str(), refused.line), ("old.yaml", Some(5)));
        let with_role = Options {
            role: Some("r".to_owned()),
            ..Options::default()
        };
        let mut source = Source::default();
        source.text("old.yaml", text);
        assert_eq!(converted(source, &with_role, false).objects.len(), 1);
    }

    #[test]
    fn unreadable_documents_are_named_and_the_others_are_converted() {
        let pool = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: a}\nspec: {template: {spec: {requirements: [], nodeClassRef: {group: g, kind: K, name: c}}}}\n";
        let text = format!(
            "a: ['{{{{ $labels.pod }}}}'\n---\n{pool}---\n# a comment\nkind: {{{{ .Values.kind }}}}\n---\nkind: Provisioner\nmetadata: {{name: \"{{{{ .Release.Name }}}}\"}}\n"
        );
        let printed = convert_text(&text);
        assert_eq!(printed.objects.len(), 1, "{:?}", printed.entries);
        assert_eq!(printed.unchanged, 1);
        let errors: Vec<(Option<usize>, bool)> = printed
            .entries
            .iter()
            .filter(|entry| entry.level == Level::Error)
            .map(|entry| (entry.line, entry.text.contains("helm template")))
            .collect();
        assert_eq!(errors.len(), 3, "{:?}", printed.entries);
        assert!(
            !errors[0].1 && errors[1].1 && errors[2].1,
            "{:?}",
            printed.entries
        );
        assert_eq!(errors[2].0, Some(12));
    }

    #[test]
    fn items_of_lists_have_their_own_lines() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: karpenter.sh/v1alpha5\n  kind: Provisioner\n  metadata: {name: a}\n  spec:\n    ttlSecondsAfterEmpty: 30\n    providerRef: {name: c}\n";
        // `items` must be the last key, or precede `kind`, as kubectl writes it; here it is the former.
        let printed = convert_text(text);
        let line = printed
            .entries
            .iter()
            .find(|entry| entry.field == "spec.ttlSecondsAfterEmpty")
            .and_then(|entry| entry.line);
        assert_eq!(line, Some(8), "{:?}", printed.entries);
    }
}
