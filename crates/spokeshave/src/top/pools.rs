//! Sums by NodePool, as the titles of the page's groups have them: in the head, and in a pane. Pure.

use std::cmp::Reverse;

use spokeshave_view::{NodeRow, Total, View};

use super::frame::known_sum;
use super::line::{Line, Tone, folded, piece};
use crate::text::count;

#[cfg(test)]
thread_local! {
    /// How often this thread has sorted NodePools.
    static SORTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// NodePools that the head of a screen tells at most; the pane tells all.
const MOST: usize = 8;

/// The sums in the order in which the head tells them: dearest first.
pub(super) fn dearest(totals: &[(String, Total)]) -> Vec<(String, Total)> {
    #[cfg(test)]
    SORTED.set(SORTED.get() + 1);
    let mut dearest = totals.to_vec();
    dearest.sort_by_key(|(_, total)| Reverse(total.price));
    dearest
}

/// `6 nodes, $0.652/h, cpu 7 %, mem 2 %`.
fn words(view: &View, total: &Total, separator: &str) -> String {
    let parts = [
        count(total.nodes, "node"),
        known_sum(view, total.price, total.without_price),
        format!("cpu {} %", total.cpu.percent()),
        format!("mem {} %", total.memory.percent()),
    ];
    parts.join(separator)
}

/// The sums behind what the first line says of the cluster, [`dearest`] first: as many as take one line more at most, and all where lines have no end; the others
/// are counted. No figure is cut: a part of one is another one. Where there is one NodePool only, its sums are those of the cluster.
pub(super) fn behind(first: Line, view: &View, dearest: &[(String, Total)], width: usize) -> Vec<Line> {
    let alone = folded(first.clone(), width);
    if dearest.len() < 2 {
        return alone;
    }
    let most = match width {
        usize::MAX => dearest.len(),
        _ => dearest.len().min(MOST),
    };
    for told in (0..=most).rev() {
        let mut line = first.clone();
        for (title, total) in &dearest[..told] {
            let text = format!("  {title}: {}", words(view, total, " "));
            line.push(piece(text, Tone::Plain));
        }
        line.push(piece(counted(dearest, told), Tone::Dim));
        let mut added = line[first.len()..].iter();
        let is_whole = added.all(|one| one.text.trim_start().chars().count() <= width);
        let lines = folded(line, width);
        if is_whole && lines.len() <= alone.len() + 1 {
            return lines;
        }
    }
    alone
}

/// What is left after those that are `told`: `and 2 other NodePools and 4 nodes of no NodePool`. Nodes without a NodePool do not count as one.
fn counted(dearest: &[(String, Total)], told: usize) -> String {
    let others = &dearest[told..];
    let pools = others.iter().filter(|(title, _)| title != NodeRow::NO_POOL);
    let (noun, and) = match told {
        0 => ("NodePool", ""),
        _ => ("other NodePool", "and "),
    };
    let pools = match pools.count() {
        0 => None,
        pools => Some(count(pools, noun)),
    };
    let without = others.iter().find(|(title, _)| title == NodeRow::NO_POOL);
    let without = without.map(|(title, total)| format!("{} of {title}", count(total.nodes, "node")));
    let parts: Vec<String> = pools.into_iter().chain(without).collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("  {and}{}", parts.join(" and ")),
    }
}

/// A NodePool in the pane.
pub(super) fn told(view: &View, (title, total): &(String, Total)) -> (String, Tone) {
    let text = format!("{title}: {}", words(view, total, ", "));
    (text, Tone::Plain)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spokeshave_model::Price;
    use spokeshave_web::Shown;

    use super::*;
    use crate::top::frame::{Asked, Size, draw};
    use crate::top::line::plain;
    use crate::top::tests::stuck;

    /// So many NodePools, of which the last one costs most.
    fn pools(number: i64) -> Vec<(String, Total)> {
        let pool = |index: i64| {
            let total = Total {
                nodes: 1,
                price: Price(index * 1_000_000_000),
                ..Total::default()
            };
            (format!("pool-{index:02}"), total)
        };
        (1..=number).map(pool).collect()
    }

    fn told(number: i64, width: usize) -> String {
        let first = vec![piece("the cluster", Tone::Bold)];
        plain(&behind(first, &stuck().view, &dearest(&pools(number)), width))
    }

    #[test]
    fn nodepools_are_sorted_once_for_a_view() {
        const SIZE: Size = Size {
            width: 100,
            height: 30,
        };
        let asked = Asked::default();
        let sorts = |shown: &Shown| {
            let before = SORTED.get();
            let text = plain(&draw(shown, &asked, SIZE, None));
            assert!(text.contains("default: 6 nodes"), "{text}");
            SORTED.get() - before
        };
        let shown = stuck();
        assert_eq!([sorts(&shown), sorts(&shown), sorts(&shown)], [1, 0, 0]);
        let mut next = shown.clone();
        Arc::make_mut(&mut next.view).revision += 1;
        assert_eq!([sorts(&next), sorts(&next)], [1, 0]);
    }

    #[test]
    fn the_head_tells_the_dearest_nodepools_in_one_line_more() {
        assert_eq!(told(1, 80), "the cluster\n", "it is the cluster");
        assert_eq!(
            told(2, 200),
            "the cluster  pool-02: 1 node $2.000/h cpu 0 % mem 0 %  pool-01: 1 node $1.000/h cpu 0 % mem 0 %\n"
        );
        assert_eq!(
            told(9, 80),
            "the cluster  pool-09: 1 node $9.000/h cpu 0 % mem 0 %\n\
             pool-08: 1 node $8.000/h cpu 0 % mem 0 %  and 7 other NodePools\n"
        );
        assert_eq!(told(9, 40), "the cluster  9 NodePools\n");
        assert_eq!(told(9, 5), "the c\n");
        for width in [1, 10, 40, 120, 1000] {
            let text = told(50, width);
            assert!(text.lines().count() <= 2, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
        // The name of a cheaper one is too long for its figures to have room.
        let mut two = pools(2);
        two[0].0 = "x".repeat(60);
        let first = vec![piece("the cluster", Tone::Bold)];
        assert_eq!(
            plain(&behind(first, &stuck().view, &dearest(&two), 60)),
            "the cluster  pool-02: 1 node $2.000/h cpu 0 % mem 0 %\nand 1 other NodePool\n"
        );
        // Nodes without a NodePool are no other NodePool.
        let mut three = pools(3);
        NodeRow::NO_POOL.clone_into(&mut three[0].0);
        three[0].1.nodes = 4;
        for (width, told) in [
            (
                80,
                "the cluster  pool-03: 1 node $3.000/h cpu 0 % mem 0 %\n\
                 pool-02: 1 node $2.000/h cpu 0 % mem 0 %  and 4 nodes of no NodePool\n",
            ),
            (
                60,
                "the cluster  pool-03: 1 node $3.000/h cpu 0 % mem 0 %\n\
                 and 1 other NodePool and 4 nodes of no NodePool\n",
            ),
            (40, "the cluster\n2 NodePools and 4 nodes of no NodePool\n"),
        ] {
            let first = vec![piece("the cluster", Tone::Bold)];
            let lines = behind(first, &stuck().view, &dearest(&three), width);
            assert_eq!(plain(&lines), told, "{width}");
        }
        // In a pipe nothing is left out, and lines stay where they were.
        let whole = told(50, usize::MAX);
        assert_eq!((whole.lines().count(), whole.matches(" node ").count()), (1, 50));
    }
}
