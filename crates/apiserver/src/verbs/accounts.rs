//! The `default` service account that every namespace has: on a real cluster a controller makes it and makes it again.

use serde_json::json;

use crate::kinds::service_account::DEFAULT;
use crate::store::state::{ApiServer, State};
use crate::verbs::writing::seconds;

/// Where service accounts are kept.
const PLURAL: &str = "serviceaccounts";

/// Whether an object is the `default` account of its namespace.
pub(super) fn is_default(storage: &(String, String), name: &str) -> bool {
    storage.0.is_empty() && storage.1 == PLURAL && name == DEFAULT
}

impl ApiServer {
    /// Makes the account, unless it is there or its namespace is on its way out.
    pub(super) fn keep_default_account(&self, state: &mut State, namespace: &str) {
        let namespaces = (String::new(), "namespaces".to_owned());
        let lives = state
            .stored(&namespaces, &(String::new(), namespace.to_owned()))
            .is_some_and(|namespace| namespace.value["metadata"]["deletionTimestamp"].is_null());
        let storage = (String::new(), PLURAL.to_owned());
        let key = (namespace.to_owned(), DEFAULT.to_owned());
        if !lives || state.stored(&storage, &key).is_some() {
            return;
        }
        let uid = state.new_uid();
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {
            "name": DEFAULT, "namespace": namespace, "uid": uid, "creationTimestamp": seconds(self.now())}});
        state.commit(&storage, &key, account, false);
    }
}
