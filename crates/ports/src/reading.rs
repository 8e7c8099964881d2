//! Objects as their own kind, and which field of one that cannot be read is at fault.
//!
//! Owns how a tree becomes an object: as serde_json has it, with the same words about what is wrong. The path is put together on the way out of a failure:
//! where there is none, only keys of maps, such as labels, are copied for it. It knows no kinds and repairs nothing.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};
use serde_json::{Map, Value, map};

/// Reads an object of a kind.
///
/// # Errors
/// Which field cannot be read, what it is, and what was expected.
pub fn read_object<K: DeserializeOwned>(tree: Value) -> Result<K, Misread> {
    K::deserialize(Tree(tree))
}

/// Why an object cannot be read: `spec.containers[1].image: invalid type: integer 7, expected a string`.
#[derive(Debug)]
pub struct Misread {
    /// Where, from the inside to the outside.
    path: Vec<Step>,
    message: String,
}

#[derive(Debug)]
enum Step {
    Field(String),
    Item(usize),
}

impl Misread {
    /// The same, seen from outside of the value that is at fault.
    fn within(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    /// The field that cannot be read; empty where it is the whole object.
    #[must_use]
    pub fn field(&self) -> String {
        let mut path = String::new();
        for step in self.path.iter().rev() {
            match step {
                Step::Field(name) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name);
                }
                Step::Item(position) => path.push_str(&format!("[{position}]")),
            }
        }
        path
    }
}

impl fmt::Display for Misread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field();
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Misread {}

impl de::Error for Misread {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            path: Vec::new(),
            message: message.to_string(),
        }
    }

    // In the words of JSON: `null`, not `unit value`.
    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(serde_json::Error::invalid_type(unexpected, expected))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(serde_json::Error::invalid_value(unexpected, expected))
    }
}

/// A value that is read.
struct Tree(Value);

impl<'de> Deserializer<'de> for Tree {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => number.deserialize_any(visitor).map_err(Misread::custom),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => {
                let count = items.len();
                let mut items = Items {
                    rest: items.into_iter(),
                    position: 0,
                };
                let read = visitor.visit_seq(&mut items)?;
                match items.rest.next() {
                    None => Ok(read),
                    Some(_) => Err(Misread::invalid_length(count, &"fewer elements in array")),
                }
            }
            Value::Object(fields) => {
                let count = fields.len();
                let mut fields = Fields::of(fields);
                let read = visitor.visit_map(&mut fields)?;
                match fields.rest.next() {
                    None => Ok(read),
                    Some(_) => Err(Misread::invalid_length(count, &"fewer elements in map")),
                }
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misread> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        match self.0 {
            Value::String(text) => Name(&text).deserialize_enum(name, variants, visitor),
            Value::Object(fields) if fields.len() == 1 => {
                MapAccessDeserializer::new(Fields::of(fields)).deserialize_enum(name, variants, visitor)
            }
            Value::Object(_) => Err(Misread::invalid_value(Unexpected::Map, &"map with a single key")),
            other => Tree(other).deserialize_any(visitor),
        }
    }

    // What nobody reads is not looked at.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

/// The items of a list.
struct Items {
    rest: std::vec::IntoIter<Value>,
    position: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Misread;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misread> {
        let Some(item) = self.rest.next() else {
            return Ok(None);
        };
        let position = self.position;
        self.position += 1;
        let read = seed.deserialize(Tree(item));
        read.map(Some).map_err(|error| error.within(Step::Item(position)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The fields of an object.
struct Fields {
    rest: map::IntoIter,
    /// The one whose name was read last.
    current: Option<(String, Value)>,
}

impl Fields {
    fn of(fields: Map<String, Value>) -> Self {
        Self {
            rest: fields.into_iter(),
            current: None,
        }
    }
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Misread;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misread> {
        let Some((name, value)) = self.rest.next() else {
            return Ok(None);
        };
        let read = seed.deserialize(Name(&name));
        let (name, _) = self.current.insert((name, value));
        read.map(Some)
            .map_err(|error| error.within(Step::Field(name.clone())))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Misread> {
        let (name, value) = self.current.take().unwrap_or_default();
        let read = seed.deserialize(Tree(value));
        read.map_err(|error| error.within(Step::Field(name)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The name of a field or of a variant. Names that are numbers, which no kind of Kubernetes has, are not read as such.
struct Name<'a>(&'a str);

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misread> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        let variant: StrDeserializer<'_, Misread> = self.0.into_deserializer();
        variant.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::json;
    use spokeshave_api::{NodeClaim, NodePool};

    use super::*;

    fn problem<K: DeserializeOwned + fmt::Debug>(tree: &Value) -> Misread {
        read_object::<K>(tree.clone()).expect_err("it cannot be read")
    }

    fn pod(containers: Value) -> Value {
        json!({"metadata": {"name": "a"}, "spec": {"containers": containers}})
    }

    /// One whose values are not of their types, deep down, in lists, under labels and where one is missing.
    #[test]
    fn the_field_that_cannot_be_read_is_named() {
        let image = pod(json!([{"name": "a"}, {"name": "b", "image": 7}]));
        let error = problem::<Pod>(&image);
        assert_eq!(error.field(), "spec.containers[1].image");
        assert!(
            error
                .to_string()
                .starts_with("spec.containers[1].image: invalid type: integer `7`, expected ")
        );
        let unscheduled = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": "perhaps"}});
        let error = problem::<Node>(&unscheduled);
        assert_eq!(error.field(), "spec.unschedulable");
        let label = json!({"metadata": {"labels": {"a.b/c": 1}}});
        assert_eq!(problem::<Node>(&label).field(), "metadata.labels.a.b/c");
        let conditions = json!({"metadata": {}, "status": {"conditions": [{}, {"lastTransitionTime": "2027-01-01T00:00:00+99:99"}]}});
        assert_eq!(
            problem::<Node>(&conditions).field(),
            "status.conditions[1].lastTransitionTime"
        );
        let taints = json!({"metadata": {"name": "a"}, "spec": {"taints": "none"}});
        assert_eq!(problem::<NodeClaim>(&taints).field(), "spec.taints");
        // What is missing is named by the message, and whose it is by the path.
        let empty = json!({"metadata": {"name": "a"}, "spec": {}});
        let error = problem::<NodePool>(&empty);
        assert!(error.to_string().starts_with("spec: missing field"), "{error}");
        // Of the whole there is no field.
        let error = problem::<Node>(&json!("a"));
        assert_eq!(error.field(), "");
        assert!(error.to_string().starts_with("invalid type: string"), "{error}");
    }

    /// Only the path is new: what was read before is read alike, and what was not is refused in the same words.
    #[test]
    fn all_else_is_as_serde_json_has_it() {
        let quantities = json!({"cpu": "2", "memory": "1Gi"});
        let good = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}, "unknown": [{"a": null}]},
            "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 80}], "resources": {"requests": quantities},
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3}}], "priority": -1, "hostNetwork": null, "nodeName": "n"},
            "status": {"startTime": "2027-01-01T00:00:00Z", "phase": "Running"},
        });
        assert_eq!(
            read_object::<Pod>(good.clone()).unwrap(),
            serde_json::from_value(good).unwrap()
        );
        for odd in [
            pod(json!([[]])),
            pod(json!([null])),
            pod(json!({})),
            pod(json!([{"name": "a", "ports": [{"containerPort": 8.5}]}])),
            pod(json!([{"name": "a", "ports": [{"containerPort": 5_000_000_000_i64}]}])),
            json!(["a"]),
            json!(null),
        ] {
            let error = problem::<Pod>(&odd);
            let before = serde_json::from_value::<Pod>(odd).unwrap_err().to_string();
            assert_eq!(error.message, before);
        }
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    enum Choice {
        One,
        Two(i32),
        Three { x: i32 },
    }

    #[derive(Debug, PartialEq, PartialOrd, Eq, Ord, serde::Deserialize)]
    struct Key(String);

    #[test]
    fn variants_and_keys_of_own_types_are_read() {
        assert_eq!(read_object::<Choice>(json!("One")).unwrap(), Choice::One);
        assert_eq!(read_object::<Choice>(json!({"Two": 2})).unwrap(), Choice::Two(2));
        assert_eq!(
            read_object::<Choice>(json!({"Three": {"x": 3}})).unwrap(),
            Choice::Three { x: 3 }
        );
        assert_eq!(
            problem::<Choice>(&json!({"Three": {"x": "3"}})).field(),
            "Three.x"
        );
        for odd in [json!("Four"), json!({"One": null, "Two": 2}), json!({}), json!(7)] {
            problem::<Choice>(&odd);
        }
        let keys = read_object::<std::collections::BTreeMap<Key, i32>>(json!({"a": 1})).unwrap();
        assert_eq!(keys.into_iter().next(), Some((Key("a".to_owned()), 1)));
    }
}
