//! The catalog of instance types, and how it is read from a file.
//!
//! Owns the checks of the file format (see the crate's header). An error names the file, the place in it and what was expected; a
//! catalog that cannot be read is never an empty one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};
use spokeshave_api::labels;
use spokeshave_model::{
    CapacityType, InstanceType, Offering, Operator, Price, Requirement, Requirements, ResourceName, Resources,
};
use spokeshave_syntax::names::label_value_problems;

use crate::instance_type::Machine;
use crate::{generated, keys};

const DEFAULT_PODS: i64 = 110;

/// The instance types that the cloud sells, in order of name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog(Arc<[InstanceType]>);

/// Why a catalog cannot be used. The text names file, entry, field and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogError {
    file: String,
    place: String,
    problem: String,
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, problem } = self;
        write!(
            f,
            "instance types file {file}: {place}{}{problem}",
            if place.is_empty() { "" } else { ": " }
        )
    }
}

impl std::error::Error for CatalogError {}

impl Default for Catalog {
    fn default() -> Self {
        Catalog(generated::instance_types().into())
    }
}

impl Catalog {
    /// The types of this catalog that pass a test.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&InstanceType) -> bool) -> Self {
        Self(self.0.iter().filter(|it| keep(it)).cloned().collect())
    }

    /// The types, in order of name.
    #[must_use]
    pub fn instance_types(&self) -> &Arc<[InstanceType]> {
        &self.0
    }

    /// Keys that users may name in requirements although no NodePool defines them: the core's, the kwok labels, and every requirement
    /// key of an offering (P §1.7).
    #[must_use]
    pub fn well_known_labels(&self) -> BTreeSet<String> {
        let offered = self
            .0
            .iter()
            .flat_map(|it| &it.offerings)
            .flat_map(|offering| offering.requirements.iter());
        let fixed = labels::WELL_KNOWN.into_iter().chain(keys::WELL_KNOWN);
        fixed
            .chain(offered.map(Requirement::key))
            .map(str::to_owned)
            .collect()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not in the format.
    pub fn from_file(path: &Path) -> Result<Self, CatalogError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_json(&file, &text),
            Err(error) => Err(CatalogError {
                file,
                place: String::new(),
                problem: format!("cannot be read: {error}"),
            }),
        }
    }

    /// Reads the text of a file; `file` names it in errors.
    ///
    /// # Errors
    /// The text is not in the format.
    pub fn from_json(file: &str, text: &str) -> Result<Self, CatalogError> {
        parse(text).map_err(|(place, problem)| CatalogError {
            file: file.to_owned(),
            place,
            problem,
        })
    }
}

/// Where in the file, and what is wrong there.
type Fault = (String, String);

fn parse(text: &str) -> Result<Catalog, Fault> {
    let root: Value =
        serde_json::from_str(text).map_err(|error| (String::new(), format!("is not JSON: {error}")))?;
    let Value::Array(entries) = &root else {
        return Err((
            String::new(),
            format!("expected an array of instance types, found {}", shown(&root)),
        ));
    };
    if entries.is_empty() {
        return Err((
            String::new(),
            "expected at least one instance type, found an empty array".to_owned(),
        ));
    }
    let mut types = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let instance_type = instance_type(entry, &format!("[{index}]"))?;
        if types.contains_key(&instance_type.name) {
            return Err((
                format!("[{index}].name"),
                format!(
                    "expected a name that no other entry has, found {:?} again",
                    instance_type.name
                ),
            ));
        }
        types.insert(instance_type.name.clone(), instance_type);
    }
    let mut types: Vec<InstanceType> = types.into_values().collect();
    mark_unreserved(&mut types);
    Ok(Catalog(types.into()))
}

/// Where reservations are sold, every other offering says that it belongs to none (P §14).
fn mark_unreserved(types: &mut [InstanceType]) {
    let is_reserved = |offering: &Offering| offering.reservation_id_label.is_some();
    if !types.iter().flat_map(|it| &it.offerings).any(is_reserved) {
        return;
    }
    for offering in types.iter_mut().flat_map(|it| &mut it.offerings) {
        if !is_reserved(offering) {
            offering
                .requirements
                .add(Requirement::does_not_exist(keys::RESERVATION_ID));
        }
    }
}

/// One JSON object, whose fields are found without regard to case, and its place in the file.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    place: String,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value, place: &str) -> Result<Self, Fault> {
        match value {
            Value::Object(map) => Ok(Self {
                map,
                place: place.to_owned(),
            }),
            other => Err((
                place.to_owned(),
                format!("expected an object, found {}", shown(other)),
            )),
        }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        let exact = self.map.get(name);
        let folded = || {
            self.map
                .iter()
                .find(|(key, _)| key.eq_ignore_ascii_case(name))
                .map(|(_, value)| value)
        };
        exact.or_else(folded).filter(|value| !value.is_null())
    }

    fn fault(&self, name: &str, expected: &str) -> Fault {
        let found = self.get(name).map_or_else(|| "nothing".to_owned(), shown);
        (
            format!("{}.{name}", self.place),
            format!("expected {expected}, found {found}"),
        )
    }

    fn text(&self, name: &str, expected: &str) -> Result<&'a str, Fault> {
        let text = self
            .get(name)
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty());
        text.ok_or_else(|| self.fault(name, expected))
    }

    fn texts(&self, name: &str, expected: &str) -> Result<Vec<String>, Fault> {
        let texts = self.get(name).and_then(Value::as_array).and_then(|items| {
            items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
        });
        texts.ok_or_else(|| self.fault(name, expected))
    }

    fn array(&self, name: &str, expected: &str) -> Result<&'a Vec<Value>, Fault> {
        let array = self
            .get(name)
            .and_then(Value::as_array)
            .filter(|array| !array.is_empty());
        array.ok_or_else(|| self.fault(name, expected))
    }
}

fn instance_type(value: &Value, place: &str) -> Result<InstanceType, Fault> {
    let fields = Fields::of(value, place)?;
    let name = fields.text("name", "the name of the instance type")?;
    if name.is_empty() || !label_value_problems(name).is_empty() {
        return Err(fields.fault(
            "name",
            "a name that can be a label value (at most 63 letters, digits, '-', '_' or '.')",
        ));
    }
    let fields = Fields {
        place: format!("{place} {name:?}"),
        ..fields
    };
    let architecture = fields.text("architecture", "an architecture such as \"amd64\"")?;
    let expected = "at least one operating system such as [\"linux\"]";
    let operating_systems = fields.texts("operatingSystems", expected)?;
    if operating_systems.is_empty() {
        return Err(fields.fault("operatingSystems", expected));
    }
    let capacity = resources(&fields)?;
    let offerings = fields
        .array("offerings", "at least one offering")?
        .iter()
        .enumerate()
        .map(|(index, value)| offering(name, value, &format!("{}.offerings[{index}]", fields.place)))
        .collect::<Result<Vec<Offering>, Fault>>()?;
    Ok(Machine {
        name,
        architecture,
        operating_systems,
        capacity,
        offerings,
    }
    .build())
}

fn resources(fields: &Fields<'_>) -> Result<Resources, Fault> {
    let expected = "an object such as {\"cpu\": \"2\", \"memory\": \"8Gi\"}";
    let Some(Value::Object(map)) = fields.get("resources") else {
        return Err(fields.fault("resources", expected));
    };
    let inner = Fields {
        map,
        place: format!("{}.resources", fields.place),
    };
    let mut capacity = Resources::new();
    for (resource, value) in map {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(inner.fault(resource, "a quantity such as \"8Gi\"")),
        };
        let amount = Resources::parse([(resource.as_str(), text.as_str())])
            .map_err(|_| inner.fault(resource, "a quantity such as \"8Gi\""))?;
        if amount.get(resource) < 0 {
            return Err(inner.fault(resource, "a quantity that is not negative"));
        }
        capacity.override_with(&amount);
    }
    for resource in [ResourceName::CPU, ResourceName::MEMORY] {
        if capacity.get(resource) <= 0 {
            return Err(inner.fault(resource, "a quantity above zero"));
        }
    }
    if !capacity.contains(ResourceName::PODS) {
        capacity.set(ResourceName::PODS, DEFAULT_PODS);
    }
    Ok(capacity)
}

fn offering(type_name: &str, value: &Value, place: &str) -> Result<Offering, Fault> {
    let fields = Fields::of(value, place)?;
    let price = fields
        .get("Price")
        .and_then(Value::as_f64)
        .filter(|price| *price >= 0.0);
    let price =
        price.ok_or_else(|| fields.fault("Price", "dollars per hour as a number that is not negative"))?;
    if !matches!(fields.get("Available"), None | Some(Value::Bool(_))) {
        return Err(fields.fault("Available", "true or false"));
    }
    let reserved_count = match fields.get("ReservationCapacity") {
        None => None,
        Some(value) => Some(
            value
                .as_i64()
                .filter(|count| *count >= 0)
                .ok_or_else(|| fields.fault("ReservationCapacity", "a count that is not negative"))?,
        ),
    };
    let entries = fields.array(
        "Requirements",
        "requirements that name the zone and the capacity type",
    )?;
    let mut requirements = Requirements::new();
    for (index, entry) in entries.iter().enumerate() {
        requirements.add(requirement(entry, &format!("{place}.Requirements[{index}]"))?);
    }
    let single = |key: &str| {
        requirements
            .find(key)
            .and_then(Requirement::single_value)
            .map(str::to_owned)
    };
    let zone = single(labels::ZONE)
        .ok_or_else(|| fields.fault("Requirements", &format!("exactly one value of {}", labels::ZONE)))?;
    let capacity_type: CapacityType = single(labels::CAPACITY_TYPE)
        .and_then(|value| value.parse().ok())
        .ok_or_else(|| {
            let key = labels::CAPACITY_TYPE;
            fields.fault(
                "Requirements",
                &format!("exactly one value of {key}: spot, on-demand or reserved"),
            )
        })?;
    let mut offering = Offering {
        price: Price::from_dollars(price),
        available: true,
        reservation_capacity: 0,
        ..Offering::default()
    };
    if capacity_type == CapacityType::Reserved {
        offering.reservation_capacity = reserved_count.unwrap_or(0);
        offering.reservation_id_label = Some(keys::RESERVATION_ID.to_owned());
        if single(keys::RESERVATION_ID).is_none() {
            requirements.replace(Requirement::is(
                keys::RESERVATION_ID,
                &format!("{type_name}.{zone}"),
            ));
        }
    }
    offering.requirements = requirements;
    Ok(offering)
}

fn requirement(value: &Value, place: &str) -> Result<Requirement, Fault> {
    let fields = Fields::of(value, place)?;
    let key = fields.text("key", "a label key")?;
    let expected = "one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte";
    let operator = fields.text("operator", expected)?;
    if operator.parse::<Operator>().is_err() {
        return Err(fields.fault("operator", expected));
    }
    let values = match fields.get("values") {
        None => Vec::new(),
        Some(_) => fields.texts("values", "an array of strings")?,
    };
    Requirement::parse(key, operator, &values).map_err(|error| (place.to_owned(), error.to_string()))
}

/// A JSON value for an error text, cut to a readable length.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../tests/data/instance_types.json");

    fn example() -> Value {
        serde_json::from_str(EXAMPLE).expect("the example is JSON")
    }

    #[test]
    fn p_201_the_example_is_read_with_folded_names_and_defaults() {
        let catalog = Catalog::from_json("example.json", EXAMPLE).expect("a catalog");
        let names: Vec<&str> = catalog
            .instance_types()
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!(names, ["c-1x-amd64-linux", "m5.large", "p4d.24xlarge"]);
        let first = Value::Array(vec![example()[0].clone()]).to_string();
        let alone = Catalog::from_json("first.json", &first).expect("a catalog");
        let generated = generated::instance_types();
        let small = generated.iter().find(|it| it.name == "c-1x-amd64-linux");
        assert_eq!(Some(&alone.instance_types()[0]), small, "file and rule agree");
        let large = &catalog.instance_types()[1];
        assert_eq!(large.capacity.get("pods"), 110);
        assert!(
            large.offerings.iter().all(|offering| offering.available),
            "Available is forced to true"
        );
        let gpu = &catalog.instance_types()[2];
        assert_eq!(gpu.capacity.get("nvidia.com/gpu"), 8);
        let reserved = &gpu.offerings[1];
        assert_eq!(
            (reserved.reservation_id(), reserved.reservation_capacity),
            (Some("cr-1"), 2)
        );
        let unreserved = gpu.offerings[0].requirements.find(keys::RESERVATION_ID);
        assert_eq!(
            unreserved.map(Requirement::operator),
            Some(Operator::DoesNotExist)
        );
        assert!(catalog.well_known_labels().contains(keys::RESERVATION_ID));
        assert!(catalog.well_known_labels().contains("example.com/rack"));
    }

    /// Each row changes the example at one place (a JSON pointer; `None` removes the field) and names what the error must say.
    #[test]
    fn bad_files_are_refused_with_place_and_expectation() {
        let rows: [(&str, Option<Value>, &str); 17] = [
            ("/0", Some("x".into()), r#"[0]: expected an object, found "x""#),
            (
                "/0/name",
                None,
                "[0].name: expected the name of the instance type, found nothing",
            ),
            (
                "/0/name",
                Some("a b".into()),
                r#"[0].name: expected a name that can be a label value (at most 63 letters, digits, '-', '_' or '.'), found "a b""#,
            ),
            (
                "/1/name",
                Some("c-1x-amd64-linux".into()),
                r#"[1].name: expected a name that no other entry has, found "c-1x-amd64-linux" again"#,
            ),
            (
                "/0/architecture",
                Some(1.into()),
                r#"[0] "c-1x-amd64-linux".architecture: expected an architecture such as "amd64", found 1"#,
            ),
            (
                "/0/operatingSystems",
                Some(Value::Array(vec![])),
                r#".operatingSystems: expected at least one operating system such as ["linux"], found []"#,
            ),
            (
                "/0/resources",
                None,
                r#".resources: expected an object such as {"cpu": "2", "memory": "8Gi"}, found nothing"#,
            ),
            (
                "/0/resources/cpu",
                Some("zero".into()),
                r#".resources.cpu: expected a quantity such as "8Gi", found "zero""#,
            ),
            (
                "/0/resources/cpu",
                None,
                ".resources.cpu: expected a quantity above zero, found nothing",
            ),
            (
                "/0/resources/pods",
                Some("-1".into()),
                r#".resources.pods: expected a quantity that is not negative, found "-1""#,
            ),
            (
                "/0/offerings",
                Some(Value::Array(vec![])),
                ".offerings: expected at least one offering, found []",
            ),
            (
                "/0/offerings/0/Price",
                Some("1".into()),
                r#".offerings[0].Price: expected dollars per hour as a number that is not negative, found "1""#,
            ),
            (
                "/0/offerings/0/Available",
                Some("yes".into()),
                r#".offerings[0].Available: expected true or false, found "yes""#,
            ),
            (
                "/0/offerings/0/Requirements",
                None,
                ".offerings[0].Requirements: expected requirements that name the zone and the capacity type, found nothing",
            ),
            (
                "/0/offerings/0/Requirements/0/values",
                Some(Value::Array(vec!["dear".into()])),
                "exactly one value of karpenter.sh/capacity-type: spot, on-demand or reserved",
            ),
            (
                "/0/offerings/0/Requirements/1/operator",
                Some("Is".into()),
                r#".Requirements[1].operator: expected one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte, found "Is""#,
            ),
            (
                "/0/offerings/0/Requirements/1/values",
                Some(Value::Array(vec![])),
                "key topology.kubernetes.io/zone with operator In must have a value defined",
            ),
        ];
        for (pointer, replacement, expected) in rows {
            let mut file = example();
            let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
            match replacement {
                Some(value) => *file.pointer_mut(pointer).expect(pointer) = value,
                None => {
                    let parent = file
                        .pointer_mut(parent)
                        .and_then(Value::as_object_mut)
                        .expect(pointer);
                    parent.remove(field).expect(pointer);
                }
            }
            let error = Catalog::from_json("types.json", &file.to_string())
                .expect_err(pointer)
                .to_string();
            assert!(error.starts_with("instance types file types.json: "), "{error}");
            assert!(error.contains(expected), "{pointer}: {error}");
        }
    }

    #[test]
    fn a_catalog_that_cannot_be_read_is_an_error_and_not_empty() {
        for (text, expected) in [
            ("", "types.json: is not JSON: EOF"),
            ("{}", "types.json: expected an array of instance types, found {}"),
            (
                "[]",
                "types.json: expected at least one instance type, found an empty array",
            ),
        ] {
            let error = Catalog::from_json("types.json", text)
                .expect_err(text)
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = Catalog::from_file(Path::new("/nowhere/types.json"))
            .expect_err("no such file")
            .to_string();
        assert!(
            error.contains("instance types file /nowhere/types.json: cannot be read: "),
            "{error}"
        );
    }
}
