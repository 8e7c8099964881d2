//! Bytes as lines, decompressed where they are gzip, within a limit for one line.
//!
//! Owns nothing but cutting; memory stays at one line whatever a file expands to.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

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

/// What is said of compressed data that cannot be read.
pub(crate) fn cut_off(error: &impl fmt::Display) -> String {
    format!("cannot be decompressed: {error}; the file seems to be cut off")
}

/// All of a file, decompressed; `place` says where its bytes so far end.
///
/// # Errors
/// It has more than `most` bytes, or the compressed data are broken.
pub(crate) fn whole(bytes: &[u8], most: u64, place: fn(&[u8]) -> Place) -> Result<Vec<u8>, ImportError> {
    let mut whole = Vec::new();
    let read = reader(bytes).take(most + 1).read_to_end(&mut whole);
    if let Err(error) = read {
        return Err(ImportError::new(place(&whole), cut_off(&error)));
    }
    if whole.len() as u64 > most {
        return Err(ImportError::whole(format!(
            "is larger than {} MiB without compression; cut it into pieces",
            most >> 20
        )));
    }
    Ok(whole)
}

/// The same of a text.
///
/// # Errors
/// It is not UTF-8, too.
pub(crate) fn text(bytes: &[u8], most: u64) -> Result<String, ImportError> {
    String::from_utf8(whole(bytes, most, last_line)?).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        ImportError::new(last_line(&error.as_bytes()[..good]), "is not UTF-8 text")
    })
}

/// The line that the end of a text is in.
fn last_line(text: &[u8]) -> Place {
    let ends = text.iter().filter(|byte| **byte == b'\n').count();
    Place::Line(1 + ends as u64)
}

/// Counts the lines of what is read through it.
pub(crate) struct Counted<R> {
    inner: R,
    ends: u64,
}

impl<R> Counted<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, ends: 0 }
    }

    /// The line that is being read.
    pub(crate) fn line(&self) -> u64 {
        self.ends + 1
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        let new = into.iter().take(read);
        self.ends += new.filter(|byte| **byte == b'\n').count() as u64;
        Ok(read)
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
            let read = read.map_err(|error| ImportError::new(place, cut_off(&error)))?;
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
