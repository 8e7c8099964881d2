//! Answers as gzip, for clients that take it.
//!
//! Owns what a client takes, what is worth it, and how it is packed. Streams stay as they are: an event would wait in the packer for the next ones.

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, header};
use std::io::Write as _;
use std::sync::OnceLock;

/// What is shorter fits into a packet or two.
const LEAST: usize = 1024;
/// The quickest: a view is a fifth of its size then, and no level makes it half of that.
const LEVEL: Compression = Compression::fast();
/// Kinds of text that are long enough to be packed.
const KINDS: [&str; 5] = [
    "text/html",
    "text/css",
    "text/javascript",
    "application/json",
    "image/svg+xml",
];

/// Something that many ask for: packed once, when the first takes it so.
#[derive(Debug)]
pub(crate) struct Packable {
    pub(crate) plain: Bytes,
    packed: OnceLock<Option<Bytes>>,
}

impl Packable {
    pub(crate) const fn of(plain: Bytes) -> Self {
        Self {
            plain,
            packed: OnceLock::new(),
        }
    }

    /// As gzip, if it is worth it; takes a while at the first time.
    pub(crate) fn packed(&self) -> Option<Bytes> {
        self.packed.get_or_init(|| gzip(&self.plain)).clone()
    }

    /// As gzip, if it has been packed.
    pub(crate) fn if_packed(&self) -> Option<Bytes> {
        self.packed.get().cloned().flatten()
    }
}

/// Whether an answer of so many bytes is long enough to be packed.
pub(crate) fn is_long(length: usize) -> bool {
    length >= LEAST
}

/// Packs what is long enough.
pub(crate) fn gzip(plain: &[u8]) -> Option<Bytes> {
    if !is_long(plain.len()) {
        return None;
    }
    let mut packer = GzEncoder::new(Vec::with_capacity(plain.len() / 4), LEVEL);
    packer.write_all(plain).ok()?;
    packer.finish().ok().map(Bytes::from)
}

/// Says that an answer would be another one for other clients, if it is of a kind that is packed; whether it is of such a kind and not packed yet.
pub(crate) fn may_be_packed<B>(response: &mut Response<B>) -> bool {
    let headers = response.headers_mut();
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| KINDS.iter().any(|one| kind.starts_with(one))) {
        return false;
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    !headers.contains_key(header::CONTENT_ENCODING)
}

/// The same answer, marked as gzip.
pub(crate) fn as_gzip<B>(mut response: Response<B>) -> Response<B> {
    let gzip = HeaderValue::from_static("gzip");
    response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
    response
}

/// Whether a client takes gzip, and does not prefer what is not packed (RFC 9110, 12.5.3).
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::ACCEPT_ENCODING).iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    let (mut gzip, mut any, mut plain) = (None, None, None);
    for (name, weight) in lines.flat_map(|line| line.split(',')).map(coding) {
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "identity" => plain = Some(weight),
            "*" => any = Some(weight),
            _ => {}
        }
    }
    let gzip = gzip.or(any).unwrap_or_default();
    gzip > 0.0 && gzip >= plain.unwrap_or_default()
}

/// The name and the weight of `gzip;q=0.5`. One whose weight cannot be read is not taken.
fn coding(text: &str) -> (&str, f32) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix(['q', 'Q'])?.trim_start().strip_prefix('='));
    let weight = weight.map_or(Some(1.0), |weight| weight.trim().parse::<f32>().ok());
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight));
    (name, weight.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_takes_is_what_it_weighs_most() {
        let takes = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for &line in lines {
                headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(line));
            }
            takes_gzip(&headers)
        };
        for lines in [
            &["gzip"][..],
            &["gzip, deflate, br, zstd"],
            &["br", "gzip"],
            &["br;q=1.0, GZIP;Q=0.1 , identity;q=0"],
            &["x-gzip"],
            &["*"],
            &["identity;q=0.5, *;q=0.6"],
            &["gzip ; q = 1.000"],
            &["gzip, identity"],
        ] {
            assert!(takes(lines), "{lines:?}");
        }
        for lines in [
            &[] as &[&str],
            &[""],
            &["identity"],
            &["br, deflate"],
            &["gzip;q=0"],
            &["gzip;q=0.000, *"],
            &["*;q=0"],
            &["gzip;q=0.5, identity;q=0.9"],
            &["gzip;q=much", "gzip;q=2"],
            &["gzip;q=nan"],
            &["notgzip, gzippy"],
        ] {
            assert!(!takes(lines), "{lines:?}");
        }
    }

    #[test]
    fn a_kilobyte_is_packed_and_less_is_not() {
        assert_eq!(gzip(&[b'a'; LEAST - 1]), None);
        let packed = gzip(&[b'a'; LEAST]).unwrap();
        assert!(packed.len() < 100, "{}", packed.len());
    }
}
