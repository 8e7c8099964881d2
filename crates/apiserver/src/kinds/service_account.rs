//! Service accounts, as new pods meet them: the account of a pod is there, and lends it its secrets for images. Tokens are mounted into no pod.

use serde_json::{Value, json};

use super::filling::with;
use crate::checks::{items, text};
use crate::store::state::State;

/// The account of pods that name none, which every namespace has.
pub(crate) const DEFAULT: &str = "default";
/// Annotation of a kubelet's own pods, which run for nobody.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Gives a new pod its account.
///
/// # Errors
/// There is no such account in the pod's namespace.
pub(super) fn admit_pod(state: &State, pod: &mut Value) -> Result<(), String> {
    let spec = &pod["spec"];
    // The second field is an older name of the first.
    let fields = ["serviceAccountName", "serviceAccount"];
    let mut names = fields.iter().map(|field| text(&spec[*field]));
    let named = names.find(|name| !name.is_empty());
    if pod["metadata"]["annotations"][MIRROR].is_string() {
        return match named {
            Some(_) => Err("a mirror pod may not reference service accounts".to_owned()),
            None => Ok(()),
        };
    }
    let named = named.unwrap_or(DEFAULT).to_owned();
    let namespace = text(&pod["metadata"]["namespace"]).to_owned();
    let key = (namespace, named);
    let account = state.stored(&(String::new(), "serviceaccounts".to_owned()), &key);
    let (namespace, named) = key;
    let Some(account) = account else {
        return Err(format!(
            "error looking up service account {namespace}/{named}: serviceaccount {named:?} not found"
        ));
    };
    let secrets = &account.value["imagePullSecrets"];
    let lends = items(&pod["spec"]["imagePullSecrets"]).is_empty() && !items(secrets).is_empty();
    with(&mut pod["spec"], |spec| {
        for field in fields {
            spec.insert(field.to_owned(), json!(named));
        }
        if lends {
            spec.insert("imagePullSecrets".to_owned(), secrets.clone());
        }
    });
    Ok(())
}
