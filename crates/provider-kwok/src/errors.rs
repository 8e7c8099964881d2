//! Answers of the API server that are none, and instances that do not exist, as errors of the cloud.

use spokeshave_ports::{CloudError, causes};

use crate::keys;

/// What was asked for, and what was said.
pub(crate) fn request_error(what: &str, error: &kube::Error) -> CloudError {
    match error {
        kube::Error::Api(status) => CloudError::Other(format!("{what}: {}", status.message)),
        other => CloudError::Other(format!("{what}: {}", causes(other))),
    }
}

/// The instance of this name does not exist.
pub(crate) fn gone(name: &str) -> CloudError {
    CloudError::NodeClaimNotFound(format!(
        "instance {}{name} does not exist",
        keys::PROVIDER_ID_PREFIX
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client says of a connection that has failed; why it has, only its source says.
    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Unconnected(#[source] std::io::Error);

    #[test]
    fn a_connection_that_fails_is_told_with_its_cause() {
        let refused = std::io::Error::other("connection refused");
        let error = kube::Error::Service(Box::new(Unconnected(refused)));
        let told = request_error("listing instances", &error).to_string();
        assert!(
            told.ends_with("listing instances: ServiceError: client error (Connect): connection refused"),
            "{told}"
        );
    }
}
