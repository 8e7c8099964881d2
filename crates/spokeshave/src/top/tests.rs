//! Frames as they were, keys, and terminals that are too small.

use std::cell::Cell;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use spokeshave_api::{Budget, DisruptionPolicy};
use spokeshave_example::{epoch, instance_type, node, node_pool};
use spokeshave_model::ClusterState;
use spokeshave_plan::Policy;
use spokeshave_plan::in_flight::{Room, stand_in};
use spokeshave_provider_kwok::Catalog;
use spokeshave_view::{History, Judged, Ledger, Missing, View, World};
use spokeshave_web::Shown;

use super::frame::{Asked, Pane, Size, Sort, draw};
use super::keys::{Then, press};
use super::line::{Tone, piece, plain};
use super::listing::Listing;
use super::screen::waiting;
use super::without::{Without, without};
use crate::plan::dump;
use crate::plan::world::{Origin, World as Read};
use crate::text::count;

const NOW: &str = "2026-03-02T12:00:00Z";

pub(super) fn shown_of(text: &str) -> Shown {
    shown_with(text, |_| ())
}

fn shown_with(text: &str, change: impl FnOnce(&mut World)) -> Shown {
    let now = NOW.parse().expect("an instant");
    let dump = dump::read("test", text.as_bytes()).expect("a dump");
    let catalog = Catalog::default();
    let read = Read::new(
        dump,
        Origin::Files { own_catalog: false },
        catalog.instance_types(),
        None,
        Arc::default(),
        now,
    );
    let mut world = World {
        state: read.state,
        now,
        ..World::default()
    };
    change(&mut world);
    look(world)
}

/// What is shown of a world.
pub(super) fn look(world: World) -> Shown {
    let judged = Arc::new(Judged::of(world, &Policy::default()));
    let view = View::take(&judged, &mut Ledger::default(), &mut History::default(), 1);
    let view = Arc::new(view);
    Shown { view, judged }
}

pub(super) const STUCK: &str = include_str!("../../tests/explain/stuck.yaml");

pub(super) fn stuck() -> Shown {
    shown_of(STUCK)
}

/// The answer of a what-if that was worked out.
fn answered(shown: &Shown, node: &str) -> Without {
    Without {
        of: (shown.view.revision, node.to_owned()),
        lines: without(shown, node),
    }
}

/// A screen with a pane.
fn screen(shown: &Shown, pane: Pane) -> String {
    let asked = Asked {
        pane,
        chosen: Some("busy".to_owned()),
        without: Some(answered(shown, "busy")),
        ..Asked::default()
    };
    let size = Size {
        width: 120,
        height: 40,
    };
    plain(&draw(shown, &asked, size, None))
}

/// Compares with a file; `BLESS=1` writes it.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/top")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        std::fs::write(&path, text).expect("it is written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}; BLESS=1 writes it anew");
}

#[test]
fn frames_of_three_sizes_are_as_they_were() {
    let shown = stuck();
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        for (name, pane) in [
            ("nodes", Pane::None),
            ("explain", Pane::Explain),
            ("budgets", Pane::Budgets),
            ("pending", Pane::Pending),
        ] {
            let asked = Asked {
                chosen: Some("guarded".to_owned()),
                pane,
                ..Asked::default()
            };
            let lines = draw(&shown, &asked, Size { width, height }, None);
            assert_eq!(lines.len(), height);
            let text = plain(&lines);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            golden(&format!("{name}-{width}x{height}.txt"), &text);
        }
    }
}

#[test]
fn a_table_for_a_pipe_has_every_node_and_no_frame() {
    let shown = stuck();
    let asked = Asked {
        is_ascii: true,
        sort: Sort::Saves,
        ..Asked::default()
    };
    let size = Size {
        width: usize::MAX,
        height: usize::MAX,
    };
    let text = plain(&draw(&shown, &asked, size, None));
    assert!(text.is_ascii(), "{text}");
    assert_eq!(text.lines().count(), 2 + shown.view.nodes.0.len(), "{text}");
    golden("once-wide.txt", &text);
}

/// What knows no letters beyond ASCII gets none: neither before there is anything to see, nor on any screen.
#[test]
fn a_terminal_that_knows_ascii_only_gets_nothing_else() {
    let shown = stuck();
    for pane in [
        Pane::None,
        Pane::Explain,
        Pane::Without,
        Pane::Pools,
        Pane::Pending,
        Pane::Budgets,
        Pane::Commands,
        Pane::Help,
    ] {
        for is_typing in [false, true] {
            let asked = Asked {
                pane,
                is_typing,
                is_ascii: true,
                filter: "guard".to_owned(),
                chosen: Some("guarded".to_owned()),
                // Of an earlier view: it is worked out anew.
                without: is_typing.then(|| Without {
                    of: (0, "guarded".to_owned()),
                    ..answered(&shown, "guarded")
                }),
                ..Asked::default()
            };
            let size = Size {
                width: 120,
                height: 40,
            };
            let text = plain(&draw(&shown, &asked, size, Some("refused")));
            assert!(text.is_ascii() && text.contains("guard"), "{pane:?}: {text}");
        }
    }
    for trouble in [None, Some("refused")] {
        let text = plain(&waiting("shop.yaml", trouble, true));
        assert!(text.is_ascii() && text.contains("shop.yaml"), "{text}");
    }
}

#[test]
fn narrow_and_empty_terminals_are_no_trouble() {
    let (shown, empty) = (stuck(), shown_of("kind: List\napiVersion: v1\nitems: []\n"));
    for pane in [
        Pane::None,
        Pane::Explain,
        Pane::Without,
        Pane::Pools,
        Pane::Commands,
        Pane::Help,
    ] {
        for (width, height) in [(1, 1), (2, 3), (10, 5), (40, 4), (1000, 2)] {
            let asked = Asked {
                pane,
                chosen: Some("guarded".to_owned()),
                first: Cell::new(99),
                pane_first: Cell::new(99),
                ..Asked::default()
            };
            for one in [&shown, &empty] {
                let lines = draw(one, &asked, Size { width, height }, Some("why"));
                assert_eq!(lines.len(), height);
                let is_within = |line: &str| line.chars().count() <= width;
                assert!(plain(&lines).lines().all(is_within), "{pane:?} at {width}");
            }
        }
    }
}

/// A key is pressed, and no other with it.
pub(super) fn hear(asked: &mut Asked, code: KeyCode, shown: &Shown) -> Then {
    press(asked, KeyEvent::new(code, KeyModifiers::NONE), shown)
}

#[test]
fn keys_move_filter_sort_and_leave() {
    let shown = stuck();
    let view = &shown.view;
    let mut asked = Asked::default();
    let type_in = |asked: &mut Asked, code| hear(asked, code, &shown);
    let names: Vec<String> = view.nodes.0.iter().map(|row| row.name.clone()).collect();
    type_in(&mut asked, KeyCode::Char('j'));
    assert_eq!(asked.chosen.as_ref(), names.first());
    for _ in 0..names.len() + 3 {
        type_in(&mut asked, KeyCode::Down);
    }
    assert_eq!(asked.chosen.as_ref(), names.last());
    type_in(&mut asked, KeyCode::Home);
    assert_eq!(asked.chosen.as_ref(), names.first());
    type_in(&mut asked, KeyCode::Enter);
    assert_eq!(asked.pane, Pane::Explain);
    type_in(&mut asked, KeyCode::Char('w'));
    assert_eq!(asked.pane, Pane::Without);
    type_in(&mut asked, KeyCode::Esc);
    type_in(&mut asked, KeyCode::Char('/'));
    for letter in "GUARDED".chars() {
        type_in(&mut asked, KeyCode::Char(letter));
    }
    assert_eq!(
        type_in(&mut asked, KeyCode::Char('q')),
        Then::Draw,
        "a letter while one types"
    );
    type_in(&mut asked, KeyCode::Backspace);
    type_in(&mut asked, KeyCode::Enter);
    assert_eq!(
        (asked.pane, asked.is_typing, Listing::of(&shown, &asked).len()),
        (Pane::None, false, 1)
    );
    type_in(&mut asked, KeyCode::Char('o'));
    assert_eq!(asked.sort, Sort::Pool);
    assert_eq!(type_in(&mut asked, KeyCode::Char('q')), Then::Quit);
    let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut asked, stop, &shown), Then::Quit);
}

/// Forty nodes, and some kinds that could not be read, each of which takes a line.
pub(super) fn crowd(missing: &[&str]) -> Shown {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut state = ClusterState::default().with_pool(node_pool("default"), vec![kind.clone()]);
    for index in 0..40 {
        state = state.with_node(node("default", &format!("web-{index:02}"), &kind, "a", "spot"));
    }
    shown_with("kind: List\napiVersion: v1\nitems: []\n", |world| {
        world.state = state;
        world.missing.extend(missing.iter().map(|resource| Missing {
            resource: (*resource).to_owned(),
            message: "forbidden".to_owned(),
        }));
    })
}

/// Two empty nodes of a NodePool that lets fifty go.
fn two(policies: Vec<Arc<DisruptionPolicy>>) -> Shown {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut pool = node_pool("default");
    pool.spec.disruption.budgets = Some(vec![Budget::always("50")]);
    let mut state = ClusterState::default().with_pool(pool, vec![kind.clone()]);
    for name in ["web-1", "web-2"] {
        state = state.with_node(node("default", name, &kind, "a", "on-demand"));
    }
    state.disruption_policies = policies;
    shown_with("kind: List\napiVersion: v1\nitems: []\n", |world| {
        world.state = state;
        world.now = epoch() + jiff::SignedDuration::from_hours(2);
    })
}

/// The rule is the answer, not the NodePool that it selects.
#[test]
fn invariant_4_a_node_that_a_freeze_keeps_names_the_freeze() {
    let spec = serde_json::json!({"freeze": {"reason": "incident 42"}});
    let spec = serde_json::from_value(spec).expect("a spec");
    let text = screen(
        &two(vec![Arc::new(DisruptionPolicy::new("freeze", spec))]),
        Pane::None,
    );
    assert!(
        text.contains("keep: DisruptionPolicy freeze (spec.freeze)"),
        "{text}"
    );
}

#[test]
fn d_195_of_two_nodes_no_fifty_may_go() {
    let text = screen(&two(Vec::new()), Pane::Budgets);
    assert!(text.contains("default Empty: 2 of 2 left, 0 under way"), "{text}");
}

/// A share of no nodes is none, and closes nothing; what is closed with a node as well stays so.
#[test]
fn d_195_a_nodepool_without_nodes_is_not_told_as_closed() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut shut = node_pool("shut");
    shut.spec.disruption.budgets = Some(vec![Budget::always("0")]);
    let state = ClusterState::default()
        .with_pool(node_pool("bare"), vec![kind.clone()])
        .with_pool(shut, vec![kind]);
    let shown = shown_with("kind: List\napiVersion: v1\nitems: []\n", |world| {
        world.state = state;
    });
    let text = screen(&shown, Pane::Budgets);
    assert!(text.contains("bare Empty: no node to disrupt"), "{text}");
    assert!(text.contains("shut Empty: 0 of 0 left, 0 under way"), "{text}");
}

/// What it saves to take away a node whose price nobody knows is not nothing.
#[test]
fn z_024_savings_are_told_as_lower_bounds_while_a_node_without_a_price_may_go() {
    let known = instance_type("small", 2, 8, &["a"]);
    let odd = instance_type("odd", 2, 8, &["a"]);
    for (kinds, told) in [
        (&[&known, &odd][..], "could save >= $"),
        (&[&odd][..], "could save ?"),
        (&[&known][..], "could save $"),
    ] {
        let mut pool = node_pool("default");
        pool.spec.disruption.budgets = Some(vec![Budget::always("50")]);
        let mut state = ClusterState::default().with_pool(pool, vec![known.clone()]);
        for kind in kinds {
            state = state.with_node(node(
                "default",
                &format!("on-{}", kind.name),
                kind,
                "a",
                "on-demand",
            ));
        }
        let shown = shown_with("kind: List\napiVersion: v1\nitems: []\n", |world| {
            world.state = state;
            world.now = epoch() + jiff::SignedDuration::from_hours(2);
        });
        let text = screen(&shown, Pane::None);
        assert!(text.contains(told), "{told}: {text}");
    }
}

/// Whatever is below or above the nodes, the chosen one is among those on the screen, and PgDn goes by as many as are there.
#[test]
fn the_chosen_node_stays_on_the_screen() {
    let missing = ["csinodes.storage.k8s.io", "jobs.batch", "namespaces"];
    let panes = [
        Pane::None,
        Pane::Explain,
        Pane::Without,
        Pane::Pools,
        Pane::Pending,
        Pane::Budgets,
        Pane::Commands,
        Pane::Help,
    ];
    let ways = [
        (KeyCode::Down, 45),
        (KeyCode::Up, 45),
        (KeyCode::End, 1),
        (KeyCode::Home, 1),
    ];
    for shown in [crowd(&[]), crowd(&missing)] {
        for (pane, height) in panes.into_iter().flat_map(|pane| [(pane, 14), (pane, 40)]) {
            let mut asked = Asked {
                pane,
                ..Asked::default()
            };
            // The nodes on the screen, and which of them is the chosen one.
            let screen = |asked: &Asked| {
                let lines = draw(&shown, asked, Size { width: 140, height }, Some("why"));
                let nodes = lines
                    .iter()
                    .filter_map(|line| line.first())
                    .filter(|piece| matches!(piece.tone, Tone::Plain | Tone::Chosen))
                    .filter(|piece| piece.text.starts_with("web-"));
                let nodes: Vec<(String, Tone)> = nodes
                    .map(|piece| (piece.text[..6].to_owned(), piece.tone))
                    .collect();
                let chosen = nodes.iter().find(|(_, tone)| *tone == Tone::Chosen);
                (nodes.len(), chosen.map(|(name, _)| name.clone()))
            };
            let press = |asked: &mut Asked, code| {
                hear(asked, code, &shown);
                let (nodes, chosen) = screen(asked);
                assert_eq!(chosen, asked.chosen, "{pane:?}, {height} lines");
                nodes
            };
            for (code, times) in ways {
                for _ in 0..times {
                    press(&mut asked, code);
                }
            }
            assert_eq!(asked.chosen.as_deref(), Some("web-00"));
            let nodes = screen(&asked).0;
            press(&mut asked, KeyCode::PageDown);
            let next = format!("web-{nodes:02}");
            assert_eq!(asked.chosen, Some(next), "{pane:?}, {height} lines");
        }
    }
}

#[test]
fn what_is_without_is_worked_out_and_nothing_is_changed() {
    let shown = stuck();
    let asked = Asked {
        chosen: Some("guarded".to_owned()),
        pane: Pane::Without,
        without: Some(answered(&shown, "guarded")),
        ..Asked::default()
    };
    let text = plain(&draw(
        &shown,
        &asked,
        Size {
            width: 120,
            height: 40,
        },
        None,
    ));
    assert!(
        text.contains("guarded without ") || text.contains("no change of an object removes"),
        "{text}"
    );
    golden("without-120x40.txt", &text);
}

/// Nothing is decided where it is drawn: that it is being worked out is told, and an answer about an earlier view stays until there is one about this.
#[test]
fn a_what_if_is_drawn_once_it_has_been_worked_out() {
    let shown = stuck();
    let now = shown.view.revision;
    let planted = |revision: u64, node: &str| Without {
        of: (revision, node.to_owned()),
        lines: vec![("planted".to_owned(), Tone::Plain)],
    };
    for (without, is_told, is_awaited) in [
        (None, false, true),
        (Some(planted(now, "another")), false, true),
        (Some(planted(now - 1, "guarded")), true, true),
        (Some(planted(now, "guarded")), true, false),
    ] {
        let asked = Asked {
            pane: Pane::Without,
            chosen: Some("guarded".to_owned()),
            without,
            ..Asked::default()
        };
        assert_eq!(asked.wants_without(), Some("guarded"));
        let size = Size {
            width: 120,
            height: 40,
        };
        let text = plain(&draw(&shown, &asked, size, None));
        assert_eq!(text.contains("planted"), is_told, "{text}");
        assert_eq!(text.contains("working "), is_awaited, "{text}");
    }
}

/// They go without a command, whatever keeps them from one, also before they are ready.
#[test]
fn d_357_nodes_that_a_fixed_number_has_too_many_of_go() {
    let kind = instance_type("small", 2, 8, &["a"]);
    let mut pool = node_pool("default");
    pool.spec.replicas = Some(1);
    for (missing, says) in [
        ("none", "goes without a command: NodePool default"),
        (
            "karpenter.sh/initialized",
            "coming; goes without a command: NodePool default",
        ),
    ] {
        let mut state = ClusterState::default().with_pool(pool.clone(), vec![kind.clone()]);
        for name in ["web-1", "web-2"] {
            let (mut joined, claim) = node("default", name, &kind, "a", "on-demand");
            let labels = joined.metadata.labels.as_mut().expect("labels");
            labels.remove(missing);
            state = state.with_node((joined, claim));
        }
        let shown = shown_with("kind: List\napiVersion: v1\nitems: []\n", |world| {
            world.state = state
        });
        let text = screen(&shown, Pane::None);
        let told: Vec<&str> = text.lines().filter(|line| line.contains(says)).collect();
        assert!(told.len() == 1 && told[0].starts_with("web-1 "), "{text}");
    }
}

/// A user who may not list NodeClaims is told neither that nobody manages the nodes nor that budgets allow nothing.
#[test]
fn what_could_not_be_read_is_neither_zero_nor_a_fact() {
    let shown = shown_with(STUCK, |world| {
        world.state.node_claims.clear();
        world.missing.push(Missing {
            resource: "nodeclaims.karpenter.sh".to_owned(),
            message: "forbidden".to_owned(),
        });
    });
    let text = screen(&shown, Pane::Budgets);
    for told in [
        "$?/h",
        "could save ?",
        "default: 6 nodes $?/h",
        "  ? unknown",
        "? what budgets allow",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    for wrong in ["not managed", " of 0", "$0.000"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    let text = screen(&shown, Pane::Without);
    assert!(text.contains("? what keeps it depends"), "{text}");
    let shown = shown_with(STUCK, |world| {
        world.state.nodes.clear();
        world.missing.push(Missing {
            resource: "nodes".to_owned(),
            message: "forbidden".to_owned(),
        });
    });
    let text = screen(&shown, Pane::Budgets);
    assert!(
        !text.contains(" coming"),
        "NodeClaims whose Nodes nobody sees: {text}"
    );
}

/// What nodes cost that are not managed nobody knows: they do not cost nothing.
#[test]
fn a_cluster_without_a_managed_node_has_no_price() {
    let shown = shown_with(STUCK, |world| world.state.node_claims.clear());
    let text = screen(&shown, Pane::None);
    assert!(text.starts_with("no managed node  "), "{text}");
    assert!(!text.contains("$0.000"), "{text}");
}

#[test]
fn z_024_nodes_of_unknown_prices_do_not_cost_nothing() {
    let shown = shown_of(&STUCK.replace("c-4x-amd64-linux", "c-4y-amd64-linux"));
    let text = screen(&shown, Pane::Pools);
    assert!(text.starts_with("price unknown  7 nodes"), "{text}");
    assert!(text.contains("full: 1 node, price unknown, cpu 12 %"), "{text}");
    assert!(text.contains("full: 1 node price unknown cpu 12 %"), "{text}");
    assert!(!text.contains("$0"), "{text}");
}

#[test]
fn capability_21_the_nodes_of_a_pool_cost_what_is_launched() {
    let kind = instance_type("late", 2, 8, &["a"]);
    let (_, mut claim) = node("full", "late", &kind, "a", "spot");
    claim.status = None;
    let claim = stand_in(&claim, std::slice::from_ref(&kind), Room::Taken);
    let coming = shown_with(STUCK, |world| world.state.node_claims.push(Arc::new(claim)));
    let price = |shown: &Shown, nodes: usize| {
        let text = screen(shown, Pane::Pools);
        let line = text.split_once(&format!("full: {}, ", count(nodes, "node")));
        let (_, rest) = line.unwrap_or_else(|| panic!("{text}"));
        rest.split_once(", cpu").expect("a share").0.to_owned()
    };
    assert_eq!(price(&coming, 2), price(&stuck(), 1));
}

/// A pod that the scheduler has not looked at has no node, although nobody plans for it.
#[test]
fn d_007_a_pod_that_no_one_plans_for_has_no_node() {
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: new, namespace: shop, uid: new}\n\
               spec: {containers: [{name: main, image: main}]}\nstatus: {phase: Pending}\n";
    let shown = shown_of(&format!("{STUCK}{pod}"));
    let text = screen(&shown, Pane::Pending);
    assert!(text.contains(" 1 not planned for"), "{text}");
    assert!(text.contains("1 x Pod shop/new: no node is planned"), "{text}");
}

/// Objects may say anything; a terminal is told letters only.
#[test]
fn control_characters_of_objects_do_not_reach_the_terminal() {
    let piece = piece("a\u{1b}[2Jb\nc", Tone::Plain);
    assert_eq!(piece.text, r"a\u{1b}[2Jb c");
}
