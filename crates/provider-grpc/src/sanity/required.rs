//! Calls that every provider has. Nothing is launched until all are there: it could not be found and ended.

use tonic::Code;

use super::wire::{LIMIT, Wire, code_of};
use super::{Shortcomings, failure};
use crate::link::within;
use crate::wire::{InstanceRef, ListRequest, TerminateRequest};

/// The check by which a call that is missing is named.
pub(super) const CHECK: &str = "calls_are_implemented";
/// An ID of no provider.
pub(super) const FOREIGN: &str = "stranger:///nowhere/i-0";

impl Wire<'_> {
    /// Whether the calls that find and end instances are there.
    pub(super) async fn can_end_instances(&self, failures: &mut Shortcomings) -> bool {
        let terminate = TerminateRequest {
            provider_id: FOREIGN.to_owned(),
            nodeclaim_uid: "uid-of-a-stranger".to_owned(),
            leader_term: self.term,
            ..TerminateRequest::default()
        };
        let get = InstanceRef {
            provider_id: FOREIGN.to_owned(),
        };
        let listed = within(self.clock, LIMIT, async {
            let mut stream = self.client().list_instances(ListRequest {}).await?.into_inner();
            stream.message().await.map(tonic::Response::new)
        });
        let codes = [
            ("ListInstances", code_of(&listed.await)),
            (
                "GetInstance",
                code_of(&within(self.clock, LIMIT, self.client().get_instance(get)).await),
            ),
            (
                "Terminate",
                code_of(&within(self.clock, LIMIT, self.client().terminate(terminate)).await),
            ),
        ];
        let missing = codes
            .iter()
            .filter(|(_, code)| *code == Some(Code::Unimplemented));
        let missing: Vec<&str> = missing.map(|(call, _)| *call).collect();
        if missing.is_empty() {
            return true;
        }
        let missing = missing.join(", ");
        failures.push(failure(
            CHECK,
            format!(
                "UNIMPLEMENTED: {missing}; until they exist nothing is launched, and Launch is not tried"
            ),
        ));
        false
    }
}
