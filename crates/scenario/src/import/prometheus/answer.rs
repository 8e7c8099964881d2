//! An answer of Prometheus, read series by series, so that memory does not grow with the file.
//!
//! Owns the format of `/api/v1/query_range`; what a series says is the business of its reader.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::lines::cut_off;
use super::super::record::broken;
use super::super::{ImportError, Place};
use super::{MOST_POINTS, Prometheus};

/// One series.
#[derive(Deserialize)]
pub(super) struct Series {
    pub(super) metric: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) values: Points,
}

impl Series {
    /// A label, empty where there is none. One that the scrape has itself is exported under another name.
    pub(super) fn label(&self, name: &str) -> String {
        let exported = self.metric.get(&format!("exported_{name}"));
        exported
            .or_else(|| self.metric.get(name))
            .cloned()
            .unwrap_or_default()
    }
}

/// The points of a series, in the order of the answer: seconds since 1970, and a number as text.
#[derive(Default)]
pub(super) struct Points(pub(super) Vec<(f64, Box<str>)>);

/// What an answer has said so far.
pub(super) struct Answer<'p> {
    reads: &'p mut Prometheus,
    status: String,
    error: Option<String>,
    /// Of `data`, when there is any.
    result_type: Option<String>,
    series: u64,
    /// What is wrong with the series that was read last.
    problem: Option<String>,
}

impl<'p> Answer<'p> {
    pub(super) fn new(reads: &'p mut Prometheus) -> Self {
        Self {
            reads,
            status: String::new(),
            error: None,
            result_type: None,
            series: 0,
            problem: None,
        }
    }

    /// Whether it was an answer with series, after it was `read` until this line.
    pub(super) fn verdict(self, read: serde_json::Result<()>, last: u64) -> Result<(), ImportError> {
        if let Some(problem) = self.problem {
            return Err(ImportError::whole(format!("series {}: {problem}", self.series)));
        }
        if let Err(error) = read {
            let line = Place::Line(error.line().max(1) as u64);
            return Err(match error.is_io() {
                true => ImportError::new(Place::Line(last), cut_off(&error)),
                false => ImportError::new(line, broken(&error)),
            });
        }
        match (self.status.as_str(), self.result_type) {
            ("success", Some(kind)) if kind == "matrix" => Ok(()),
            ("success", Some(kind)) => Err(ImportError::whole(format!(
                "holds a {kind}; expected the matrix that /api/v1/query_range answers"
            ))),
            (status, _) => {
                let why = self.error.unwrap_or_else(|| "it has no data".to_owned());
                Err(ImportError::whole(format!(
                    "is an answer of status {status:?}: {why}"
                )))
            }
        }
    }
}

impl<'de> DeserializeSeed<'de> for &mut Answer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Answer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of Prometheus, an object with status and data")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => self.status = map.next_value()?,
                "error" => self.error = map.next_value()?,
                "warnings" => {
                    let warnings: Option<Vec<String>> = map.next_value()?;
                    self.reads.warnings.extend(warnings.into_iter().flatten());
                }
                // As VictoriaMetrics tells the same.
                "isPartial" => {
                    if map.next_value::<Option<bool>>()? == Some(true) {
                        self.reads.warnings.insert("isPartial".to_owned());
                    }
                }
                "data" => map.next_value_seed(Data(self))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// `data` of an answer.
struct Data<'a, 'p>(&'a mut Answer<'p>);

impl<'de> DeserializeSeed<'de> for Data<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Data<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("data of an answer, an object with resultType and result")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            // Prometheus says first what it is.
            let is_other = self.0.result_type.as_deref().is_some_and(|kind| kind != "matrix");
            match key.as_str() {
                "resultType" => self.0.result_type = Some(map.next_value()?),
                "result" if !is_other => map.next_value_seed(Matrix(self.0))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// `result` of the data.
struct Matrix<'a, 'p>(&'a mut Answer<'p>);

impl<'de> DeserializeSeed<'de> for Matrix<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Matrix<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(series) = list.next_element::<Series>()? {
            self.0.series += 1;
            if let Err(problem) = self.0.reads.series(series) {
                self.0.problem = Some(problem);
                return Err(A::Error::custom("a series says something impossible"));
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Points {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Points;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of points, [seconds, \"number\"] each")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Points, A::Error> {
                let mut points = Vec::new();
                while let Some(point) = list.next_element()? {
                    if points.len() == MOST_POINTS {
                        return Err(A::Error::custom(format_args!(
                            "one series has more than {MOST_POINTS} points; ask with a larger step"
                        )));
                    }
                    points.push(point);
                }
                Ok(Points(points))
            }
        }
        json.deserialize_seq(List)
    }
}
