//! Multipart archives, as cloud-init reads them.
//!
//! Owns reading and writing. What is encoded is decoded, because not everybody who reads an archive on a node decodes it; what is no text then stays as it is,
//! and says so.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::UserDataError;

/// Content type of a shell script.
pub(super) const SHELL_SCRIPT: &str = "text/x-shellscript; charset=\"us-ascii\"";

const BOUNDARY: &str = "//";

/// One part of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) content_type: String,
    /// `Content-Transfer-Encoding` of a content that is not written as it is meant.
    pub(super) encoding: Option<String>,
    pub(super) content: String,
}

impl Part {
    pub(super) fn new(content_type: &str, content: &str) -> Self {
        Part {
            content_type: content_type.to_owned(),
            encoding: None,
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
    let headers = unfolded(headers);
    let content_type =
        header(&headers, "content-type").ok_or_else(|| error("it has no Content-Type header"))?;
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
    let headers = unfolded(&lines[..empty].join("\n"));
    let content_type = header(&headers, "content-type").unwrap_or("text/plain");
    let encoding = header(&headers, "content-transfer-encoding").unwrap_or("7bit");
    let content = lines.get(empty + 1..).unwrap_or_default().join("\n");
    match decoded(encoding, &content) {
        Some(content) => Part::new(content_type, &content),
        None => Part {
            encoding: Some(encoding.to_owned()),
            ..Part::new(content_type, &content)
        },
    }
}

/// A content as it is meant; `None` where that is no text, or the encoding is not known.
fn decoded(encoding: &str, content: &str) -> Option<String> {
    let bytes = match encoding.to_ascii_lowercase().as_str() {
        "7bit" | "8bit" | "binary" => return Some(content.to_owned()),
        "base64" => STANDARD
            .decode(content.split_ascii_whitespace().collect::<String>())
            .ok()?,
        "quoted-printable" => unquoted(content)?,
        _ => return None,
    };
    String::from_utf8(bytes).ok()
}

/// Quoted-printable: `=XX` is a byte, and a line that ends with `=` goes on in the next one.
fn unquoted(content: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(content.len());
    let mut lines = content.split('\n').peekable();
    while let Some(line) = lines.next() {
        let line = line.trim_end_matches([' ', '\t', '\r']);
        let goes_on = line.ends_with('=');
        let mut parts = line.strip_suffix('=').unwrap_or(line).split('=');
        bytes.extend(parts.next()?.bytes());
        for part in parts {
            let (byte, rest) = part.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(byte, 16).ok()?);
            bytes.extend(rest.bytes());
        }
        if !goes_on && lines.peek().is_some() {
            bytes.push(b'\n');
        }
    }
    Some(bytes)
}

/// Headers of one line each: a line that begins with a blank goes on with the one before it.
fn unfolded(headers: &str) -> String {
    headers.replace("\n\t", " ").replace("\n ", " ")
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
        let encoding = part.encoding.as_ref();
        let encoding = encoding.map_or_else(String::new, |it| format!("Content-Transfer-Encoding: {it}\n"));
        text.push_str(&format!(
            "--{BOUNDARY}\nContent-Type: {}\n{encoding}\n{}\n",
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

    /// Mail libraries fold headers at 78 characters.
    #[test]
    fn a_header_over_several_lines_is_one() {
        let archive =
            |head: &str, part: &str| format!("MIME-Version: 1.0\n{head}\n\n--=B=\n{part}\n\nx\n--=B=--\n");
        let plain = parse(&archive(
            "Content-Type: multipart/mixed; boundary=\"=B=\"",
            "Content-Type: a/b; c=d",
        ));
        for fold in ["\n ", "\n\t", "\r\n    "] {
            let head = format!("Content-Type: multipart/mixed;{fold}boundary=\"=B=\"\nX-Other: y");
            let part = format!("X-Other:{fold}y\nContent-Type: a/b;{fold}c=d");
            let folded = parse(&archive(&head, &part)).unwrap();
            assert_eq!(folded.len(), 1);
            let without_blanks = |parts: &[Part]| parts[0].content_type.replace(' ', "");
            assert_eq!(
                without_blanks(&folded),
                without_blanks(plain.as_ref().unwrap()),
                "{fold:?}"
            );
            assert_eq!(folded[0].content, "x");
        }
    }

    #[test]
    fn what_is_encoded_comes_out_as_it_is_meant_or_says_that_it_is_encoded() {
        let part = |encoding: &str, content: &str| {
            let text = format!(
                "Content-Type: multipart/mixed; boundary=B\n\n--B\nContent-Type: text/x-shellscript\nContent-Transfer-Encoding: {encoding}\n\n{content}\n--B--\n"
            );
            parse(&text).unwrap().remove(0)
        };
        let script = "#!/bin/sh\necho é = 1\n";
        for (encoding, content) in [
            ("base64", "IyEvYmluL3NoCmVj\naG8gw6kgPSAxCg=="),
            ("BASE64", "IyEvYmluL3NoCmVjaG8gw6kgPSAxCg==\n"),
            ("quoted-printable", "#!/bin/sh\necho =C3=a9 =3D=\n 1 \n"),
            ("8bit", script),
        ] {
            let found = part(encoding, content);
            assert_eq!(found, Part::new("text/x-shellscript", script), "{encoding}");
        }
        // A program, an error, and what nobody here knows.
        for (encoding, content) in [
            ("base64", "f0VMRv8="),
            ("quoted-printable", "a=ZZ"),
            ("x-uuencode", "begin"),
        ] {
            let found = part(encoding, content);
            assert_eq!(
                (found.encoding.as_deref(), found.content.as_str()),
                (Some(encoding), content)
            );
            assert_eq!(parse(&write(std::slice::from_ref(&found))).unwrap(), [found]);
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
