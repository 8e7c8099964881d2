//! Answers of the API server that are none, as errors of the cloud.

use spokeshave_ports::CloudError;

/// What was asked for, and what was said.
pub(crate) fn request_error(what: &str, error: &kube::Error) -> CloudError {
    match error {
        kube::Error::Api(status) => CloudError::Other(format!("{what}: {}", status.message)),
        other => CloudError::Other(format!("{what}: {other}")),
    }
}
