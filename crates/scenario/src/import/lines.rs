//! Bytes as lines, decompressed where they are gzip, within a limit for one line.
//!
//! Owns nothing but cutting; memory stays at one line whatever a file expands to.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::{ImportError, Place};

/// Longest line: an object of Kubernetes has at most 1.5 MiB, and an audit event can hold two.
const MOST_LINE: u64 = 16 << 20;

/// The lines of a file.
pub(crate) struct Lines<'b> {
    reader: Box<dyn BufRead + 'b>,
    number: u64,
    line: Vec<u8>,
}

/// Decompresses what is gzip.
pub(crate) fn reader(bytes: &[u8]) -> Box<dyn BufRead + '_> {
    match bytes.starts_with(&[0x1f, 0x8b]) {
        true => Box::new(BufReader::new(MultiGzDecoder::new(bytes))),
        false => Box::new(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)),
    }
}

impl<'b> Lines<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self {
            reader: reader(bytes),
            number: 0,
            line: Vec::new(),
        }
    }

    /// The next line that is not blank, with its number.
    ///
    /// # Errors
    /// It is too long, or not UTF-8; or the compressed data are broken.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &str)>, ImportError> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.reader).take(MOST_LINE + 1);
            let read = limited.read_until(b'\n', &mut self.line);
            self.number += 1;
            let place = Place::Line(self.number);
            let read = read.map_err(|error| {
                ImportError::new(
                    place,
                    format!("cannot be decompressed: {error}; the file seems to be cut off"),
                )
            })?;
            if read == 0 {
                return Ok(None);
            }
            if self.line.len() as u64 > MOST_LINE {
                return Err(ImportError::new(
                    place,
                    format!(
                        "is longer than {} MiB; expected one JSON object a line",
                        MOST_LINE >> 20
                    ),
                ));
            }
            if !self.line.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let place = Place::Line(self.number);
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some((self.number, text.trim()))),
            Err(_) => Err(ImportError::new(place, "is not UTF-8 text")),
        }
    }
}
