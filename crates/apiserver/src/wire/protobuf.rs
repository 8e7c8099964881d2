//! Reading Kubernetes' protobuf: kubectl and client-go send core objects in it and read JSON back.
//!
//! Owns a generic decoder over a table of field numbers. It never writes protobuf: answers are JSON, which every client accepts.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::cell::LazyCell;
use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use crate::schema::facts::facts;

const TABLE: &str = include_str!("../../facts/protobuf.txt");
const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting that is read.
const MAX_DEPTH: usize = 100;

struct Field {
    name: &'static str,
    kind: &'static str,
}

type Messages = FxHashMap<&'static str, FxHashMap<u32, Field>>;

fn messages() -> &'static Messages {
    static MESSAGES: OnceLock<Messages> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        TABLE
            .lines()
            .filter_map(|line| {
                let mut parts = line.split('|');
                let name = parts.next()?;
                let fields = parts.filter_map(|field| {
                    let mut words = field.splitn(3, ' ');
                    Some((
                        words.next()?.parse().ok()?,
                        Field {
                            name: words.next()?,
                            kind: words.next()?,
                        },
                    ))
                });
                Some((name, fields.collect()))
            })
            .collect()
    })
}

/// Reads an object in Kubernetes' envelope.
///
/// # Errors
/// What cannot be read.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, String> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("the body does not begin as Kubernetes' protobuf does")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut reader = Reader(rest);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => {
                let mut types = Reader(bytes);
                while let Some((number, wire)) = types.next()? {
                    match (number, wire) {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let definition = facts()
        .definition_name(group, version, &kind)
        .or_else(|| {
            facts()
                .definition_name("", "v1", &kind)
                .filter(|_| kind == "DeleteOptions")
        })
        .and_then(|name| name.strip_prefix("io.k8s."))
        .or((kind == "DeleteOptions").then_some("apimachinery.pkg.apis.meta.v1.DeleteOptions"))
        .ok_or_else(|| format!("no kind {kind:?} is registered for version {api_version:?}"))?;
    let mut object = message(definition, raw, 0)?;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    Ok(object)
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    part_of(&Value::Null, name, bytes, depth)
}

/// A message, or the part of the enclosing one that Go embeds in it: JSON has the fields of that part beside the others, so that only the enclosing
/// definition says how they are written.
fn part_of(enclosing: &Value, name: &str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err("the object is nested too deeply".to_owned());
    }
    match name {
        "apimachinery.pkg.api.resource.Quantity" => return first_text(bytes),
        "apimachinery.pkg.apis.meta.v1.Time" => return time(bytes, false),
        "apimachinery.pkg.apis.meta.v1.MicroTime" => return time(bytes, true),
        "apimachinery.pkg.util.intstr.IntOrString" => return int_or_string(bytes),
        "apimachinery.pkg.apis.meta.v1.FieldsV1" | "apimachinery.pkg.runtime.RawExtension" => {
            return raw_json(bytes);
        }
        _ => {}
    }
    let fields = messages()
        .get(name)
        .ok_or_else(|| format!("message {name} is not known"))?;
    let definition = LazyCell::new(|| match facts().definition(&format!("io.k8s.{name}")) {
        Value::Null => enclosing.clone(),
        own => own,
    });
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        let Some(field) = fields.get(&number) else {
            continue;
        };
        if let Some(kind) = field.kind.strip_prefix("[]") {
            let list = object.entry(field.name).or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                packed(kind, wire, depth, list)?;
            }
        } else if let Some(kind) = field.kind.strip_prefix("map:") {
            let Wire::Bytes(entry) = wire else {
                return Err(format!("{name}.{} is malformed", field.name));
            };
            let (key, value) = map_entry(kind, entry, depth)?;
            let map = object.entry(field.name).or_insert_with(|| json!({}));
            map[key] = value;
        } else {
            // A message that JSON does not name there is embedded.
            let is_embedded = field.kind.contains('.')
                && !definition.is_null()
                && definition["properties"].get(field.name).is_none();
            let value = match wire {
                Wire::Bytes(bytes) if is_embedded => part_of(&definition, field.kind, bytes, depth + 1)?,
                wire => scalar(field.kind, wire, depth)?,
            };
            match value {
                Value::Object(inner) if is_embedded => object.extend(inner),
                value => {
                    object.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    // Go omits zero values from JSON where protobuf carries them.
    object.retain(|key, value| match value {
        Value::String(text) => !text.is_empty() || matches!(key.as_str(), "value"),
        Value::Null => false,
        Value::Object(map) => {
            !map.is_empty()
                || !matches!(
                    key.as_str(),
                    "metadata"
                        | "status"
                        | "resources"
                        | "strategy"
                        | "updateStrategy"
                        | "state"
                        | "lastState"
                )
        }
        Value::Array(list) => !list.is_empty(),
        _ => true,
    });
    drop_zero_numbers(&mut object, &definition);
    if matches!(
        name.rsplit('.').next(),
        Some("Container" | "EphemeralContainerCommon")
    ) && !object.contains_key("resources")
    {
        object.insert("resources".to_owned(), json!({}));
    }
    Ok(Value::Object(object))
}

/// Numbers and booleans that the Go types hold by value are left out when zero; those behind a pointer are only sent when set, and required
/// ones stay. The wire format does not distinguish them, so only fields whose zero means nothing are dropped.
fn drop_zero_numbers(object: &mut Map<String, Value>, definition: &Value) {
    const BY_VALUE: [&str; 24] = [
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "stdin",
        "stdinOnce",
        "tty",
        "hostPort",
        "containerPort",
        "readOnly",
        "generation",
        "weight",
        "port",
        "paused",
        "minReadySeconds",
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
        "observedGeneration",
        "unschedulable",
        "nodePort",
        "publishNotReadyAddresses",
        "count",
    ];
    object.retain(|key, value| {
        let zero = value == &json!(0) || value == &json!(false);
        let required = definition["required"]
            .as_array()
            .is_some_and(|list| list.iter().any(|one| one == key));
        !zero || required || !BY_VALUE.contains(&key.as_str())
    });
}

fn packed(kind: &str, wire: Wire<'_>, depth: usize, list: &mut Vec<Value>) -> Result<(), String> {
    match (kind, wire) {
        ("int32" | "int64" | "uint32" | "bool", Wire::Bytes(bytes)) => {
            let mut reader = Reader(bytes);
            while !reader.0.is_empty() {
                list.push(integer(kind, reader.varint()?));
            }
            Ok(())
        }
        (_, wire) => {
            list.push(scalar(kind, wire, depth)?);
            Ok(())
        }
    }
}

fn map_entry(kind: &str, entry: &[u8], depth: usize) -> Result<(String, Value), String> {
    let (mut key, mut value) = (String::new(), None);
    let mut reader = Reader(entry);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => value = Some(scalar(kind, wire, depth)?),
            _ => {}
        }
    }
    let empty = if kind == "string" || kind == "bytes" {
        json!("")
    } else {
        Value::Null
    };
    Ok((key, value.unwrap_or(empty)))
}

fn scalar(kind: &str, wire: Wire<'_>, depth: usize) -> Result<Value, String> {
    match (kind, wire) {
        ("string", Wire::Bytes(bytes)) => text(bytes).map(Value::from),
        ("bytes", Wire::Bytes(bytes)) => Ok(json!(BASE64_STANDARD.encode(bytes))),
        ("int32" | "int64" | "uint32" | "bool", Wire::Varint(number)) => Ok(integer(kind, number)),
        ("double", Wire::Fixed64(bits)) => Ok(json!(f64::from_bits(bits))),
        (name, Wire::Bytes(bytes)) => message(name, bytes, depth + 1),
        (name, _) => Err(format!("a field of type {name} has the wrong wire type")),
    }
}

fn integer(kind: &str, number: u64) -> Value {
    if kind == "bool" {
        json!(number != 0)
    } else {
        json!(number.cast_signed())
    }
}

fn text(bytes: &[u8]) -> Result<String, String> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| "a string is not UTF-8".to_owned())
}

fn first_text(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire) {
            return text(bytes).map(Value::from);
        }
    }
    Ok(json!("0"))
}

fn raw_json(bytes: &[u8]) -> Result<Value, String> {
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.next()? {
        if let (1, Wire::Bytes(bytes)) = (number, wire) {
            return serde_json::from_slice(bytes).map_err(|error| error.to_string());
        }
    }
    Ok(Value::Null)
}

fn numbers(bytes: &[u8]) -> Result<FxHashMap<u32, u64>, String> {
    let (mut found, mut reader) = (FxHashMap::default(), Reader(bytes));
    while let Some((number, wire)) = reader.next()? {
        if let Wire::Varint(value) = wire {
            found.insert(number, value);
        }
    }
    Ok(found)
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, String> {
    let numbers = numbers(bytes)?;
    let seconds = numbers.get(&1).copied().unwrap_or(0).cast_signed();
    let nanos = numbers.get(&2).copied().unwrap_or(0);
    // Go's zero time is the year 1; it means null.
    if bytes.is_empty() || seconds <= -62_135_596_800 {
        return Ok(Value::Null);
    }
    let nanos = if micro {
        i32::try_from(nanos).unwrap_or(0)
    } else {
        0
    };
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?;
    Ok(json!(if micro {
        format!("{time:.6}")
    } else {
        time.to_string()
    }))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut string, mut reader) = (false, 0_i64, String::new(), Reader(bytes));
    while let Some((field, wire)) = reader.next()? {
        match (field, wire) {
            (1, Wire::Varint(kind)) => is_text = kind == 1,
            (2, Wire::Varint(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => string = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(string) } else { json!(number) })
}

enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self
                .0
                .split_first()
                .ok_or("the body ends in the middle of a number")?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too long".to_owned())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (bytes, rest) = self
            .0
            .split_at_checked(length)
            .ok_or("the body ends in the middle of a field")?;
        self.0 = rest;
        Ok(bytes)
    }

    fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, String> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a field number is too large")?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(
                self.take(8)?.try_into().map_err(|_| "eight bytes were taken")?,
            )),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| "a length is too large")?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => return Err(format!("wire type {other} is not known")),
        };
        Ok(Some((number, wire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    #[test]
    fn a_pod_is_read() {
        let container = [
            field(1, b"c"),
            field(2, b"nginx"),
            field(
                8,
                &field(2, &[field(1, b"cpu"), field(2, &field(1, b"1"))].concat()),
            ),
        ]
        .concat();
        let spec = [field(2, &container), vec![4 << 3, 30]].concat();
        let pod = [field(1, &field(1, b"p")), field(2, &spec)].concat();
        let types = [field(1, b"v1"), field(2, b"Pod")].concat();
        let body = [MAGIC.to_vec(), field(1, &types), field(2, &pod)].concat();
        assert_eq!(
            decode(&body).unwrap(),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
                "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "1"}}}], "terminationGracePeriodSeconds": 30}})
        );
    }

    /// Parts that Go embeds in parts that it embeds: `rules[].rule` and `rules[].ruleWithOperations.rule` have no names of their own in JSON.
    #[test]
    fn embedded_parts_of_embedded_parts_are_read() {
        let rule = [field(1, b""), field(2, b"v1"), field(3, b"nodes")].concat();
        let operations = [field(1, b"CREATE"), field(2, &rule)].concat();
        let constraints = field(3, &[field(1, b"n"), field(2, &operations)].concat());
        let spec = field(2, &constraints);
        let policy = [field(1, &field(1, b"p")), field(2, &spec)].concat();
        let types = [
            field(1, b"admissionregistration.k8s.io/v1"),
            field(2, b"ValidatingAdmissionPolicy"),
        ]
        .concat();
        let body = [MAGIC.to_vec(), field(1, &types), field(2, &policy)].concat();
        assert_eq!(
            decode(&body).unwrap()["spec"],
            json!({"matchConstraints": {"resourceRules": [
                {"resourceNames": ["n"], "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}]}})
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&[MAGIC, &bytes].concat());
            let _ = message("api.core.v1.Pod", &bytes, 0);
        }
    }
}
