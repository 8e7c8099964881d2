//! What a client takes for an answer: the `Accept` header, read in the order in which a real server reads it.
//!
//! Clauses are ordered by `q`, then by position; the first one that this server can serve decides, and one that requests a transformation which
//! is not offered is passed over. Owns no answer: it only says in which form one is wanted.

/// A clause of the header.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Clause<'a> {
    pub(crate) main: &'a str,
    pub(crate) sub: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';');
        let (main, sub) = match parts.next()?.trim() {
            "" => return None,
            "*" => ("*", "*"),
            name => name.split_once('/')?,
        };
        let parameters: Vec<(&str, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim().trim_matches('"')))
            .collect();
        let quality = parameters
            .iter()
            .find(|(key, _)| *key == "q")
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or(1.0);
        Some(Self {
            main: main.trim(),
            sub: sub.trim(),
            parameters,
            quality,
        })
    }

    /// The value of a parameter, empty where there is none.
    pub(crate) fn parameter(&self, name: &str) -> &'a str {
        let known = self.parameters.iter().find(|(key, _)| *key == name);
        known.map_or("", |(_, value)| value)
    }

    /// True when the clause names this subtype of `application`, or any.
    pub(crate) fn takes(&self, sub: &str) -> bool {
        matches!(self.main, "application" | "*") && (self.sub == sub || self.sub == "*")
    }
}

/// The clauses of a header, the one that counts most first.
pub(crate) fn clauses(header: &str) -> Vec<Clause<'_>> {
    let header = if header.trim().is_empty() { "*/*" } else { header };
    let mut clauses: Vec<Clause<'_>> = header.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by(|one, other| {
        let any = |clause: &Clause<'_>| (clause.main == "*", clause.sub == "*");
        other
            .quality
            .total_cmp(&one.quality)
            .then(any(one).cmp(&any(other)))
    });
    clauses
}

/// Version of `meta.k8s.io` that a transformed answer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What an object or a list is turned into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Table(MetaVersion),
    Partial(MetaVersion),
    PartialList(MetaVersion),
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

/// The form and encoding of an answer about a resource; `None` when the client takes none of those on offer.
pub(crate) fn resource(header: &str, watch: bool) -> Option<(Form, Encoding)> {
    // What most clients send.
    if matches!(header, "" | "application/json" | "*/*" | "application/json, */*") {
        return Some((Form::Object, Encoding::Json));
    }
    clauses(header).iter().find_map(|clause| {
        let encoding = match clause {
            clause if clause.takes("json") => Encoding::Json,
            // A stream of YAML has no frames.
            clause if clause.takes("yaml") && !watch => Encoding::Yaml,
            _ => return None,
        };
        if !matches!(clause.parameter("stream"), "" | "watch") || !clause.parameter("sv").is_empty() {
            return None;
        }
        Some((form(clause)?, encoding))
    })
}

fn form(clause: &Clause<'_>) -> Option<Form> {
    let (kind, group, version) = (
        clause.parameter("as"),
        clause.parameter("g"),
        clause.parameter("v"),
    );
    if kind.is_empty() && group.is_empty() && version.is_empty() {
        return Some(Form::Object);
    }
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    match kind {
        "Table" => Some(Form::Table(version)),
        "PartialObjectMetadata" => Some(Form::Partial(version)),
        "PartialObjectMetadataList" => Some(Form::PartialList(version)),
        _ => None,
    }
}

/// True when the first clause that discovery can serve asks for everything in one answer.
pub(crate) fn aggregated_discovery(header: &str) -> bool {
    let found = clauses(header).into_iter().find_map(|clause| {
        if !clause.takes("json") {
            return None;
        }
        match (
            clause.parameter("as"),
            clause.parameter("g"),
            clause.parameter("v"),
        ) {
            ("", "", "") => Some(false),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(true),
            _ => None,
        }
    });
    found.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubectl, client-go, controller-runtime, kube-rs, the Python client, curl and browsers send them.
    #[test]
    fn headers_of_real_clients() {
        let plain = Some((Form::Object, Encoding::Json));
        let table = Some((Form::Table(MetaVersion::V1), Encoding::Json));
        for (header, expected) in [
            ("", plain),
            ("application/json", plain),
            ("application/json, */*", plain),
            ("*/*", plain),
            ("application/vnd.kubernetes.protobuf,application/json", plain),
            ("application/vnd.kubernetes.protobuf, */*", plain),
            (
                "application/json;stream=watch,application/vnd.kubernetes.protobuf;stream=watch,application/json,application/vnd.kubernetes.protobuf",
                plain,
            ),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                plain,
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                table,
            ),
            (
                "application/json;as=Table;g=example.com;v=v1,application/json",
                plain,
            ),
            ("application/json;as=Nothing;g=meta.k8s.io;v=v1", None),
            (
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
                Some((Form::PartialList(MetaVersion::V1), Encoding::Json)),
            ),
            (
                "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
                Some((Form::Table(MetaVersion::V1Beta1), Encoding::Json)),
            ),
            ("application/yaml", Some((Form::Object, Encoding::Yaml))),
            (
                "application/json;q=0.5,application/yaml",
                Some((Form::Object, Encoding::Yaml)),
            ),
            ("application/vnd.kubernetes.protobuf", None),
            ("text/html", None),
            ("application/json;stream=other", None),
        ] {
            assert_eq!(resource(header, false), expected, "{header}");
        }
        assert_eq!(resource("application/yaml", true), None);
    }

    #[test]
    fn discovery_in_one_answer_is_for_those_who_know_its_version() {
        for (header, expected) in [
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                true,
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                false,
            ),
            ("application/json", false),
            (
                "application/json,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                false,
            ),
            ("*/*", false),
        ] {
            assert_eq!(aggregated_discovery(header), expected, "{header}");
        }
    }
}
