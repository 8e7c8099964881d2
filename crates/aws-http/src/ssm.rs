//! Parameters of Systems Manager, which name images.

use serde::Deserialize;
use serde_json::json;

use crate::endpoints::Service;
use crate::error::CallError;
use crate::session::{Request, Session};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reply {
    parameter: Parameter,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parameter {
    value: String,
}

/// `GetParameter`: the value of a parameter.
///
/// # Errors
///
/// `ParameterNotFound`, denied calls, or no answer.
pub async fn parameter(session: &Session, name: &str) -> Result<String, CallError> {
    let request = Request::json(
        Service::Ssm,
        "1.1",
        "AmazonSSM",
        "GetParameter",
        &json!({ "Name": name }),
    );
    let reply: Reply = session.json(&request).await?;
    Ok(reply.parameter.value)
}
