//! Azure's published OpenAPI documents, as far as they are used here (`golden/openapi/definitions.tsv` names the sources): whether a body is one that they
//! describe. It knows nothing of who sends what.

use std::collections::BTreeMap;

use serde_json::Value;

/// Kernel parameters of an AKSNodeClass, as its definition names them.
pub(crate) const SYSCTLS: [&str; 28] = [
    "fsAioMaxNr",
    "fsFileMax",
    "fsInotifyMaxUserWatches",
    "fsNrOpen",
    "kernelThreadsMax",
    "netCoreNetdevMaxBacklog",
    "netCoreOptmemMax",
    "netCoreRmemDefault",
    "netCoreRmemMax",
    "netCoreSomaxconn",
    "netCoreWmemDefault",
    "netCoreWmemMax",
    "netIPv4IPLocalPortRange",
    "netIPv4NeighDefaultGcThresh1",
    "netIPv4NeighDefaultGcThresh2",
    "netIPv4NeighDefaultGcThresh3",
    "netIPv4TCPFinTimeout",
    "netIPv4TCPKeepaliveIntvl",
    "netIPv4TCPKeepaliveProbes",
    "netIPv4TCPKeepaliveTime",
    "netIPv4TCPMaxSynBacklog",
    "netIPv4TCPMaxTwBuckets",
    "netIPv4TCPTwReuse",
    "netNetfilterNfConntrackBuckets",
    "netNetfilterNfConntrackMax",
    "vmMaxMapCount",
    "vmSwappiness",
    "vmVfsCachePressure",
];

struct Property {
    kind: String,
    is_required: bool,
    is_read_only: bool,
}

/// Properties by API, definition and name.
pub(crate) struct Document(BTreeMap<(String, String), BTreeMap<String, Property>>);

/// Which way a body goes: what only the service may say must not be sent, and what is required of an answer must be there.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Way {
    Sent,
    Answered,
}

impl Document {
    pub(crate) fn read() -> Self {
        let mut all: BTreeMap<_, BTreeMap<String, Property>> = BTreeMap::new();
        let rows = include_str!("../golden/openapi/definitions.tsv").lines();
        for row in rows.filter(|row| !row.starts_with('#')).skip(1) {
            let cells: Vec<&str> = row.split('\t').collect();
            let property = Property {
                kind: cells[3].to_owned(),
                is_required: cells[4].contains("required"),
                is_read_only: cells[4].contains("readOnly"),
            };
            all.entry((cells[0].to_owned(), cells[1].to_owned()))
                .or_default()
                .insert(cells[2].to_owned(), property);
        }
        assert!(all.len() > 30, "{} definitions", all.len());
        Document(all)
    }

    /// What is wrong with a body.
    pub(crate) fn check(&self, (api, definition): (&str, &str), way: Way, body: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        self.object((api, definition), way, body, definition, &mut problems);
        problems
    }

    fn object(
        &self,
        (api, definition): (&str, &str),
        way: Way,
        body: &Value,
        at: &str,
        problems: &mut Vec<String>,
    ) {
        let Some(properties) = self.0.get(&(api.to_owned(), definition.to_owned())) else {
            problems.push(format!("{at}: nothing is known of {definition}, and it is used"));
            return;
        };
        let Some(object) = body.as_object() else {
            problems.push(format!("{at}: {body} is no object"));
            return;
        };
        for (name, value) in object {
            let at = format!("{at}.{name}");
            let Some(property) = properties.get(name) else {
                problems.push(format!("{at}: {definition} has no such property"));
                continue;
            };
            if way == Way::Sent && property.is_read_only {
                problems.push(format!("{at}: only the service says that"));
            }
            if way == Way::Answered && value.is_null() {
                continue;
            }
            self.value(api, &property.kind, way, value, &at, problems);
        }
        for (name, property) in properties {
            let is_asked_for = property.is_required && !(way == Way::Sent && property.is_read_only);
            if is_asked_for && object.get(name).is_none_or(Value::is_null) {
                problems.push(format!("{at}.{name}: it is required"));
            }
        }
    }

    fn value(&self, api: &str, kind: &str, way: Way, value: &Value, at: &str, problems: &mut Vec<String>) {
        if let Some(of) = kind.strip_prefix("list of ") {
            let Some(entries) = value.as_array() else {
                problems.push(format!("{at}: {value} is no list"));
                return;
            };
            for (index, entry) in entries.iter().enumerate() {
                self.value(api, of, way, entry, &format!("{at}[{index}]"), problems);
            }
            return;
        }
        if let Some(of) = kind.strip_prefix("map of ") {
            let Some(entries) = value.as_object() else {
                problems.push(format!("{at}: {value} is no map"));
                return;
            };
            for (key, entry) in entries {
                self.value(api, of, way, entry, &format!("{at}[{key}]"), problems);
            }
            return;
        }
        if let Some(values) = kind.strip_prefix("one of ") {
            let is_one = value
                .as_str()
                .is_some_and(|it| values.split('|').any(|one| one == it));
            if !is_one {
                problems.push(format!("{at}: {value} is none of {values}"));
            }
            return;
        }
        let fits = match kind {
            "any" => true,
            "string" => value.is_string(),
            "bool" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "date-time" => value
                .as_str()
                .is_some_and(|it| it.parse::<jiff::Timestamp>().is_ok()),
            definition => {
                self.object((api, definition), way, value, at, problems);
                true
            }
        };
        if !fits {
            problems.push(format!("{at}: {value} is no {kind}"));
        }
    }
}
