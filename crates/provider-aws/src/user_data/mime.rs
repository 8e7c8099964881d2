//! Multipart archives, as cloud-init reads them.

use super::UserDataError;

/// Content type of a shell script.
pub(super) const SHELL_SCRIPT: &str = "text/x-shellscript; charset=\"us-ascii\"";

const BOUNDARY: &str = "//";

/// One part of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) content_type: String,
    pub(super) content: String,
}

impl Part {
    pub(super) fn new(content_type: &str, content: &str) -> Self {
        Part {
            content_type: content_type.to_owned(),
            content: content.to_owned(),
        }
    }
}

/// Whether a text is meant as an archive.
pub(super) fn is_archive(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

/// The parts of an archive, without those that are empty.
pub(super) fn parse(text: &str) -> Result<Vec<Part>, UserDataError> {
    let text = text.trim_start().replace("\r\n", "\n");
    let error = |problem: &str| UserDataError::Mime(problem.to_owned());
    let (headers, body) = text
        .split_once("\n\n")
        .ok_or_else(|| error("it has headers and no body"))?;
    let content_type =
        header(headers, "content-type").ok_or_else(|| error("it has no Content-Type header"))?;
    if !content_type.to_ascii_lowercase().starts_with("multipart/") {
        return Err(UserDataError::Mime(format!(
            "its Content-Type is {content_type}, not multipart/mixed"
        )));
    }
    let boundary = boundary(content_type).ok_or_else(|| error("its Content-Type names no boundary"))?;
    let delimiter = format!("--{boundary}");
    let mut parts = Vec::new();
    let mut current: Option<Vec<&str>> = None;
    let mut closed = false;
    for line in body.lines() {
        let trimmed = line.trim_end();
        closed = closed || trimmed.strip_suffix("--") == Some(&delimiter);
        if trimmed == delimiter || closed {
            parts.extend(current.take().map(|lines| part(&lines)));
            if closed {
                break;
            }
            current = Some(Vec::new());
        } else if let Some(lines) = &mut current {
            lines.push(line);
        }
    }
    // Upstream's example for AL2023 ends with a delimiter that opens one more part, and upstream takes that for the end.
    let ends_with_delimiter = current.is_some_and(|lines| lines.is_empty());
    if !closed && !ends_with_delimiter {
        return Err(UserDataError::Mime(format!("its end --{boundary}-- is missing")));
    }
    Ok(parts)
}

fn part(lines: &[&str]) -> Part {
    let empty = lines
        .iter()
        .position(|line| line.is_empty())
        .unwrap_or(lines.len());
    let headers = lines[..empty].join("\n");
    Part {
        content_type: header(&headers, "content-type")
            .unwrap_or("text/plain")
            .to_owned(),
        content: lines.get(empty + 1..).unwrap_or_default().join("\n"),
    }
}

fn header<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    headers.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn boundary(content_type: &str) -> Option<String> {
    content_type.split(';').find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (key.trim().eq_ignore_ascii_case("boundary") && !value.is_empty()).then(|| value.to_owned())
    })
}

/// Writes an archive.
pub(super) fn write(parts: &[Part]) -> String {
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\n\n");
    for part in parts {
        text.push_str(&format!(
            "--{BOUNDARY}\nContent-Type: {}\n\n{}\n",
            part.content_type, part.content
        ));
    }
    text.push_str(&format!("--{BOUNDARY}--\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let parts = vec![
            Part::new(SHELL_SCRIPT, "#!/bin/bash\necho hi\n"),
            Part::new("text/plain", ""),
            Part::new("text/cloud-config", "a: 1"),
        ];
        assert_eq!(parse(&write(&parts)).unwrap(), parts);
    }

    #[test]
    fn a_delimiter_with_nothing_behind_it_ends_an_archive() {
        let open = |end: &str| {
            format!("Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: a/b\n\nx\n{end}")
        };
        let expected = vec![Part::new("a/b", "x")];
        for end in ["--B--\n", "--B\n", "--B"] {
            assert_eq!(parse(&open(end)).unwrap(), expected, "{end:?}");
        }
        for end in ["", "--B\n\n", "--B\nContent-Type: a/b\n"] {
            assert!(parse(&open(end)).is_err(), "{end:?}");
        }
    }

    #[test]
    fn broken_archives_say_what_is_missing() {
        for (text, expected) in [
            ("MIME-Version: 1.0", "headers and no body"),
            ("MIME-Version: 1.0\n\nx", "no Content-Type"),
            (
                "MIME-Version: 1.0\nContent-Type: text/plain\n\nx",
                "not multipart/mixed",
            ),
            ("Content-Type: multipart/mixed\n\nx", "names no boundary"),
            (
                "Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: text/plain\n\nx",
                "--B-- is missing",
            ),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }
}
