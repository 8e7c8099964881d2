//! The options of a deletion: grace, propagation, preconditions, dry run.

use serde_json::{Value, json};

use crate::error::{ApiError, ApiResult};
use crate::store::objects::Stored;
use crate::store::state::Scope;
use crate::wire::request::Request;

/// What becomes of the objects that name the deleted one as their owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// Options of a deletion.
#[derive(Debug, Clone)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    pub(crate) fn background() -> Self {
        Self {
            grace_period_seconds: None,
            propagation: Some(Propagation::Background),
            uid: None,
            resource_version: None,
            dry_run: false,
        }
    }

    pub(crate) fn of(request: &Request) -> ApiResult<Self> {
        let body = if request.body.is_empty() {
            json!({})
        } else {
            request.object("DeleteOptions")?
        };
        Self::from_value(&body, request)
    }

    /// Reads options from a body; query parameters fill in what it leaves out.
    pub(crate) fn from_value(body: &Value, request: &Request) -> ApiResult<Self> {
        let grace = &body["gracePeriodSeconds"];
        if !grace.is_null() && !grace.is_i64() {
            return Err(ApiError::bad_request(format!(
                "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: gracePeriodSeconds {grace} is no whole number"
            )));
        }
        let grace = match (
            body["gracePeriodSeconds"].as_i64(),
            request.parameter("gracePeriodSeconds"),
        ) {
            (Some(seconds), _) => Some(seconds),
            (None, "") => None,
            (None, text) => Some(text.parse().map_err(|_| {
                ApiError::bad_request(format!("gracePeriodSeconds {text:?} is not a number"))
            })?),
        };
        let policy = body["propagationPolicy"]
            .as_str()
            .unwrap_or_else(|| request.parameter("propagationPolicy"));
        let orphan = match &body["orphanDependents"] {
            Value::Bool(orphan) => Some(*orphan),
            _ if request.query.contains_key("orphanDependents") => Some(request.flag("orphanDependents")),
            _ => None,
        };
        let propagation = match (policy, orphan) {
            ("", None) => None,
            ("", Some(false)) | ("Background", _) => Some(Propagation::Background),
            ("", Some(true)) | ("Orphan", _) => Some(Propagation::Orphan),
            ("Foreground", _) => Some(Propagation::Foreground),
            (other, _) => {
                return Err(ApiError::bad_options(
                    "DeleteOptions",
                    "FieldValueNotSupported",
                    "propagationPolicy",
                    &format!(
                        "Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
                    ),
                ));
            }
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Self {
            grace_period_seconds: grace,
            propagation,
            uid: text(&body["preconditions"]["uid"]),
            resource_version: text(&body["preconditions"]["resourceVersion"]),
            dry_run: request.is_dry_run()? || body["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
        })
    }

    /// The same options for an object whose preconditions have been checked.
    pub(crate) fn unconditional(&self) -> Self {
        Self {
            uid: None,
            resource_version: None,
            ..self.clone()
        }
    }

    /// Checks the preconditions against an object.
    pub(crate) fn check(&self, scope: &Scope, stored: &Stored) -> ApiResult<()> {
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != stored.uid()) {
            return Err(ApiError::conflict(
                &scope.resource.group,
                &scope.resource.kind,
                &scope.name,
                &format!(
                    "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
                    stored.uid()
                ),
            ));
        }
        let version = stored.value["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default();
        if let Some(wanted) = self
            .resource_version
            .as_deref()
            .filter(|wanted| *wanted != version)
        {
            return Err(ApiError::conflict(
                &scope.resource.group,
                &scope.resource.kind,
                &scope.name,
                &format!(
                    "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
                ),
            ));
        }
        Ok(())
    }
}
