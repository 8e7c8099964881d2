//! A request as the parameters of EC2's query protocol: `Filter.1.Value.2=running`.

use serde::Serialize;
use serde_json::Value;

/// A request that cannot be written as parameters.
#[derive(Debug, thiserror::Error)]
#[error("the request cannot be written as EC2 query parameters: {0}")]
pub struct QueryError(#[from] serde_json::Error);

/// The parameters of a request. Lists count from one; what is absent is left out.
///
/// # Errors
/// When the value has keys that are not text.
pub fn parameters(request: &impl Serialize) -> Result<Vec<(String, String)>, QueryError> {
    let mut parameters = Vec::new();
    flatten(
        &serde_json::to_value(request)?,
        &mut String::new(),
        &mut parameters,
    );
    Ok(parameters)
}

fn flatten(value: &Value, path: &mut String, parameters: &mut Vec<(String, String)>) {
    let below = |name: &str, value: &Value, path: &mut String, parameters: &mut Vec<(String, String)>| {
        let length = path.len();
        if length > 0 {
            path.push('.');
        }
        path.push_str(name);
        flatten(value, path, parameters);
        path.truncate(length);
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                below(name, value, path, parameters);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                below(&(index + 1).to_string(), value, path, parameters);
            }
        }
        Value::Null => {}
        Value::String(text) => parameters.push((path.clone(), text.clone())),
        Value::Bool(_) | Value::Number(_) => parameters.push((path.clone(), value.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::look_up::{Filter, InstancesRequest};

    #[test]
    fn a_090_filters_as_parameters() {
        let request = InstancesRequest {
            filters: vec![
                Filter::tag("karpenter.sh/nodepool", "*"),
                Filter::new("instance-state-name", ["pending", "running"]),
            ],
            ..InstancesRequest::default()
        };
        let parameters = parameters(&request).unwrap();
        let texts: Vec<String> = parameters
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            texts,
            [
                "Filter.1.Name=tag-key",
                "Filter.1.Value.1=karpenter.sh/nodepool",
                "Filter.2.Name=instance-state-name",
                "Filter.2.Value.1=pending",
                "Filter.2.Value.2=running",
            ]
        );
    }
}
