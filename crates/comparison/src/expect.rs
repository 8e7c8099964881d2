//! `expect`: what a scenario demands of its results, such as `patient.cost <= 1.02 * now.cost`.
//!
//! Owns the little language and its three answers: holds, contradicted, not shown. An answer needs an interval; a mean alone proves nothing.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::metric::{METRICS, Metric};
use crate::raw::{Endless, Table};
use crate::statistics::{Interval, interval, mean};
use crate::work::Work;

/// Why an expression cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expect {expression:?}, column {column}: {message}")]
pub struct ExpectError {
    /// The expression as it was written.
    pub expression: String,
    /// Column of the mistake in it, in characters, from 1.
    pub column: usize,
    /// What is wrong and what was expected.
    pub message: String,
}

/// A comparison of two sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// As it was written.
    pub expression: String,
    left: Side,
    relation: Relation,
    right: Side,
}

/// `factor * policy.metric`, or a number alone.
#[derive(Debug, Clone, PartialEq)]
struct Side {
    factor: f64,
    of: Option<(String, &'static str)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// What became of an expectation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    /// As it was written.
    pub expression: String,
    /// The answer.
    pub answer: Answer,
    /// Mean of left − right over the seeds, in the metric's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// Interval of left − right, at the level of the comparisons with the baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Number of seeds that all policies of the expression have.
    pub pairs: usize,
    /// Why the interval does not answer it, where it would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The three answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The whole interval satisfies it.
    Holds,
    /// The whole interval says the opposite.
    Contradicted,
    /// The interval leaves it open, there is none, or it is about more and about less work.
    NotShown,
}

impl Answer {
    /// The answer in words.
    pub fn words(self) -> &'static str {
        match self {
            Answer::Holds => "holds",
            Answer::Contradicted => "contradicted",
            Answer::NotShown => "not shown",
        }
    }
}

impl Expectation {
    /// Reads an expression: `SIDE < SIDE`, with `<`, `<=`, `>` or `>=`; a side is a number, `POLICY.METRIC`, or both with `*` between them.
    ///
    /// # Errors
    /// It is not such an expression, or names a policy or metric that does not exist.
    pub fn parse(expression: &str, policies: &[&str]) -> Result<Self, ExpectError> {
        let mut reader = Reader::of(expression, policies);
        let left = reader.side()?;
        let relation = reader.relation()?;
        let right = reader.side()?;
        if let Some((token, column)) = reader.next() {
            return Err(reader.wrong(column, format!("{token:?} is left over after the comparison")));
        }
        if left.of.is_none() && right.of.is_none() {
            return Err(reader.wrong(
                1,
                "two numbers: one side must be POLICY.METRIC, such as now.cost".into(),
            ));
        }
        Ok(Self {
            expression: expression.to_owned(),
            left,
            relation,
            right,
        })
    }

    /// Answers it from the completed runs.
    pub(crate) fn judge(&self, table: &Table<'_>, baseline: &str, misses: f64) -> Expected {
        let (left, right) = (self.left.values(table), self.right.values(table));
        let differences = self.differences(left.as_ref(), right.as_ref());
        let seen = interval(&differences, misses);
        // Toward which side the difference has to lie.
        let (wanted_low, strict) = match self.relation {
            Relation::Less => (true, true),
            Relation::AtMost => (true, false),
            Relation::Greater => (false, true),
            Relation::AtLeast => (false, false),
        };
        let is_shown = |bound: &[f64], is_so: fn(Interval, bool) -> bool| {
            [seen, bounded(bound, misses)].into_iter().all(|interval| {
                // As if the difference had to be low.
                let low = interval.map(|interval| interval.scaled(if wanted_low { 1.0 } else { -1.0 }));
                low.is_some_and(|interval| is_so(interval, strict))
            })
        };
        let answered = |endless: Endless| {
            let left_most = self.differences(self.left.at_most(table, endless).as_ref(), right.as_ref());
            let right_most = self.differences(left.as_ref(), self.right.at_most(table, endless).as_ref());
            // Waits that did not end make a side larger than it was seen: on one side that speaks against the answer, on the other for it.
            let (against, in_favour) = if wanted_low {
                (left_most, right_most)
            } else {
                (right_most, left_most)
            };
            if is_shown(&against, satisfies) {
                Answer::Holds
            } else if is_shown(&in_favour, violates) {
                Answer::Contradicted
            } else {
                Answer::NotShown
            }
        };
        let (low, high) = if wanted_low {
            (&self.left, &self.right)
        } else {
            (&self.right, &self.left)
        };
        let seen_so = answered(Endless::Counted);
        // A figure that is low because pods were left out proves nothing.
        let rests_on = match seen_so {
            Answer::Holds => Some((low, high)),
            Answer::Contradicted => Some((high, low)),
            Answer::NotShown => None,
        };
        let why = rests_on.and_then(|(side, other)| {
            let left_out = side.left_out_more(other, table, baseline, misses);
            left_out.or_else(|| {
                let is_open = answered(Endless::All) != seen_so;
                is_open.then(|| side.waiting_since_warmup()).flatten()
            })
        });
        let answer = if why.is_some() { Answer::NotShown } else { seen_so };
        Expected {
            expression: self.expression.clone(),
            answer,
            difference: mean(&differences),
            interval: seen,
            pairs: differences.len(),
            why,
        }
    }

    /// Left − right, one for each seed that all policies named have; a side without values is a number.
    fn differences(&self, left: Option<&Values>, right: Option<&Values>) -> Vec<f64> {
        match (left, right) {
            (Some(left), Some(right)) => left
                .iter()
                .filter_map(|(seed, value)| Some(value - right.get(seed)?))
                .collect(),
            (Some(left), None) => left.values().map(|value| value - self.right.factor).collect(),
            (None, Some(right)) => right.values().map(|value| self.left.factor - value).collect(),
            (None, None) => Vec::new(),
        }
    }
}

/// Whether the whole interval of a difference that has to be low satisfies that.
fn satisfies(interval: Interval, strict: bool) -> bool {
    interval.high < 0.0 || (!strict && interval.high == 0.0)
}

/// Whether the whole interval of a difference that has to be low says the opposite.
fn violates(interval: Interval, strict: bool) -> bool {
    interval.low > 0.0 || (strict && interval.low == 0.0 && interval.high == 0.0)
}

/// The interval of differences; `None` also where one of them has no limit.
fn bounded(differences: &[f64], misses: f64) -> Option<Interval> {
    let is_bounded = differences.iter().all(|difference| difference.is_finite());
    interval(differences, misses).filter(|_| is_bounded)
}

/// Of a metric, by seed.
type Values = BTreeMap<u64, f64>;

impl Side {
    /// What was seen; `None` of a number.
    fn values(&self, table: &Table<'_>) -> Option<Values> {
        let (policy, metric) = self.of.as_ref()?;
        Some(self.scaled(table.values(policy, metric)))
    }

    /// The most that it may have been; `None` of a number.
    fn at_most(&self, table: &Table<'_>, endless: Endless) -> Option<Values> {
        let (policy, metric) = self.of.as_ref()?;
        Some(self.scaled(table.at_most(policy, metric, endless)))
    }

    /// That pods of the policy of this side have waited since the warm-up, of which its figure says nothing; `None` of a number.
    fn waiting_since_warmup(&self) -> Option<String> {
        let (policy, metric) = self.of.as_ref()?;
        Some(format!(
            "pods that {policy} left without a node since the warm-up are not in {metric}, and could change it"
        ))
    }

    /// That the policy of this side left out more pods than that of the other side, or than the baseline where that is a number; `None` where it did not, or
    /// where that does not lower the figure.
    fn left_out_more(&self, other: &Side, table: &Table<'_>, baseline: &str, misses: f64) -> Option<String> {
        let (policy, metric) = self.of.as_ref()?;
        let other = other.of.as_ref().map_or(baseline, |(policy, _)| policy.as_str());
        let follows_work = Metric::find(metric).is_some_and(Metric::follows_work);
        let work = Work::of(&table.left_out(policy), &table.left_out(other), misses);
        (follows_work && work == Work::Less)
            .then(|| format!("{policy} left pods without a node that had one under {other}"))
    }

    fn scaled(&self, mut values: Values) -> Values {
        values.values_mut().for_each(|value| *value *= self.factor);
        values
    }
}

/// Words, numbers and signs with their columns.
struct Reader<'a> {
    expression: &'a str,
    policies: &'a [&'a str],
    tokens: std::vec::IntoIter<(String, usize)>,
    end: usize,
}

impl<'a> Reader<'a> {
    fn of(expression: &'a str, policies: &'a [&'a str]) -> Self {
        let mut tokens: Vec<(String, usize)> = Vec::new();
        let mut previous = ' ';
        for (column, character) in (1..).zip(expression.chars()) {
            let joins = |one: char, other: char| {
                let word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
                (word(one) && word(other)) || (matches!(one, '<' | '>' | '=') && other == '=')
            };
            if !character.is_whitespace() {
                match tokens.last_mut() {
                    Some((token, _)) if joins(previous, character) => token.push(character),
                    _ => tokens.push((character.to_string(), column)),
                }
            }
            previous = character;
        }
        Self {
            expression,
            policies,
            tokens: tokens.into_iter(),
            end: expression.chars().count() + 1,
        }
    }

    fn next(&mut self) -> Option<(String, usize)> {
        self.tokens.next()
    }

    fn wrong(&self, column: usize, message: String) -> ExpectError {
        ExpectError {
            expression: self.expression.to_owned(),
            column,
            message,
        }
    }

    fn side(&mut self) -> Result<Side, ExpectError> {
        let mut side = self.factor()?;
        if self
            .tokens
            .as_slice()
            .first()
            .is_some_and(|(token, _)| token == "*")
        {
            let column = self.next().map_or(self.end, |(_, column)| column);
            let other = self.factor()?;
            if side.of.is_some() && other.of.is_some() {
                return Err(self.wrong(
                    column,
                    "two metrics multiplied: one factor must be a number".into(),
                ));
            }
            side = Side {
                factor: side.factor * other.factor,
                of: side.of.or(other.of),
            };
        }
        Ok(side)
    }

    fn factor(&mut self) -> Result<Side, ExpectError> {
        let Some((token, column)) = self.next() else {
            return Err(self.wrong(
                self.end,
                "the expression ends where a number or POLICY.METRIC is expected".into(),
            ));
        };
        if let Ok(number) = token.parse::<f64>() {
            if !number.is_finite() || number < 0.0 {
                return Err(self.wrong(column, format!("{token} is not a number of 0 or more")));
            }
            return Ok(Side {
                factor: number,
                of: None,
            });
        }
        let Some((policy, metric)) = token.rsplit_once('.') else {
            return Err(self.wrong(
                column,
                format!("{token:?} is neither a number nor POLICY.METRIC, such as now.cost"),
            ));
        };
        if !self.policies.contains(&policy) {
            let names = self.policies.iter().copied();
            let hint = nearest(policy, names.clone()).map_or_else(
                || format!("policies are {}", self.policies.join(", ")),
                |name| format!("did you mean {name:?}?"),
            );
            return Err(self.wrong(column, format!("the scenario has no policy {policy:?}; {hint}")));
        }
        let Some(found) = Metric::find(metric) else {
            let column = column + policy.chars().count() + 1;
            let names = METRICS.iter().map(|metric| metric.name);
            let hint = nearest(metric, names.clone()).map_or_else(
                || format!("metrics are {}", names.collect::<Vec<_>>().join(", ")),
                |name| format!("did you mean {name:?}?"),
            );
            return Err(self.wrong(column, format!("no metric is called {metric:?}; {hint}")));
        };
        Ok(Side {
            factor: 1.0,
            of: Some((policy.to_owned(), found.name)),
        })
    }

    fn relation(&mut self) -> Result<Relation, ExpectError> {
        let (token, column) = self.next().unwrap_or((String::new(), self.end));
        match token.as_str() {
            "<" => Ok(Relation::Less),
            "<=" => Ok(Relation::AtMost),
            ">" => Ok(Relation::Greater),
            ">=" => Ok(Relation::AtLeast),
            "" => Err(self.wrong(
                column,
                "the expression ends where <, <=, > or >= is expected".into(),
            )),
            other => Err(self.wrong(column, format!("expected <, <=, > or >= instead of {other:?}"))),
        }
    }
}

/// The name that was probably meant.
fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    names
        .map(|name| (strsim::damerau_levenshtein(&written, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: [&str; 3] = ["now", "patient", "ca-model.v2"];

    #[test]
    fn sides_are_numbers_metrics_or_their_product() {
        for good in [
            "patient.cost <= 1.02 * now.cost",
            "patient.cost<=now.cost*1.02",
            "now.pendingP99 < 60",
            "3e2 >= now.pendingMax",
            "ca-model.v2.evictionsPerPodDay > 0",
        ] {
            let parsed = Expectation::parse(good, &POLICIES);
            assert!(parsed.is_ok(), "{good}: {parsed:?}");
        }
        let parsed = Expectation::parse("2 * 3 < ca-model.v2.gap", &POLICIES).unwrap();
        assert_eq!((parsed.left.factor, &parsed.left.of), (6.0, &None));
        assert_eq!(parsed.right.of, Some(("ca-model.v2".to_owned(), "gap")));
    }

    #[test]
    fn mistakes_are_located_and_what_was_probably_meant_is_named() {
        let cases = [
            ("", 1, "the expression ends where a number or POLICY.METRIC"),
            ("now.cost", 9, "the expression ends where <, <=, > or >="),
            ("now.cost <=", 12, "the expression ends where a number"),
            ("now.cost == 3", 10, "instead of \"==\""),
            ("now.cost <= patent.cost", 13, "did you mean \"patient\"?"),
            ("now.cots <= 3", 5, "did you mean \"cost\"?"),
            ("now.PendingP99 <= 3", 5, "did you mean \"pendingP99\"?"),
            ("now.xyzzyplugh <= 3", 5, "metrics are cost, "),
            ("other.cost <= 3", 1, "policies are now, patient, ca-model.v2"),
            ("cost <= 3", 1, "neither a number nor POLICY.METRIC"),
            ("1 <= 3", 1, "two numbers"),
            ("now.cost * patient.cost < 3", 10, "two metrics multiplied"),
            ("now.cost < 3 * 4 * 5", 18, "is left over"),
            ("now.cost < -3", 12, "not a number of 0 or more"),
            ("now.cost < inf", 12, "not a number of 0 or more"),
            ("now.cost < 3 €", 14, "is left over"),
        ];
        for (expression, column, message) in cases {
            let error = Expectation::parse(expression, &POLICIES).unwrap_err();
            assert_eq!(error.column, column, "{error}");
            assert!(error.message.contains(message), "{error}");
        }
        let error = Expectation::parse("now.cost == 3", &POLICIES).unwrap_err();
        assert_eq!(
            error.to_string(),
            "expect \"now.cost == 3\", column 10: expected <, <=, > or >= instead of \"==\""
        );
    }
}
