//! The objects of the current cluster, as a dump: the same lists that kubectl would write, read by the same reader.
//!
//! It only lists. An object that cannot be parsed does not affect others, exactly as in a file.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, anyhow};
use http::{Request, StatusCode};
use kube::Client;

use super::dump::{self, Dump};

/// Objects in one page of a list.
const PAGE: usize = 5000;

/// The lists that decisions read, and whether a cluster may lack them.
const LISTS: [(&str, bool); 14] = [
    ("/apis/karpenter.sh/v1/nodepools", true),
    ("/apis/karpenter.sh/v1/nodeclaims", true),
    ("/api/v1/nodes", false),
    ("/api/v1/pods", false),
    ("/api/v1/namespaces", false),
    ("/apis/apps/v1/daemonsets", false),
    ("/apis/policy/v1/poddisruptionbudgets", false),
    ("/api/v1/persistentvolumes", false),
    ("/api/v1/persistentvolumeclaims", false),
    ("/apis/storage.k8s.io/v1/storageclasses", false),
    ("/apis/storage.k8s.io/v1/csinodes", false),
    ("/apis/spokeshave.dev/v1alpha1/disruptionpolicies", true),
    ("/apis/karpenter.sh/v1alpha1/nodeoverlays", true),
    ("/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers", true),
];

/// Classes on which instance types depend; one who may not see them plans without.
const CLASSES: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses";

/// What says how large workloads may become. No decision reads it, so that only `doctor` asks, and nobody has to be allowed to see it.
const AUTOSCALERS: &str = "/apis/autoscaling/v2/horizontalpodautoscalers";

/// What CapacityBuffers may name.
const BUFFER_LISTS: [&str; 4] = [
    "/api/v1/podtemplates",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
];

/// Kinds whose annotations DisruptionPolicies honor.
const OWNER_LISTS: [&str; 4] = [
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/jobs",
];

/// What DisruptionPolicies look back on.
pub(crate) const LEDGER: &str = "/apis/spokeshave.dev/v1alpha1/disruptions";

/// What default topology spread reads besides.
const SPREAD_LISTS: [&str; 4] = [
    "/api/v1/services",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/api/v1/replicationcontrollers",
];

/// Reads a cluster, and what it says where it does not list its EC2NodeClasses; `spread` when pods may get default topology spread.
///
/// # Errors
/// The cluster refuses another list.
pub(crate) async fn read(client: &Client, spread: bool) -> Result<(Dump, Option<String>)> {
    let (dump, refused) = read_unless_refused(client, spread, |path| path == CLASSES).await?;
    let refusal = refused.into_iter().map(|(_, message)| message).next();
    Ok((dump, refusal))
}

/// What HorizontalPodAutoscalers there are, or a sentence that says why that is not known.
pub(crate) async fn autoscalers(client: &Client) -> Result<Dump, String> {
    let mut dump = Dump::default();
    match add(&mut dump, client, AUTOSCALERS, true).await {
        Ok(()) => Ok(dump),
        Err(error) => {
            let why = match is_refusal(&error) {
                true => "may not be listed".to_owned(),
                false => format!("cannot be listed ({})", error.root_cause()),
            };
            Err(format!(
                "HorizontalPodAutoscalers {why}: budgets are examined with the pods that are there"
            ))
        }
    }
}

/// The commands of a cluster, and those of them that cannot be read, or a sentence that says why they are not known. A cluster whose operator is another one has none.
pub(crate) async fn commands(client: &Client) -> Result<Dump, String> {
    let mut dump = Dump::default();
    match add(&mut dump, client, LEDGER, true).await {
        Ok(()) => Ok(dump),
        Err(error) => Err(format!(
            "Disruptions cannot be listed ({}): nodes of commands under way count as if there were none",
            error.root_cause()
        )),
    }
}

/// The lists that decisions about every cluster read, and whether a cluster may lack them; `spread` when pods may get default topology spread.
pub(crate) fn lists(spread: bool) -> Vec<(&'static str, bool)> {
    let mut lists = LISTS.to_vec();
    lists.push((CLASSES, true));
    if spread {
        lists.extend(SPREAD_LISTS.map(|path| (path, false)));
    }
    lists
}

/// The lists that are read besides because of what these objects say.
pub(crate) fn further(dump: &Dump) -> BTreeSet<&'static str> {
    let mut further = BTreeSet::new();
    if !dump.capacity_buffers.is_empty() {
        further.extend(BUFFER_LISTS);
    }
    if !dump.disruption_policies.is_empty() {
        further.insert(LEDGER);
    }
    if dump.hears_workloads() {
        further.extend(OWNER_LISTS);
    }
    further
}

/// The same with restricted permissions: a forbidden kind is reported with the server's message, and skipped.
///
/// # Errors
/// The cluster does not answer, or Nodes or Pods are refused: without these there is nothing to see.
pub(crate) async fn read_what_may_be_seen(
    client: &Client,
    spread: bool,
) -> Result<(Dump, Vec<(String, String)>)> {
    read_unless_refused(client, spread, |path| !is_needed(path)).await
}

/// Reads a cluster, without the lists that may be refused and are.
async fn read_unless_refused(
    client: &Client,
    spread: bool,
    may_be_refused: impl Fn(&str) -> bool,
) -> Result<(Dump, Vec<(String, String)>)> {
    let mut dump = Dump::default();
    let mut refused = Vec::new();
    let mut paths = lists(spread);
    let mut read = BTreeSet::new();
    while !paths.is_empty() {
        for (path, optional) in paths {
            read.insert(path);
            match add(&mut dump, client, path, optional).await {
                Err(error) if is_refusal(&error) && may_be_refused(path) => {
                    refused.push((resource(path), format!("{:#}", error.root_cause())));
                }
                other => other?,
            }
        }
        let further = further(&dump).into_iter().filter(|path| !read.contains(path));
        paths = further.map(|path| (path, false)).collect();
    }
    Ok((dump, refused))
}

/// Without this list there is nothing to see.
pub(crate) fn is_needed(path: &str) -> bool {
    ["/api/v1/nodes", "/api/v1/pods"].contains(&path)
}

fn is_refusal(error: &anyhow::Error) -> bool {
    let mut causes = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<kube::Error>());
    causes.any(is_refused)
}

/// The user may not do this.
pub(crate) fn is_refused(error: &kube::Error) -> bool {
    let refused = [StatusCode::FORBIDDEN, StatusCode::UNAUTHORIZED].map(|code| code.as_u16());
    matches!(error, kube::Error::Api(status) if refused.contains(&status.code))
}

/// `/apis/karpenter.sh/v1/nodepools` → `nodepools.karpenter.sh`.
pub(crate) fn resource(path: &str) -> String {
    let mut parts = path.trim_start_matches('/').split('/');
    let group = match parts.next() {
        Some("apis") => parts.next(),
        _ => None,
    };
    let name = path.rsplit('/').next().unwrap_or(path);
    group.map_or(name.to_owned(), |group| format!("{name}.{group}"))
}

/// Adds the objects of one list to a dump; one that cannot be read is named there.
///
/// # Errors
/// The cluster does not answer, or refuses; a list that is optional may be absent.
pub(crate) async fn add(dump: &mut Dump, client: &Client, path: &str, optional: bool) -> Result<()> {
    let pages = list(client, path, optional)
        .await
        .with_context(|| format!("the cluster does not list {path}"))?;
    for page in pages {
        dump.append(dump::read(path, page.as_bytes())?);
    }
    Ok(())
}

/// The pages of one list.
///
/// # Errors
/// The cluster does not answer, or refuses; one that is optional may be absent.
pub(crate) async fn list(client: &Client, path: &str, optional: bool) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    let mut resume = String::new();
    loop {
        let uri = format!("{path}?limit={PAGE}{resume}");
        let request = Request::get(uri).body(Vec::new())?;
        let page = match client.request_text(request).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if optional && status.code == StatusCode::NOT_FOUND.as_u16() => {
                return Ok(pages);
            }
            Err(error) => return Err(anyhow!(error)),
        };
        let next = next_page(&page)?;
        pages.push(page);
        match next {
            Some(token) => resume = format!("&continue={}", escaped(&token)),
            None => return Ok(pages),
        }
    }
}

fn next_page(page: &str) -> Result<Option<String>> {
    #[derive(serde::Deserialize)]
    struct List {
        metadata: ListMeta,
    }
    #[derive(serde::Deserialize)]
    struct ListMeta {
        #[serde(rename = "continue")]
        token: Option<String>,
    }
    let list: List = serde_json::from_str(page).context("the answer is not a list")?;
    Ok(list.metadata.token.filter(|token| !token.is_empty()))
}

/// Percent-encodes a value of a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_list_is_named_as_a_right_would_be() {
        assert_eq!(resource("/api/v1/nodes"), "nodes");
        assert_eq!(
            resource("/apis/karpenter.sh/v1/nodepools"),
            "nodepools.karpenter.sh"
        );
    }

    #[test]
    fn the_token_of_the_next_page_is_found_and_escaped() {
        let page = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"a+b=="},"items":[]}"#;
        let token = next_page(page).expect("a list").expect("a token");
        assert_eq!(escaped(&token), "a%2Bb%3D%3D");
        assert_eq!(
            next_page(r#"{"metadata":{"continue":""},"items":[]}"#).expect("a list"),
            None
        );
    }
}
