//! What the page says of a node and of budgets, in words.

use super::*;
use spokeshave_example::bound;
use spokeshave_model::PriceFeed;
use spokeshave_plan::in_flight::{Room, stand_in};

/// That a node would be deleted is not all that is said of one to which the plan sends pods.
#[tokio::test]
async fn d_027_the_detail_of_a_node_says_why_it_does_not_go_at_once() {
    let mut sent = world(1, "small");
    let waiting = pending_pod("w", "1", "1Gi", &serde_json::json!({}));
    sent.state = sent.state.with_pod(waiting);
    let page = page_of(sent, "?node=n0%3Cb%3E").await;
    let (_, verdict) = page.split_once(r#"<p class="verdict">"#).unwrap();
    let (verdict, _) = verdict.split_once("</p>").unwrap();
    assert!(verdict.starts_with("<b>delete</b> by Emptiness"), "{verdict}");
    let waits = "; not in this plan, which sends pending pods to it";
    assert!(verdict.ends_with(waits), "{verdict}");
}

/// By prices of on-demand more would be saved than the node costs.
#[tokio::test]
async fn a_054_what_a_replacement_of_a_spot_node_saves_is_told_as_a_share() {
    let types = [
        instance_type("small", 2, 4, &["a"]),
        instance_type("large", 16, 32, &["a"]),
    ];
    let mut spot = world(0, "small");
    let pod = pending_pod("w", "1", "1Gi", &serde_json::json!({}));
    spot.state = ClusterState::default()
        .with_pool(node_pool("default"), types.to_vec())
        .with_node(node("default", "n1", &types[1], "a", "spot"))
        .with_pod(bound(pod, "n1"));
    spot.state.distress.prices = PriceFeed::WithoutSpot;
    let drifted = serde_json::json!({
        "type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let claim = Arc::make_mut(&mut spot.state.node_claims[0]);
    let conditions = &mut claim.status.get_or_insert_default().conditions;
    conditions.push(serde_json::from_value(drifted).unwrap());
    let page = page_of(spot, "?node=n1").await;
    let (_, verdict) = page.split_once(r#"<p class="verdict">"#).unwrap();
    let (verdict, _) = verdict.split_once("</p>").unwrap();
    let replaced = "<b>replace</b> by Drift: small comes instead, saves ";
    assert!(verdict.starts_with(replaced), "{verdict}");
    assert!(verdict.ends_with("% by prices of on-demand"), "{verdict}");
}

/// As in the header: what a launch has been asked for is on no bill yet.
#[tokio::test]
async fn capability_21_a_group_of_boxes_costs_what_is_launched() {
    let mut coming = world(1, "small");
    let kind = instance_type("small", 2, 8, &["a"]);
    let (_, mut claim) = node("default", "late", &kind, "a", "spot");
    claim.status = None;
    let claim = stand_in(&claim, std::slice::from_ref(&kind), Room::Taken);
    coming.state.node_claims.push(Arc::new(claim));
    let price = async |world: World, nodes: &str| {
        let page = page_of(world, "").await;
        let (_, rest) = page.split_once(&format!("default · {nodes} · ")).unwrap();
        rest.split_once(" · cpu").unwrap().0.to_owned()
    };
    let alone = price(world(1, "small"), "1 node").await;
    assert_eq!(price(coming, "2 nodes").await, alone);
}

/// As in the header: what nodes cost is not known without the NodeClaims, although labels name prices.
#[tokio::test]
async fn a_group_of_boxes_has_no_price_where_nodeclaims_could_not_be_read() {
    let mut unread = world(1, "small");
    unread.state.node_claims.clear();
    unread.missing.push(Missing {
        resource: "nodeclaims.karpenter.sh".to_owned(),
        message: "forbidden".to_owned(),
    });
    let page = page_of(unread, "").await;
    assert!(page.contains("default · 1 node · price unknown · cpu "), "{page}");
}

/// Of the nodes of the group, not of the cluster.
#[tokio::test]
async fn the_title_of_a_group_says_how_much_cpu_and_memory_is_requested() {
    let mut two = world(1, "small");
    let kind = instance_type("small", 2, 8, &["b"]);
    let pod = pending_pod("w", "1", "1Gi", &serde_json::json!({}));
    two.state = two
        .state
        .with_node(node("default", "busy", &kind, "b", "spot"))
        .with_pod(bound(pod, "busy"));
    let page = page_of(two, "?group=zone").await;
    let requested = |zone: &str| {
        let (_, rest) = page.split_once(&format!("<title>{zone} · 1 node · ")).unwrap();
        let (title, _) = rest.split_once("</title>").unwrap();
        title.split_once(" · ").unwrap().1.to_owned()
    };
    let told = [requested("a"), requested("b")];
    assert_eq!(told, ["cpu 0 % · memory 0 %", "cpu 52 % · memory 12 %"]);
}

/// With these disruption budgets of its only NodePool.
fn budgeted(mut cluster: World, budgets: serde_json::Value) -> World {
    let pool = Arc::make_mut(&mut cluster.state.node_pools[0]);
    pool.spec.disruption.budgets = serde_json::from_value(budgets).unwrap();
    cluster
}

#[tokio::test]
async fn d_195_of_two_nodes_no_fifty_may_go() {
    let mut wide = budgeted(world(2, "small"), serde_json::json!([{"nodes": "50"}]));
    let page = page_of(wide.clone(), "").await;
    assert!(page.contains("2 of 2") && !page.contains("50 of 50"), "{page}");
    assert!(!page.contains(r#"<span class="bad">"#), "{page}");
    // Nor may one of two that go already, whatever the budget leaves.
    let nodes = wide.state.nodes.iter();
    let ids: Vec<String> = nodes
        .filter_map(|node| node.spec.as_ref()?.provider_id.clone())
        .collect();
    wide.state.marked_for_deletion.extend(ids);
    let page = page_of(wide, "").await;
    assert_eq!(
        page.matches(r#"<span class="bad">0 of 2</span>"#).count(),
        3,
        "{page}"
    );
}

/// Shares of no nodes are none, and of one node that one: what a NodePool without nodes allows is told as if it had one.
#[tokio::test]
async fn d_196_budgets_of_a_nodepool_without_nodes_are_not_closed() {
    let empty = world(0, "small");
    let page = page_of(empty.clone(), "").await;
    assert_eq!(page.matches("no node to disrupt").count(), 3, "{page}");
    let title = "<title>all seven days: 1 (budgets[0] nodes: 10%)</title>";
    assert_eq!(page.matches(title).count(), 3, "{page}");
    let bad = r#"<span class="bad">"#;
    assert!(!page.contains(bad) && !page.contains("url(#p-closed)"), "{page}");
    // What would be closed with nodes, too, is closed.
    let budgets = serde_json::json!([{"nodes": "10%"}, {"nodes": "0", "reasons": ["Drifted"]}]);
    let page = page_of(budgeted(empty, budgets), "").await;
    assert_eq!(page.matches("no node to disrupt").count(), 2, "{page}");
    assert_eq!(page.matches(bad).count(), 1, "{page}");
    assert_eq!(page.matches("url(#p-closed)").count(), 1, "{page}");
}

/// What a pointer is told of each stretch is there in words as well, and what is cut says so.
#[tokio::test]
async fn what_budgets_allow_is_told_without_a_pointer() {
    let budgets = serde_json::json!([{"nodes": "0", "schedule": "0 * * * *", "duration": "30m"}]);
    let page = page_of(budgeted(world(2, "small"), budgets), "").await;
    let (_, panel) = page.split_once(r#"id="budgets""#).unwrap();
    let (_, lane) = panel.split_once(r#"<svg class="lane""#).unwrap();
    let (lane, _) = lane.split_once("</svg>").unwrap();
    let all = lane.matches("<title>").count();
    assert!(all > 300, "{all}");
    let more = format!("and {} more: spokeshave budgets default", all - 20);
    assert_eq!(panel.matches(&format!(". {more}\">")).count(), 3, "{panel}");
    let (_, words) = panel.split_once("<summary>default in words</summary>").unwrap();
    let (words, _) = words.split_once("</details>").unwrap();
    assert_eq!(words.matches(&format!("<li>{more}</li>")).count(), 3, "{words}");
    assert_eq!(words.matches("<li>").count(), 3 * 21, "{words}");
    assert!(words.contains(": 0 (budgets[0] nodes: 0"), "{words}");
    // What is told to its end needs no more.
    let page = page_of(world(2, "small"), "").await;
    let (_, words) = page.split_once("<summary>default in words</summary>").unwrap();
    let line = "<dd><ul><li>all seven days: 1 (budgets[0] nodes: 10%)</li></ul></dd>";
    assert_eq!(words.matches(line).count(), 3, "{words}");
    assert!(!page.contains(" more: spokeshave budgets"), "{page}");
}

/// What would be with one node no command tells: `spokeshave budgets` tells of the NodePool as it is.
#[tokio::test]
async fn d_196_what_one_node_would_be_allowed_leads_to_no_command() {
    let budgets = serde_json::json!([{"nodes": "0", "schedule": "0 * * * *", "duration": "30m"}]);
    let page = page_of(budgeted(world(0, "small"), budgets), "").await;
    let (_, words) = page.split_once("<summary>default in words</summary>").unwrap();
    let (words, _) = words.split_once("</details>").unwrap();
    assert_eq!(words.matches("<li>and ").count(), 3, "{words}");
    assert_eq!(words.matches(" more</li></ul>").count(), 3, "{words}");
    assert!(!page.contains(" more: spokeshave budgets"), "{page}");
}

/// What the numbers of the header count, and why the price is another one, is not in titles alone.
#[tokio::test]
async fn what_is_counted_is_told_without_a_pointer() {
    let page = page_of(world(1, "small"), "?gone=Node/n0%3Cb%3E").await;
    let (_, counted) = page.split_once("<summary>what is counted</summary>").unwrap();
    let (counted, _) = counted.split_once("</details>").unwrap();
    assert!(!counted.contains("title="), "{counted}");
    assert_eq!(counted.matches("<dt>").count(), 7, "{counted}");
    assert!(counted.contains("<dt>cost</dt><dd>"), "{counted}");
    let what_if = "<dt>what if</dt><dd>What the address of this page assumes away.</dd>";
    assert!(counted.contains(what_if), "{counted}");
    // The account belongs to the price.
    let priced = page_of(world(1, "small"), "").await;
    assert!(priced.contains("<dt>cost</dt><dd>About $"), "{priced}");
}

/// With a text to find, all that is said of boxes is of those that have it.
#[tokio::test]
async fn boxes_and_what_is_said_of_them_are_the_same_nodes() {
    let told = async |query: &str| {
        let page = page_of(world(3, "small"), query).await;
        let (_, boxes) = page.split_once(r#"id="boxes""#).unwrap();
        let (_, legend) = boxes.split_once(r#"<ul class="legend">"#).unwrap();
        let (legend, _) = legend.split_once("</ul>").unwrap();
        let of_looks = legend.split("<b>").skip(1);
        let of_looks = of_looks.map(|rest| rest.split_once("</b>").unwrap().0);
        let all: usize = of_looks.map(|number| number.parse::<usize>().unwrap()).sum();
        let go = legend.split_once("could go <b>").map(|(_, rest)| rest);
        let go = go.map_or("0", |rest| rest.split_once("</b>").unwrap().0);
        let summary = format!("{go} could go. The table below has the same.");
        assert!(boxes.contains(&summary), "{summary}: {boxes}");
        all
    };
    assert_eq!(told("").await, 3);
    assert_eq!(told("?find=n1").await, 1);
}

/// A screen reader is told once that the page is live, by the script, and not by each drawing.
#[tokio::test]
async fn no_drawing_is_announced_by_itself() {
    let page = page_of(world(1, "small"), "").await;
    assert!(page.contains(r#"<span class="" id="live"></span>"#), "{page}");
    assert!(!page.contains(r#"role="status""#), "{page}");
    assert_eq!(page.matches("aria-live").count(), 1, "{page}");
    assert!(page.contains(r#"aria-live="polite"></p>"#), "{page}");
}

/// Of seven days the last has the name of the first.
#[tokio::test]
async fn intervals_at_the_ends_of_the_calendar_are_told_by_their_other_ends() {
    let closed = |schedule: &str, duration: &str| {
        let budget = serde_json::json!([{"nodes": "0", "schedule": schedule, "duration": duration}]);
        budgeted(world(2, "small"), budget)
    };
    let page = page_of(closed("0 9 2 1 *", "8h"), "").await;
    for title in [
        "<title>until Fri 09:00: no limit",
        "<title>Fri 09:00 to Fri 17:00: 0 (",
        "<title>from Fri 17:00 on: no limit",
    ] {
        assert_eq!(page.matches(title).count(), 3, "{title}: {page}");
    }
    let page = page_of(closed("0 1 1 1 *", "1h"), "").await;
    let title = "<title>from Jan 1 02:00 on: no limit";
    assert_eq!(page.matches(title).count(), 3, "{page}");
}

/// What a node saves whose price nobody knows is not nothing.
#[tokio::test]
async fn z_024_what_could_be_saved_is_a_lower_bound_while_a_price_is_not_known() {
    let good = r#"<b class="good">"#;
    assert!(page_of(world(1, "small"), "").await.contains(&format!("{good}$")));
    let mut mixed = world(1, "small");
    let odd = instance_type("odd", 2, 8, &["a"]);
    mixed.state = mixed.state.with_node(node("default", "odd", &odd, "a", "spot"));
    let page = page_of(mixed, "").await;
    assert!(page.contains(&format!("{good}≥ $")), "{page}");
}
