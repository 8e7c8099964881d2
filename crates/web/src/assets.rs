//! The files that the page brings along: part of the program, from nowhere else.

use crate::coding::Packable;
use bytes::Bytes;

/// A file: its name, its kind, its content.
pub(crate) struct Asset {
    name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) content: Packable,
}

static ASSETS: [Asset; 3] = [
    Asset {
        name: "page.css",
        kind: "text/css; charset=utf-8",
        content: Packable::of(Bytes::from_static(include_bytes!("../assets/page.css"))),
    },
    Asset {
        name: "page.js",
        kind: "text/javascript; charset=utf-8",
        content: Packable::of(Bytes::from_static(include_bytes!("../assets/page.js"))),
    },
    Asset {
        name: "icon.svg",
        kind: "image/svg+xml",
        content: Packable::of(Bytes::from_static(include_bytes!("../assets/icon.svg"))),
    },
];

/// Changes with the content, so that a file can be cached indefinitely.
fn digest(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `/assets/0123456789abcdef/page.css`.
pub(crate) fn address(name: &str) -> String {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    format!(
        "/assets/{:016x}/{name}",
        digest(asset.map_or(&[], |asset| &asset.content.plain[..]))
    )
}

/// The file of an address.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| address(asset.name) == path)
}
