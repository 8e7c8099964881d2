//! Where links lead, and how much of an address they repeat.

use super::*;

/// What is not asked for anew stays: also the part of the table that somebody reads.
#[tokio::test]
async fn a_link_leads_to_the_part_of_the_table_that_is_read() {
    let many = world(300, "small");
    let page = page_of(many.clone(), "?part=1").await;
    assert!(page.contains("300 nodes, 251 to 300"), "{page}");
    for kept in [
        r#"href="/?node=n99%3Cb%3E&amp;part=1" data-row="n99&lt;b&gt;""#,
        r#"href="/?range=6h&amp;part=1""#,
        r#"href="/?group=zone&amp;part=1""#,
        r#"href="/?pool=default&amp;part=1""#,
        r#"href="/" rel="prev""#,
    ] {
        assert!(page.contains(kept), "{kept}: {page}");
    }
    // Other rows, or another order of them, begin with the first.
    assert!(page.contains(r#"href="/?sort=cpu" data-sort="cpu""#), "{page}");
    assert!(page.contains(r#"href="/?desc=1" data-sort="name""#), "{page}");
    assert!(!page.contains(r#"name="part""#), "of the form to find nodes");
    let none = page_of(many.clone(), "?find=nothing&part=1").await;
    assert!(none.contains(r#"<a href="/">Show all 300</a>"#), "{none}");
    let chosen = page_of(many, "?part=1&node=n99%3Cb%3E").await;
    assert_eq!(
        chosen.matches(r#" chosen" aria-rowindex="#).count(),
        1,
        "{chosen}"
    );
}

/// The script turns a switch in the address as it is, and not as it was when the switch was drawn.
#[tokio::test]
async fn a_switch_names_what_it_assumes_away() {
    let query = "?node=n0%3Cb%3E&without=Budget:NodePool/default&gone=Node/n1%3Cb%3E";
    let page = page_of(world(2, "small"), query).await;
    let (_, banner) = page.split_once(r#"id="whatif""#).unwrap();
    let (banner, rest) = banner.split_once("</section>").unwrap();
    assert_eq!(banner.matches(r#"role="switch""#).count(), 2, "{banner}");
    for name in [
        r#" data-toggle="Budget:NodePool/default">"#,
        r#" data-gone="Node/n1&lt;b&gt;">"#,
    ] {
        assert_eq!(banner.matches(name).count(), 1, "{banner}");
    }
    let link = r#" data-gone="Node/n0&lt;b&gt;">what if this node were gone?"#;
    assert!(rest.contains(link), "{rest}");
}

/// Whoever makes others open a long address does not fill the memory of the program with it.
#[tokio::test]
async fn a_long_address_makes_no_page_that_is_much_longer() {
    let board = Board::new();
    publish(&board, 1, 300);
    let site = site(board);
    let page = async |query: &str| {
        let got = ask(&site, "GET", &format!("/?{query}"), &[KEY]).await;
        assert_eq!(got.status, 200, "{} bytes", query.len());
        got.body
    };
    let usual = page("").await.len();
    for name in ["gone", "without"] {
        let pairs: Vec<String> = (0..1500).map(|index| format!("{name}=x{index:x}")).collect();
        let long = page(&pairs.join("&")).await;
        assert!(long.len() < usual + 10_000, "{} after {usual}", long.len());
        let why = "Nothing of this is assumed: more than 256 things at once";
        assert!(long.contains(why) && !long.contains("drawn as if"), "{name}");
        assert!(
            long.contains(r#"<b>too much</b> <a href="/">clear</a>"#),
            "{name}"
        );
        let uri = format!("/api/whatif?{}", pairs.join("&"));
        let got = ask(&site, "GET", &uri, &[KEY]).await;
        assert_eq!(got.status, 400, "{}", got.body);
    }
    for name in ["node", "pod", "pool"] {
        let long = page(&format!("{name}={}", "x".repeat(30_000))).await;
        assert!(long.len() < 3 * usual, "{name}: {} after {usual}", long.len());
    }
    // As much as can be: boxes have no links of their own then.
    let pairs: Vec<String> = (0..256).map(|index| format!("gone=Node/{index:080}")).collect();
    let most = page(&pairs.join("&")).await;
    assert_eq!(most.matches(r#"role="switch""#).count(), 256);
    assert!(most.contains("data-compact") && !most.contains("data-node="));
    assert!(most.len() < 16 << 20, "{} bytes", most.len());
}
