//! Answers as gzip, for those who take them so.

use super::*;
use flate2::read::GzDecoder;
use std::io::Read as _;

const GZIP: (&str, &str) = ("accept-encoding", "br, gzip;q=0.8");

/// The headers and the body of an answer.
async fn whole_of(site: &Arc<Site>, uri: &str, headers: &[(&str, &str)]) -> (http::HeaderMap, Bytes) {
    let (parts, body) = answer_to(site, "GET", uri, headers).await.into_parts();
    assert!(parts.status.is_success(), "{uri}: {}", parts.status);
    (parts.headers, body.collect().await.unwrap().to_bytes())
}

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
    plain
}

/// A cluster of which every answer is long.
fn of_fifty() -> Board {
    let board = Board::new();
    publish(&board, 1, 50);
    board
}

fn asset_of(page: &[u8], kind: &str) -> String {
    let page = String::from_utf8_lossy(page);
    let mut names = page.split('"').filter(|text| text.starts_with("/assets/"));
    names.find(|name| name.ends_with(kind)).unwrap().to_owned()
}

#[tokio::test]
async fn who_takes_gzip_gets_the_same_in_fewer_bytes() {
    let site = site(of_fifty());
    let page = whole_of(&site, "/", &[KEY]).await.1;
    let (style, script) = (asset_of(&page, ".css"), asset_of(&page, ".js"));
    let paths = [
        "/",
        "/?group=zone",
        "/api/view",
        "/api/node/n0%3Cb%3E",
        "/api/whatif?gone=Node/n1%3Cb%3E",
        style.as_str(),
        script.as_str(),
    ];
    for path in paths {
        let (headers, plain) = whole_of(&site, path, &[KEY]).await;
        assert_eq!(headers["vary"], "accept-encoding", "{path}");
        assert!(!headers.contains_key("content-encoding"), "{path}");
        let (headers, packed) = whole_of(&site, path, &[KEY, GZIP]).await;
        assert_eq!(headers["vary"], "accept-encoding", "{path}");
        // What is short stays as it is.
        if plain.len() < 1024 {
            assert!(
                !headers.contains_key("content-encoding") && packed == plain,
                "{path}"
            );
            continue;
        }
        assert_eq!(headers["content-encoding"], "gzip", "{path}");
        assert!(packed.len() < plain.len(), "{path}: {} bytes", packed.len());
        assert!(unpacked(&packed) == plain, "{path}");
        // All that is said of an answer else is the same.
        for name in ["content-type", "cache-control", "content-security-policy"] {
            assert!(headers.contains_key(name), "{path}: {name}");
        }
        for refused in ["gzip;q=0", "identity", "gzip;q=0.1, identity", "br"] {
            let asked = [KEY, ("accept-encoding", refused)];
            let (headers, body) = whole_of(&site, path, &asked).await;
            assert!(!headers.contains_key("content-encoding"), "{path}: {refused}");
            assert!(body == plain, "{path}: {refused}");
        }
    }
    let (headers, _) = whole_of(&site, "/healthz", &[GZIP]).await;
    assert!(!headers.contains_key("content-encoding") && !headers.contains_key("vary"));
    let (_, packed) = whole_of(&site, "/", &[KEY, GZIP]).await;
    assert!(page.len() > 10_000, "{}: a short page proves little", page.len());
    assert!(packed.len() * 4 < page.len(), "{} bytes", packed.len());
}

/// Nobody reads the body, so that nobody packs it.
#[tokio::test]
async fn a_head_says_what_is_packed_and_packs_nothing() {
    let site = site(of_fifty());
    for path in ["/", "/api/node/n0%3Cb%3E", "/healthz"] {
        let (asked, _) = whole_of(&site, path, &[KEY, GZIP]).await;
        let (head, body) = answer_to(&site, "HEAD", path, &[KEY, GZIP]).await.into_parts();
        assert_eq!(head.headers, asked, "{path}");
        let unpacked = body.collect().await.unwrap().to_bytes();
        let (_, plain) = whole_of(&site, path, &[KEY]).await;
        assert!(unpacked == plain, "{path}: {} bytes", unpacked.len());
    }
}

/// A tab that follows gets each event when it comes.
#[tokio::test]
async fn streams_are_not_packed() {
    let site = site(of_fifty());
    let stream = answer_to(&site, "GET", "/api/changes", &[KEY, GZIP]).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert!(!stream.headers().contains_key("content-encoding"));
}

/// However many ask for it, a view is packed once a revision.
#[tokio::test]
async fn a_view_is_packed_once_and_anew_when_it_is_another() {
    let board = of_fifty();
    let site = site(board.clone());
    let view = async || whole_of(&site, "/api/view", &[KEY, GZIP]).await.1;
    let (first, second) = (view().await, view().await);
    assert_eq!(first.as_ptr(), second.as_ptr(), "the same bytes in memory");
    publish(&board, 2, 51);
    let other = view().await;
    let other: serde_json::Value = serde_json::from_slice(&unpacked(&other)).unwrap();
    assert_eq!(other["revision"], 2);
    board.trouble("the cluster does not answer".to_owned());
    let late: serde_json::Value = serde_json::from_slice(&unpacked(&view().await)).unwrap();
    assert_eq!(late["header"]["notUpToDate"], "the cluster does not answer");
    // While all turns are taken by what is costly, what is packed already is there.
    let taken = site.workers.clone().acquire_owned().await.unwrap();
    let mut last = Box::pin(view());
    assert!(futures::poll!(&mut last).is_ready());
    drop(taken);
}
