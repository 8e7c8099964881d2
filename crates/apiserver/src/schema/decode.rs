//! Reading objects of core kinds as Go reads them, and keeping them as Go would write them again.
//!
//! A real server turns JSON into Go structs and back. Clients see the traces: unknown fields vanish, nulls and empty lists vanish, some zero
//! values always appear, quantities and times have one spelling, and errors speak of Go types. This module owns those traces.

use serde_json::{Map, Value};
use spokeshave_syntax::{NOT_A_QUANTITY, Quantity};

use crate::schema::types::{Go, GoKind, Node, Omit, Special, TypeSchema};

/// Reads an object of a core kind in place. Returns the paths of the unknown fields that were dropped.
///
/// # Errors
/// The Go decoder's message about a value of the wrong type.
pub(crate) fn decode(schema: &TypeSchema, kind: &str, object: &mut Value) -> Result<Vec<String>, String> {
    let mut reader = Reader::default();
    if let Value::Object(map) = object {
        reader.structure(schema.root(), kind, map)?;
    }
    Ok(reader.unknown)
}

/// Reads the metadata of an object of any kind.
///
/// # Errors
/// As [`decode`].
pub(crate) fn decode_metadata(object: &mut Value) -> Result<Vec<String>, String> {
    let mut reader = Reader::default();
    let metadata = &mut object["metadata"];
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    reader.fields.push("metadata".to_owned());
    "metadata".clone_into(&mut reader.path);
    match metadata {
        Value::Object(map) => reader.structure(TypeSchema::metadata(), "ObjectMeta", map)?,
        other => {
            return Err(format!(
                "json: cannot unmarshal {} into Go struct field .metadata of type v1.ObjectMeta",
                json_kind(other)
            ));
        }
    }
    Ok(reader.unknown)
}

/// An object of a core kind in which nothing is set, as Go writes it.
pub(crate) fn zero(schema: &TypeSchema) -> Value {
    let mut map = Map::new();
    fill(schema.root(), &mut map);
    Value::Object(map)
}

/// Adds to an object of a core kind what Go always writes at its top level.
pub(crate) fn complete(schema: &TypeSchema, object: &mut Value) {
    if let Value::Object(map) = object {
        fill(schema.root(), map);
    }
}

#[derive(Default)]
struct Reader {
    /// Names of the struct fields on the way here, as Go's errors list them.
    fields: Vec<String>,
    /// The same with indexes and keys, as the strict decoder names unknown fields.
    path: String,
    unknown: Vec<String>,
}

impl Reader {
    fn structure(
        &mut self,
        node: Node<'_>,
        type_name: &str,
        map: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let node = node.resolved();
        let mut problem = None;
        map.retain(|key, value| {
            if problem.is_some() {
                return true;
            }
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
            let kept = match node.0.properties.get(key.as_str()) {
                None => {
                    self.unknown.push(self.path.clone());
                    false
                }
                Some(_) if value.is_null() => false,
                Some(property) => {
                    self.fields.push(key.clone());
                    let go = property.go.as_deref();
                    let field = Field {
                        owner: type_name,
                        name: go.map_or("", |go| &go.name),
                    };
                    if let Err(error) = self.value(Node(property), &field, value) {
                        problem = Some(error);
                    }
                    self.fields.pop();
                    !go.is_some_and(|go| is_omitted(go, value))
                }
            };
            self.path.truncate(length);
            kept
        });
        if let Some(problem) = problem {
            return Err(problem);
        }
        fill(node, map);
        Ok(())
    }

    fn value(&mut self, node: Node<'_>, field: &Field<'_>, value: &mut Value) -> Result<(), String> {
        let resolved = node.resolved();
        match resolved.0.special {
            Special::Raw => return Ok(()),
            Special::Quantity => return quantity(value),
            Special::Time => return self.time(field, value, false),
            Special::MicroTime => return self.time(field, value, true),
            Special::IntOrString => {
                return if value.is_string() || value.is_i64() {
                    Ok(())
                } else {
                    Err(self.mismatch(field, value, "intstr.IntOrString"))
                };
            }
            Special::None => {}
        }
        let type_name = field.name.trim_start_matches('*');
        match (resolved.kind(), &mut *value) {
            ("object", Value::Object(map)) if resolved.has_declared_fields() => {
                if resolved.0.properties.is_empty() {
                    self.map(resolved.values(), field, type_name, map)
                } else {
                    self.structure(resolved, type_name.rsplit('.').next().unwrap_or(type_name), map)
                }
            }
            ("object", Value::Object(_)) | ("boolean", Value::Bool(_)) | ("string", Value::String(_)) => {
                Ok(())
            }
            ("array", Value::Array(list)) => {
                let element = Field {
                    owner: field.owner,
                    name: type_name.strip_prefix("[]").unwrap_or(type_name),
                };
                let length = self.path.len();
                for (index, item) in list.iter_mut().enumerate() {
                    self.path.push_str(&format!("[{index}]"));
                    if item.is_null() && resolved.items().has_declared_fields() {
                        *item = Value::Object(Map::new());
                    }
                    self.value(resolved.items(), &element, item)?;
                    self.path.truncate(length);
                }
                Ok(())
            }
            ("integer", Value::Number(number)) => {
                let fits = number
                    .as_i64()
                    .is_some_and(|number| !type_name.ends_with("int32") || i32::try_from(number).is_ok());
                if fits {
                    Ok(())
                } else {
                    Err(self.error(field, &format!("number {number}"), type_name))
                }
            }
            ("number", Value::Number(_)) | ("", _) => Ok(()),
            _ => Err(self.mismatch(field, value, type_name)),
        }
    }

    fn map(
        &mut self,
        values: Node<'_>,
        field: &Field<'_>,
        type_name: &str,
        map: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let element_name = type_name
            .split_once(']')
            .map_or(type_name, |(_, element)| element);
        let element = Field {
            owner: field.owner,
            name: element_name,
        };
        let length = self.path.len();
        for (key, value) in map {
            if value.is_null() && values.kind() == "string" {
                *value = Value::from("");
            }
            self.path.push('.');
            self.path.push_str(key);
            self.value(values, &element, value)?;
            self.path.truncate(length);
        }
        Ok(())
    }

    fn time(&self, field: &Field<'_>, value: &mut Value, micro: bool) -> Result<(), String> {
        let Value::String(text) = value else {
            return Err(self.mismatch(field, value, "time.Time"));
        };
        if is_spelled(text, micro) {
            return Ok(());
        }
        let time: jiff::Timestamp = text.parse().map_err(|_| {
            let layout = if micro {
                "2006-01-02T15:04:05.000000Z07:00"
            } else {
                "2006-01-02T15:04:05Z07:00"
            };
            format!("parsing time {text:?} as {layout:?}: cannot parse {text:?} as \"2006\"")
        })?;
        *text = if micro {
            let micros = jiff::Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time);
            format!("{micros:.6}")
        } else {
            jiff::Timestamp::from_second(time.as_second())
                .unwrap_or(time)
                .to_string()
        };
        Ok(())
    }

    fn mismatch(&self, field: &Field<'_>, value: &Value, type_name: &str) -> String {
        self.error(field, json_kind(value), type_name)
    }

    fn error(&self, field: &Field<'_>, found: &str, type_name: &str) -> String {
        format!(
            "json: cannot unmarshal {found} into Go struct field {}.{} of type {type_name}",
            field.owner,
            self.fields.join(".")
        )
    }
}

/// A field as Go's errors speak of it.
struct Field<'a> {
    /// Name of the struct that has it.
    owner: &'a str,
    /// Its Go type.
    name: &'a str,
}

fn quantity(value: &mut Value) -> Result<(), String> {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(NOT_A_QUANTITY.to_owned()),
    };
    let quantity: Quantity = text.parse().map_err(|_| NOT_A_QUANTITY)?;
    let stored = quantity.to_string();
    if value.as_str() != Some(&stored) {
        *value = Value::from(stored);
    }
    Ok(())
}

/// True for `2026-01-02T03:04:05Z` and, with fractions, `2026-01-02T03:04:05.000006Z`.
fn is_spelled(text: &str, micro: bool) -> bool {
    let pattern: &[u8] = if micro {
        b"0000-00-00T00:00:00.000000Z"
    } else {
        b"0000-00-00T00:00:00Z"
    };
    let fits = |(byte, wanted): (u8, &u8)| {
        if *wanted == b'0' {
            byte.is_ascii_digit()
        } else {
            byte == *wanted
        }
    };
    text.len() == pattern.len()
        && text.bytes().zip(pattern).all(fits)
        && text.parse::<jiff::Timestamp>().is_ok()
}

/// Whether Go leaves the value of a field out.
fn is_omitted(go: &Go, value: &Value) -> bool {
    if go.omit == Omit::Never {
        return false;
    }
    match (go.kind, value) {
        (GoKind::Bool, Value::Bool(value)) => !value,
        (GoKind::Number, Value::Number(number)) => number.as_f64() == Some(0.0),
        (GoKind::Text | GoKind::List, Value::String(text)) => text.is_empty(),
        (GoKind::List, Value::Array(list)) => list.is_empty(),
        (GoKind::Map, Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

/// Adds what Go always writes.
fn fill(node: Node<'_>, map: &mut Map<String, Value>) {
    for (name, property) in &node.resolved().0.properties {
        let Some(go) = property.go.as_deref() else {
            continue;
        };
        let always = go.omit == Omit::Never || go.kind == GoKind::Struct && go.omit == Omit::Empty;
        if !always || map.contains_key(&**name) {
            continue;
        }
        let node = Node(property).resolved();
        let value = match (go.kind, node.0.special) {
            (GoKind::Struct, Special::Quantity) => Value::from("0"),
            (GoKind::Struct, Special::IntOrString) => Value::from(0),
            (GoKind::Struct, Special::None) => {
                let mut inner = Map::new();
                fill(node, &mut inner);
                Value::Object(inner)
            }
            (GoKind::Bool, _) => Value::Bool(false),
            (GoKind::Number, _) => Value::from(0),
            (GoKind::Text, _) => Value::from(""),
            _ => Value::Null,
        };
        map.insert(name.to_string(), value);
    }
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(group: &str, kind: &str, mut object: Value) -> Result<(Value, Vec<String>), String> {
        let schema = TypeSchema::builtin(group, "v1", kind).expect("the kind is known");
        decode(&schema, kind, &mut object).map(|unknown| (object, unknown))
    }

    #[test]
    fn objects_are_kept_as_go_writes_them() {
        let (pod, unknown) = read("", "Pod", json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}, "finalizers": [], "creationTimestamp": null, "nonsense": 1},
            "spec": {"hostNetwork": false, "tolerations": [], "nodeSelector": null, "terminationGracePeriodSeconds": 0, "imagee": "x",
                     "containers": [{"name": "c", "env": [{"name": "E", "value": ""}], "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}, "x": {}}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })).unwrap();
        assert_eq!(
            unknown,
            ["metadata.nonsense", "spec.containers[0].x", "spec.imagee"]
        );
        assert_eq!(
            pod,
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "env": [{"name": "E"}], "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]},
                "status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": null}]},
            })
        );
    }

    #[test]
    fn reading_again_changes_nothing() {
        for (group, kind, object) in [
            (
                "",
                "Node",
                json!({"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready"}]}}),
            ),
            (
                "apps",
                "Deployment",
                json!({"metadata": {"name": "n"}, "spec": {"template": {"spec": {"containers": [{"ports": [{"containerPort": 1}]}]}}}}),
            ),
            (
                "",
                "Event",
                json!({"metadata": {"name": "n"}, "eventTime": "2026-01-01T00:00:00.5Z", "lastTimestamp": "2026-01-01T01:00:00.123+01:00"}),
            ),
        ] {
            let (once, _) = read(group, kind, object).unwrap();
            assert_eq!(read(group, kind, once.clone()).unwrap().0, once);
        }
        let (event, _) = read(
            "",
            "Event",
            json!({"eventTime": "2026-01-01T00:00:00.5Z", "lastTimestamp": "2026-01-01T01:00:00.123+01:00"}),
        )
        .unwrap();
        assert_eq!(
            (event["eventTime"].as_str(), event["lastTimestamp"].as_str()),
            (Some("2026-01-01T00:00:00.500000Z"), Some("2026-01-01T00:00:00Z"))
        );
        assert_eq!(
            (&event["firstTimestamp"], &event["reportingComponent"]),
            (&Value::Null, &json!(""))
        );
    }

    #[test]
    fn errors_speak_of_go_types() {
        for (kind, object, message) in [
            (
                "ConfigMap",
                json!({"data": "x"}),
                "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "ConfigMap",
                json!({"data": {"k": 1}}),
                "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
            ),
            (
                "Pod",
                json!({"spec": {"containers": "x"}}),
                "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                "Pod",
                json!({"spec": {"priority": 3_000_000_000_u64}}),
                "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}),
                NOT_A_QUANTITY,
            ),
        ] {
            assert_eq!(read("", kind, object).unwrap_err(), message);
        }
    }

    #[test]
    fn metadata_of_custom_objects_is_read_too() {
        let mut object = json!({"metadata": {"name": "a", "labels": {"a": null}, "annotations": {}, "no": 1}, "spec": {"x": null}});
        assert_eq!(decode_metadata(&mut object).unwrap(), ["metadata.no"]);
        assert_eq!(
            object,
            json!({"metadata": {"name": "a", "labels": {"a": ""}}, "spec": {"x": null}})
        );
    }
}
