//! The body of a write: how it is read, and what is said of fields that the schema does not know.
//!
//! Owns `fieldValidation`; never looks at what is stored.

use serde_json::Value;

use crate::error::{ApiError, ApiResult};
use crate::kinds::rules;
use crate::schema::decode;
use crate::store::registry::Resource;
use crate::wire::request::Request;

/// What to do with fields that the schema does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

fn field_validation(request: &Request) -> ApiResult<FieldValidation> {
    match request.parameter("fieldValidation") {
        "" | "Warn" => Ok(FieldValidation::Warn),
        "Ignore" => Ok(FieldValidation::Ignore),
        "Strict" => Ok(FieldValidation::Strict),
        other => Err(ApiError::bad_options(
            request.options_kind(),
            "FieldValueNotSupported",
            "fieldValidation",
            &format!(
                "Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\""
            ),
        )),
    }
}

/// A body that cannot be read as an object of the kind.
pub(crate) fn unfit(resource: &Resource, problem: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {problem}",
        resource.kind, resource.version, resource.kind
    ))
}

fn strict_error(resource: &Resource, sentences: &[String]) -> ApiError {
    unfit(
        resource,
        &format!("strict decoding error: {}", sentences.join(", ")),
    )
}

fn unknown_field_sentences(dropped: &[String]) -> Vec<String> {
    dropped
        .iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect()
}

/// Fields that the body names more than once, as warnings or as an error.
pub(crate) fn duplicate_fields(
    request: &Request,
    resource: &Resource,
    paths: &[String],
) -> ApiResult<Vec<String>> {
    let sentences: Vec<String> = paths
        .iter()
        .map(|path| format!("duplicate field \"{path}\""))
        .collect();
    match field_validation(request)? {
        FieldValidation::Strict if !sentences.is_empty() => Err(strict_error(resource, &sentences)),
        FieldValidation::Warn => Ok(sentences),
        _ => Ok(Vec::new()),
    }
}

/// Reads an object as the decoder of its kind does: types, spelling, unknown fields. Returns the paths of the latter.
fn read_fields(resource: &Resource, object: &mut Value) -> ApiResult<Vec<String>> {
    match resource.custom() {
        Some(version) => {
            let mut dropped = decode::decode_metadata(object).map_err(|problem| unfit(resource, &problem))?;
            dropped.extend(version.prune(object));
            Ok(dropped)
        }
        None => decode::decode(&resource.schema, &resource.kind, object)
            .map_err(|problem| unfit(resource, &problem)),
    }
}

/// Reads and defaults an object. Unknown fields go, with a warning or an error.
pub(crate) fn read(
    request: &Request,
    resource: &Resource,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let mode = field_validation(request)?;
    let sentences = unknown_field_sentences(&read_fields(resource, object)?);
    match mode {
        FieldValidation::Strict if !sentences.is_empty() => return Err(strict_error(resource, &sentences)),
        FieldValidation::Warn => warnings.extend(sentences),
        _ => {}
    }
    match resource.custom() {
        Some(version) => version.default(object),
        None => (rules(&resource.group, &resource.kind).default)(object),
    }
    Ok(())
}

/// Refuses a document of server-side apply that cannot be read or, where the request asks for strict reading, that has fields which the schema
/// does not know. It is merged with what is stored before it is read for good. Returns the paths of fields that the schema does not know.
///
/// # Errors
///
/// One that names every unknown field, or says why the document cannot be read.
pub(crate) fn check_applied(
    request: &Request,
    resource: &Resource,
    document: &Value,
) -> ApiResult<Vec<String>> {
    let mode = field_validation(request)?;
    let dropped = read_fields(resource, &mut document.clone())?;
    match mode {
        FieldValidation::Strict if !dropped.is_empty() => {
            Err(strict_error(resource, &unknown_field_sentences(&dropped)))
        }
        _ => Ok(dropped),
    }
}
