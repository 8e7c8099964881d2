//! Reading a request: its path, its query, its body, and what the client wants in return.

use std::collections::BTreeMap;
use std::num::{IntErrorKind, ParseIntError};

use serde_json::Value;

use crate::error::{ApiError, ApiResult};
use crate::fields::packed;
use crate::wire::accept::Form;
use crate::wire::json;

/// Largest body that is read, in bytes, as on a real server.
pub(crate) const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// A request after its body was read.
#[derive(Debug, Clone)]
pub struct Request {
    /// HTTP method in capitals.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Query parameters; of repeated ones the first.
    pub query: BTreeMap<String, String>,
    /// `Accept` header.
    pub accept: String,
    /// The form in which the client wants an answer about a resource; `None` when it takes none that there is.
    pub(crate) form: Option<Form>,
    /// `Content-Type` header without parameters.
    pub content_type: String,
    /// `User-Agent` header.
    pub user_agent: String,
    /// Body.
    pub body: bytes::Bytes,
}

impl Request {
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.query.get(name).is_some_and(|value| is_true(value))
    }

    /// A parameter that is a whole number, if it is there.
    pub(crate) fn whole_number(&self, name: &str) -> ApiResult<Option<i64>> {
        let Some(text) = self.query.get(name) else {
            return Ok(None);
        };
        text.parse::<i64>().map(Some).map_err(|error: ParseIntError| {
            let problem = match error.kind() {
                IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                _ => "invalid syntax",
            };
            ApiError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {problem}"))
        })
    }

    pub(crate) fn is_dry_run(&self) -> ApiResult<bool> {
        match self.query.get("dryRun").map(String::as_str) {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(ApiError::bad_options(
                self.options_kind(),
                "FieldValueNotSupported",
                "dryRun",
                &format!("Unsupported value: [{other:?}]: supported values: \"All\""),
            )),
        }
    }

    /// The kind of options that the query of this request is made of.
    pub(crate) fn options_kind(&self) -> &'static str {
        match self.method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            "PATCH" => "PatchOptions",
            "DELETE" => "DeleteOptions",
            _ => "ListOptions",
        }
    }

    /// The field manager: as named, else the client's program name.
    pub(crate) fn manager(&self) -> &str {
        let named = self.parameter("fieldManager");
        if !named.is_empty() {
            return named;
        }
        let program = self.user_agent.split(['/', ' ']).next().unwrap_or_default();
        if program.is_empty() { "unknown" } else { program }
    }

    /// The form that is wanted, objects where that is open.
    pub(crate) fn form(&self) -> Form {
        self.form.unwrap_or(Form::Object)
    }

    /// Custom kinds have no protobuf messages, so none can be written.
    pub(crate) fn check_encoding(&self, custom: bool) -> ApiResult<()> {
        if custom && self.content_type == "application/vnd.kubernetes.protobuf" {
            return Err(ApiError::new(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
            ));
        }
        Ok(())
    }

    /// The body as an object of a kind (named in errors); YAML and protobuf are read too.
    pub(crate) fn object(&self, kind: &str) -> ApiResult<Value> {
        Ok(self.object_and_duplicates(kind)?.0)
    }

    /// The same, and the paths of fields that JSON names more than once.
    pub(crate) fn object_and_duplicates(&self, kind: &str) -> ApiResult<(Value, Vec<String>)> {
        let mut duplicates = Vec::new();
        let value = match self.content_type.as_str() {
            "" | "application/json" => {
                let (mut value, found) =
                    parse_json(&self.body).map_err(|problem| unrecognized(kind, &problem, &self.body))?;
                duplicates = found;
                packed::clear(&mut value);
                value
            }
            "application/yaml" | "application/apply-patch+yaml" => {
                let mut value = parse_yaml(&self.body)?;
                packed::clear(&mut value);
                value
            }
            "application/vnd.kubernetes.protobuf" => crate::wire::protobuf::decode(&self.body)
                .map_err(|problem| ApiError::bad_request(format!("couldn't decode the body: {problem}")))?,
            _ => {
                return Err(ApiError::new(
                    415,
                    "UnsupportedMediaType",
                    "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
                ));
            }
        };
        if value.is_object() {
            return Ok((value, duplicates));
        }
        let found = match &value {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            _ => "null",
        };
        let problem = format!(
            "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        );
        Err(unrecognized(kind, &problem, &self.body))
    }

    /// The body as a patch in JSON.
    pub(crate) fn patch(&self) -> ApiResult<Value> {
        parse_json(&self.body)
            .map(|(mut patch, _)| {
                packed::clear(&mut patch);
                patch
            })
            .map_err(|problem| ApiError::bad_request(format!("error decoding patch: {problem}")))
    }
}

fn unrecognized(kind: &str, problem: &str, body: &[u8]) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {problem} ({})",
        summary(body)
    ))
}

/// The beginning of a body as errors quote it.
fn summary(body: &[u8]) -> String {
    const LONGEST: usize = 30;
    let cut = &body[..body.len().min(LONGEST)];
    let more = if body.len() > LONGEST { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(cut)),
        Some(_) => format!(
            "{}{more}",
            cut.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        ),
    }
}

fn parse_json(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    json::parse(body).map_err(|error| {
        if error.is_eof() {
            return "unexpected end of JSON input".to_owned();
        }
        let lines: Vec<&[u8]> = body.split(|byte| *byte == b'\n').collect();
        let found = lines
            .get(error.line().saturating_sub(1))
            .and_then(|line| line.get(error.column().saturating_sub(1)));
        let found = found.map_or_else(String::new, |byte| {
            format!("invalid character '{}': ", char::from(*byte))
        });
        format!("{found}{error}")
    })
}

fn parse_yaml(body: &[u8]) -> ApiResult<Value> {
    // JSON is YAML, and the JSON reader is faster and names positions better.
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::bad_request("error decoding YAML: the body is not UTF-8"))?;
    serde_saphyr::from_str(text)
        .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))
}

/// A parameter that is there is true, also without a value, unless it says otherwise: so apimachinery has it, and clients write `watch=True`.
pub(crate) fn is_true(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// Reads `a=b&c=d`, percent-decoded.
pub(crate) fn parse_query(query: &str) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        parameters
            .entry(percent_decode(name))
            .or_insert_with(|| percent_decode(value));
    }
    parameters
}

pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = bytes
            .get(index + 1..index + 3)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[index], hex) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                index += 3;
            }
            (b'+', _) => {
                decoded.push(b' ');
                index += 1;
            }
            (byte, _) => {
                decoded.push(byte);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// What a path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `/version`, `/healthz`, `/api`, … handled by name.
    Root(String),
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`
    GroupVersion(String, String),
    /// A resource, with what of it is meant.
    Resource {
        group: String,
        version: String,
        plural: String,
        namespace: Option<String>,
        name: Option<String>,
        subresource: Option<String>,
        /// What comes after `proxy`, with the leading slash.
        rest: String,
    },
}

pub(crate) fn target(path: &str) -> Option<Target> {
    let parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(percent_decode)
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match &parts[..] {
        ["api"] | ["apis"] | [] => return Some(Target::Root(path.trim_end_matches('/').to_owned())),
        ["api", version] => return Some(Target::GroupVersion(String::new(), (*version).to_owned())),
        ["apis", group] => return Some(Target::Group((*group).to_owned())),
        ["apis", group, version] => {
            return Some(Target::GroupVersion((*group).to_owned(), (*version).to_owned()));
        }
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Some(Target::Root(path.trim_end_matches('/').to_owned())),
    };
    let (namespace, rest) = match rest {
        // `/namespaces/NAME/{status,finalize}` are subresources of the Namespace itself.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        _ => (None, rest),
    };
    let owned = |text: &str| Some(text.to_owned());
    let (plural, name, subresource, rest) = match rest {
        [plural] => (*plural, None, None, String::new()),
        [plural, name] => (*plural, owned(name), None, String::new()),
        [plural, name, "proxy", rest @ ..] => (
            *plural,
            owned(name),
            owned("proxy"),
            format!("/{}", rest.join("/")),
        ),
        [plural, name, subresource] => (*plural, owned(name), owned(subresource), String::new()),
        _ => return None,
    };
    Some(Target::Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        plural: plural.to_owned(),
        namespace,
        name,
        subresource,
        rest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let resource =
            |plural: &str, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>| {
                Some(Target::Resource {
                    group: String::new(),
                    version: "v1".to_owned(),
                    plural: plural.to_owned(),
                    namespace: namespace.map(str::to_owned),
                    name: name.map(str::to_owned),
                    subresource: subresource.map(str::to_owned),
                    rest: String::new(),
                })
            };
        assert_eq!(target("/api/v1/pods"), resource("pods", None, None, None));
        assert_eq!(
            target("/api/v1/namespaces/a/pods/b/status"),
            resource("pods", Some("a"), Some("b"), Some("status"))
        );
        assert_eq!(
            target("/api/v1/namespaces/a"),
            resource("namespaces", None, Some("a"), None)
        );
        assert_eq!(
            target("/api/v1/namespaces/a/status"),
            resource("namespaces", None, Some("a"), Some("status"))
        );
        assert_eq!(
            target("/api/v1/namespaces"),
            resource("namespaces", None, None, None)
        );
        assert_eq!(
            target("/api/v1/nodes/a%2Fb"),
            resource("nodes", None, Some("a/b"), None)
        );
        assert_eq!(
            target("/apis/apps/v1"),
            Some(Target::GroupVersion("apps".to_owned(), "v1".to_owned()))
        );
        assert_eq!(target("/api/v1/a/b/c/d"), None);
    }

    #[test]
    fn flags() {
        for value in ["true", "True", "1", "", "yes", "t"] {
            assert!(is_true(value), "{value:?}");
        }
        for value in ["false", "False", "FALSE", "0"] {
            assert!(!is_true(value), "{value:?}");
        }
    }

    #[test]
    fn queries() {
        let query = parse_query("labelSelector=a%20in%20(b%2Cc)&watch=1&watch=2&x=a+b&bad=%zz");
        assert_eq!(query["labelSelector"], "a in (b,c)");
        assert_eq!(
            (
                query["watch"].as_str(),
                query["x"].as_str(),
                query["bad"].as_str()
            ),
            ("1", "a b", "%zz")
        );
    }
}
