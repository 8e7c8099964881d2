//! Topology rules of pods: what they count, and how many pods that are, by domain.
//!
//! Rules that say the same are one, whoever has them: a workload whose template changes every minute brings its spread once, not with every version. Owns no
//! pods and no nodes, and decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rustc_hash::FxHashMap;
use spokeshave_model::constraints::{Constraints, PodTerm, Spread};
use spokeshave_model::selector::Selector;

/// What a rule says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Terms {
    /// Position in `Rules::keys`.
    pub(super) key: usize,
    selector: Selector,
    /// Whose pods are counted; for spreads the namespace of the pod.
    namespaces: BTreeSet<String>,
    pub(super) max_skew: i64,
    pub(super) min_domains: usize,
    pub(super) required: bool,
    /// The pod itself is counted by it.
    pub(super) is_own: bool,
    /// It is a spread: pods that terminate do not count.
    pub(super) is_spread: bool,
}

impl Terms {
    fn select(&self, constraints: &Constraints) -> bool {
        self.namespaces.contains(&constraints.namespace) && self.selector.matches(&constraints.labels)
    }
}

/// One topology rule, of every shape of pods that has it.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) terms: Terms,
    /// The rules that have to select a pod, each of them, for this one to count it: all terms of an affinity, and of anything else this one alone.
    with: Range<usize>,
    /// Pods that it counts, by domain.
    pub(super) counts: FxHashMap<u32, i64>,
    /// Pods that have it as an anti-affinity, by domain.
    pub(super) holders: FxHashMap<u32, i64>,
}

/// All rules.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) all: Vec<Rule>,
    /// Keys of node labels that name domains.
    pub(super) keys: Vec<String>,
    /// Where rules are that count together.
    known: BTreeMap<Vec<Terms>, Range<usize>>,
}

impl Rules {
    /// The rule of a spread of pods like these.
    pub(super) fn of_spread(&mut self, constraints: &Constraints, spread: &Spread) -> usize {
        let min_domains = spread.min_domains.and_then(|count| usize::try_from(count).ok());
        let mut terms = Terms {
            key: self.key(&spread.topology_key),
            max_skew: i64::from(spread.max_skew),
            min_domains: min_domains.unwrap_or(1),
            required: spread.required,
            is_own: false,
            is_spread: true,
            selector: spread.selector.clone(),
            namespaces: BTreeSet::from([constraints.namespace.clone()]),
        };
        terms.is_own = terms.select(constraints);
        self.together(vec![terms]).start
    }

    /// The rule of a term of an anti-affinity of pods like these.
    pub(super) fn of_anti_affinity(&mut self, constraints: &Constraints, term: &PodTerm) -> usize {
        let terms = self.of_term(constraints, term);
        self.together(vec![terms]).start
    }

    /// The rules of an affinity of pods like these: a pod counts where it is what all of its terms speak of.
    pub(super) fn of_affinity(&mut self, constraints: &Constraints, terms: &[PodTerm]) -> Range<usize> {
        let terms = terms.iter().map(|term| self.of_term(constraints, term)).collect();
        self.together(terms)
    }

    fn of_term(&mut self, constraints: &Constraints, term: &PodTerm) -> Terms {
        let mut terms = Terms {
            key: self.key(&term.topology_key),
            max_skew: 0,
            min_domains: 1,
            required: true,
            is_own: false,
            is_spread: false,
            selector: term.selector.clone(),
            namespaces: term.namespaces.clone(),
        };
        terms.is_own = terms.select(constraints);
        terms
    }

    fn together(&mut self, terms: Vec<Terms>) -> Range<usize> {
        if let Some(known) = self.known.get(&terms) {
            return known.clone();
        }
        let with = self.all.len()..self.all.len() + terms.len();
        self.all.extend(terms.iter().cloned().map(|terms| Rule {
            terms,
            with: with.clone(),
            counts: FxHashMap::default(),
            holders: FxHashMap::default(),
        }));
        self.known.insert(terms, with.clone());
        with
    }

    /// The rules that count pods like these.
    pub(super) fn that_count(&self, constraints: &Constraints) -> Vec<usize> {
        let counts = |rule: &Rule| {
            let mut with = self.all[rule.with.clone()].iter();
            with.all(|rule| rule.terms.select(constraints))
        };
        let all = self.all.iter().enumerate();
        all.filter(|(_, rule)| counts(rule))
            .map(|(position, _)| position)
            .collect()
    }

    fn key(&mut self, key: &str) -> usize {
        self.keys
            .iter()
            .position(|known| known == key)
            .unwrap_or_else(|| {
                self.keys.push(key.to_owned());
                self.keys.len() - 1
            })
    }
}
