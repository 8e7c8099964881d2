//! Where the time axis draws what, read back from the drawing.

use super::*;
use serde_json::{Value, json};
use spokeshave_example::{Dice, epoch, instance_type, node, node_pool};
use spokeshave_model::ClusterState;
use spokeshave_plan::Policy;
use spokeshave_view::{Dollars, History, Judged, Ledger, World};

const HOUR: i64 = 3600;

fn at(second: i64) -> Timestamp {
    epoch() + SignedDuration::from_secs(second)
}

fn entry(decided: i64, ended: Option<i64>) -> Entry {
    Entry {
        name: format!("d{decided}"),
        decided: at(decided),
        ended: ended.map(at),
        phase: if ended.is_some() { "Succeeded" } else { "Draining" }.to_owned(),
        message: String::new(),
        method: "Emptiness".to_owned(),
        reason: "Empty".to_owned(),
        nodes: vec!["n".to_owned()],
        replacements: Vec::new(),
        evictions: 1,
        before: Dollars::default(),
        predicted: Dollars::default(),
        realised: None,
    }
}

/// Two hours of a cluster that costs a dollar an hour.
fn two_hours(commands: Vec<Entry>) -> View {
    let mut history = History::default();
    for second in (0..=2 * HOUR).step_by(5) {
        history.push(Sample {
            at: at(second),
            price: Price::from_dollars(1.0),
            nodes: 1,
            pending: 0,
            evictions: 0,
        });
    }
    let world = World {
        now: at(2 * HOUR),
        ..World::default()
    };
    let judged = Judged::of(world, &Policy::default());
    let mut view = View::of(&judged, &Ledger::default(), &history, 1);
    view.commands = commands;
    view
}

fn drawn(view: &View, query: &str) -> String {
    panel(view, &Query::parse(query)).into_string()
}

/// What follows each place where something begins.
fn elements<'a>(html: &'a str, begin: &str) -> Vec<&'a str> {
    html.split(begin).skip(1).collect()
}

/// The first number that is the value of an attribute.
fn number(element: &str, name: &str) -> f64 {
    let (_, value) = element.split_once(&format!(" {name}=\"")).expect("an attribute");
    let (value, _) = value.split_once('"').expect("its end");
    value.parse().expect("a number")
}

/// Where an axis of an hour has a second after its beginning.
fn x(second: i64) -> f64 {
    52.0 + 948.0 * second.clamp(0, HOUR) as f64 / 3600.0
}

#[test]
fn a_bar_lies_from_where_its_command_was_decided_to_where_it_ended() {
    let times = [
        (-600, Some(300)),
        (600, Some(1200)),
        (900, Some(1500)),
        (1800, Some(1801)),
        (2700, None),
        (3599, None),
        (3605, None),
    ];
    let commands = times.map(|(decided, ended)| entry(HOUR + decided, ended.map(|ended| HOUR + ended)));
    let view = two_hours(commands.to_vec());
    let html = drawn(&view, "");
    let bars = elements(&html, r#"<rect class="bar "#);
    assert_eq!(bars.len(), times.len(), "{html}");
    let mut lanes: Vec<(f64, f64)> = Vec::new();
    for (bar, (decided, ended)) in bars.iter().zip(times) {
        let (from, width) = (number(bar, "x"), number(bar, "width"));
        // What is short or was decided just now is to be seen all the same.
        let begin = x(decided).min(996.0);
        let end = x(ended.unwrap_or(HOUR)).max(begin + 4.0);
        assert!((from - begin).abs() < 0.06, "{decided}: {from} is not {begin}");
        assert!(
            (from + width - end).abs() < 0.11,
            "{ended:?}: {} is not {end}",
            from + width
        );
        let lane = number(bar, "y");
        let above = lanes.iter().any(|(until, other)| *until > from && *other == lane);
        assert!(!above, "{decided} lies on another bar: {html}");
        lanes.push((from + width, lane));
        assert!(bar.starts_with(if ended.is_some() { "done" } else { "active" }));
        let clock = at(HOUR + decided).strftime("%a %H:%M").to_string();
        assert!(
            bar.contains(&format!("<title>{clock} UTC: delete 1 node: empty")),
            "{bar}"
        );
    }
    // What a reader in another zone would take for his own time.
    assert!(html.contains(r#"text-anchor="end">UTC</text>"#), "{html}");
}

/// Titles of bars are for those who point, and six lines for those who look once.
#[test]
fn every_command_is_told_in_words() {
    let commands = |number: i64| -> Vec<Entry> {
        let begins = (0..number).map(|index| HOUR + index * 60);
        begins.map(|begin| entry(begin, Some(begin + 30))).collect()
    };
    let line = r#"<li class="done">"#;
    let html = drawn(&two_hours(commands(20)), "");
    let (newest, before) = html
        .split_once(r#"<details id="before">"#)
        .expect("more than six");
    assert_eq!(
        (elements(newest, line).len(), elements(before, line).len()),
        (6, 14),
        "{html}"
    );
    assert!(before.starts_with("<summary>and 14 before</summary>"), "{before}");
    let oldest = elements(before, line)[13];
    let time = at(HOUR).strftime("%H:%M:%S</time> delete 1 node").to_string();
    assert!(oldest.contains(&time), "{oldest}");
    let few = drawn(&two_hours(commands(6)), "");
    assert_eq!(elements(&few, line).len(), 6, "{few}");
    assert!(!few.contains("<details"), "{few}");
}

/// A part of the past is another address, of which nothing needs a script.
#[test]
fn an_earlier_stretch_of_time_is_drawn_as_it_was() {
    let commands = vec![entry(HOUR, Some(HOUR + 60)), entry(2 * HOUR - 60, None)];
    let view = two_hours(commands);
    let now = drawn(&view, "");
    assert!(
        now.contains(r#"href="/?until=2026-01-01T01:30:00Z">earlier</a>"#),
        "{now}"
    );
    assert!(!now.contains("newest"), "it is the newest: {now}");
    let past = drawn(&view, "until=2026-01-01T01:30:00Z");
    for link in [
        r#"href="/?until=2026-01-01T01:00:00Z">earlier</a>"#,
        r#"href="/">later</a>"#,
        r#"href="/">newest</a>"#,
        r#"href="/?range=6h&amp;until=2026-01-01T01:30:00Z""#,
    ] {
        assert!(past.contains(link), "{link}: {past}");
    }
    let bars = elements(&past, r#"<rect class="bar "#);
    assert_eq!(bars.len(), 1, "the other one was not decided yet: {past}");
    assert!((number(bars[0], "x") - x(HOUR / 2)).abs() < 0.06, "{past}");
    // Of two hours an axis of six has two.
    let wide = drawn(&view, "range=6h");
    let bars = elements(&wide, r#"<rect class="bar "#);
    assert!((number(bars[0], "x") - 526.0).abs() < 6.0, "{wide}");
    assert!(!wide.contains("earlier"), "nothing is known of before: {wide}");
    // Commands are remembered by the cluster, prices only by who looked.
    let mut remembered = two_hours(vec![entry(-HOUR, Some(60 - HOUR))]);
    remembered.header.now = at(3 * HOUR);
    let unseen = drawn(&remembered, "until=2025-12-31T23:30:00Z");
    let words = "price unknown at the right, price unknown at the left; 1 command.";
    assert!(unseen.contains(words) && unseen.contains("<svg"), "{unseen}");
    let before = drawn(&view, "until=2025-01-01T00:00:00Z");
    assert!(before.contains("Nothing is remembered of this time."), "{before}");
    assert!(
        before.contains(">newest</a>") && !before.contains("<svg"),
        "{before}"
    );
}

/// A node of a type that is there for a while.
struct Machine {
    kind: usize,
    from: i64,
    until: i64,
}

/// The corners of a path in steps.
fn corners(path: &str) -> Vec<(f64, f64)> {
    let number = |text: &str| -> f64 { text.parse().expect("a number") };
    let mut steps = path.strip_prefix('M').expect("a path").split('H');
    let first = steps.next().and_then(|first| first.split_once(' '));
    let (x, y) = first.expect("its beginning");
    let steps = steps.map(|step| {
        let (x, y) = step.split_once('V').expect("a step");
        (number(x), number(y))
    });
    [(number(x), number(y))].into_iter().chain(steps).collect()
}

/// Nodes come and go at any second; what they have cost is what the curve has below it.
#[test]
fn the_area_under_the_curve_is_what_the_nodes_have_cost() {
    const LAST: i64 = 1800;
    let second = |number: usize| i64::try_from(number).expect("a second");
    let kinds = [("small", 2, 8), ("medium", 8, 32), ("large", 16, 64)]
        .map(|(name, cores, memory)| instance_type(name, cores, memory, &["a"]));
    let hourly = [0.11, 0.44, 0.88];
    let mut dice = Dice(1);
    let mut machines = vec![Machine {
        kind: 0,
        from: 0,
        until: LAST + 1,
    }];
    for _ in 0..24 {
        let kind = dice.below(3);
        let from = second(dice.below(1500));
        let until = from + 120 + second(dice.below(1500));
        machines.push(Machine { kind, from, until });
    }
    let (mut ledger, mut history, mut view) = (Ledger::default(), History::default(), None);
    for now in 0..=LAST {
        let is_other = machines.iter().any(|one| one.from == now || one.until == now);
        if !is_other && now % 5 != 0 {
            continue;
        }
        let mut state = ClusterState::default().with_pool(node_pool("default"), kinds.to_vec());
        for (index, one) in machines.iter().enumerate() {
            if (one.from..one.until).contains(&now) {
                let kind = &kinds[one.kind];
                state = state.with_node(node("default", &format!("n{index}"), kind, "a", "on-demand"));
            }
        }
        let world = World {
            state,
            now: at(now),
            ..World::default()
        };
        let judged = Judged::of(world, &Policy::default());
        view = Some(View::take(&judged, &mut ledger, &mut history, 1));
    }
    let html = drawn(&view.expect("a look"), "");
    let first = history.first().expect("a sample").duration_since(at(0)).as_secs();
    let labels = elements(&html, r#"text-anchor="end">$"#);
    let (top, _) = labels[2].split_once('<').expect("a label");
    let top: f64 = top.parse().expect("dollars");
    let (line, _) = elements(&html, r#"<path class="line" d=""#)[0]
        .split_once('"')
        .expect("a path");
    let dollars = |y: f64| top * (1.0 - (y - 16.0) / 96.0);
    let seconds = |width: f64| width / 948.0 * (LAST - first) as f64;
    let corners = corners(line);
    let steps = corners.windows(2);
    let drawn: f64 = steps
        .map(|pair| seconds(pair[1].0 - pair[0].0) * dollars(pair[0].1))
        .sum();
    let lived = |one: &Machine| (one.until.min(LAST) - one.from.max(first)).max(0) as f64;
    let paid: f64 = machines.iter().map(|one| hourly[one.kind] * lived(one)).sum();
    assert!(paid > 3600.0, "{paid}: nodes that cost nothing prove nothing");
    assert!(
        (drawn / paid - 1.0).abs() < 0.001,
        "${:.4} is not ${:.4}",
        drawn / 3600.0,
        paid / 3600.0
    );
}

/// A NodePool with a node.
fn with_pool(state: ClusterState, name: &str, budgets: Value) -> ClusterState {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut pool = node_pool(name);
    pool.spec.disruption.budgets = serde_json::from_value(budgets).expect("budgets");
    let built = node(name, &format!("{name}-1"), &kind, "a", "on-demand");
    state.with_pool(pool, vec![kind]).with_node(built)
}

fn look(state: &ClusterState, second: i64, history: &mut History) -> View {
    let world = World {
        state: state.clone(),
        now: at(second),
        ..World::default()
    };
    let judged = Judged::of(world, &Policy::default());
    View::take(&judged, &mut Ledger::default(), history, 1)
}

#[test]
fn what_budgets_allowed_nothing_in_lies_behind_the_curve() {
    let hours = json!([{"nodes": "10%"}, {"nodes": "0", "schedule": "0 9 * * *", "duration": "8h"}]);
    let state = with_pool(ClusterState::default(), "calm", hours);
    let state = with_pool(state, "open", json!([{"nodes": "100%"}]));
    let mut history = History::default();
    let views = [8, 9, 12, 17, 18].map(|hour| look(&state, hour * HOUR, &mut history));
    let view = views.last().expect("looks");
    let all = drawn(view, "range=24h");
    let one = drawn(view, "range=24h&pool=calm");
    for (html, class, words) in [
        (&all, "shut", "3 of 6 budgets allow nothing for some reason"),
        (
            &one,
            "shut whole",
            "budgets of calm allow nothing for empty, drifted, underutilized",
        ),
    ] {
        let (_, panel) = html.split_once(r#"role="img""#).expect("a drawing");
        let (drawing, _) = panel.split_once("</svg>").expect("its end");
        let bands = elements(drawing, &format!("<g class=\"{class}\">"));
        assert_eq!(bands.len(), 1, "{drawing}");
        // Ten hours, of which the second to the ninth are closed.
        let (x, width) = (number(bands[0], "x"), number(bands[0], "width"));
        assert_eq!((x, width), (146.8, 758.4), "{drawing}");
        let title = format!("<title>Thu 09:00 to Thu 17:00 UTC: {words}</title>");
        assert!(bands[0].starts_with(&title), "{drawing}");
        let line = format!("<li>Thu 09:00 to Thu 17:00 UTC: {words}</li>");
        assert_eq!(elements(html, &line).len(), 1, "{html}");
    }
    assert!(one.contains("budgets allowed nothing for 80 % of it"), "{one}");
    assert!(
        one.contains(r#"href="/?range=24h">of all NodePools</a>"#),
        "{one}"
    );
    assert!(
        !all.contains("of it"),
        "something was allowed all the time: {all}"
    );
    let open = drawn(view, "range=24h&pool=open");
    assert!(
        !open.contains(r#"class="shut"#) && !open.contains("<details"),
        "{open}"
    );
    assert!(
        open.contains("any of the budgets of open allowed nothing"),
        "{open}"
    );
}

/// However often budgets open and close, there are no more stretches than a drawing has room for.
#[test]
fn stretches_that_cannot_be_told_apart_are_drawn_as_one() {
    let often = json!([{"nodes": "0", "schedule": "*/10 * * * *", "duration": "5m"}]);
    let state = with_pool(ClusterState::default(), "calm", often);
    let mut history = History::default();
    look(&state, 0, &mut history);
    let days = 20 * 24 * HOUR;
    let views: Vec<View> = (0..40)
        .map(|number| look(&state, days + number * HOUR / 12, &mut history))
        .collect();
    let view = views.last().expect("looks");
    let count = |query: &str| {
        let html = drawn(view, query);
        let (drawing, _) = html.split_once("</svg>").expect("a drawing");
        elements(drawing, r#"<g class="shut"#).len()
    };
    let all = drawn(view, "range=30d");
    assert!(all.contains("budgets allow nothing now and then"), "{all}");
    assert!((2..=16).contains(&count("range=30d")), "{}", count("range=30d"));
    assert_eq!(count("range=6h"), 20);
    // In words, too.
    let hours = drawn(view, "range=6h");
    let (_, words) = hours.split_once(r#"<details id="closures">"#).expect("words");
    let (words, _) = words.split_once("</details>").expect("their end");
    assert_eq!(elements(words, "<li>").len(), 20, "{words}");
    // Those that are one begin with the first of them.
    let minutes = |text: &str| {
        let (_, time) = text.rsplit_once(' ').expect("a day");
        let (hours, minutes) = time.split_once(':').expect("a time");
        60 * hours.parse::<i64>().expect("hours") + minutes.parse::<i64>().expect("minutes")
    };
    let lines = elements(&all, "<li>").into_iter();
    let together = lines.filter_map(|line| line.split_once(" UTC: budgets allow nothing now and then</li>"));
    let together: Vec<&str> = together.map(|(when, _)| when).collect();
    assert!(!together.is_empty(), "{all}");
    for when in together {
        let (began, ended) = when.split_once(" to ").expect("both ends");
        assert!(minutes(ended) - minutes(began) >= 15, "{when}");
    }
}
