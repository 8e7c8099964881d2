//! Reading manifests from files, and applying them in an order that works.
//!
//! Owns the messages about unreadable manifests: each names the file and the document in it. It knows no kind beyond the few that
//! others need first (CustomResourceDefinitions, Namespaces, classes, service accounts).

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind, TypeMeta};
use kube::discovery::{ApiCapabilities, ApiResource, Scope};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use spokeshave_ports::SharedClock;

use crate::field;
use crate::manifest_files::{files_of_all, note_kustomization};
use crate::plan::world::is_outdated;

/// The field manager under which manifests are applied.
const FIELD_MANAGER: &str = "spokeshave-up";

/// One object, with where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    /// `FILE` or `FILE, document N`.
    pub(crate) origin: String,
    /// The object as written.
    pub(crate) object: DynamicObject,
}

/// Reads all objects of the files and directories, in the order given; a directory's files are sorted by name.
///
/// # Errors
/// Names the file, the document and what is wrong with it.
pub(crate) fn read_all(paths: &[PathBuf]) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for file in files_of_all(paths)? {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        manifests.extend(parse(&file.display().to_string(), &text)?);
    }
    Ok(manifests)
}

/// Reads the objects of one text: YAML documents, JSON, or `List`s of either.
pub(crate) fn parse(origin: &str, text: &str) -> Result<Vec<Manifest>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| anyhow!("{origin} is not valid YAML: {error}"))?;
    let single = documents.len() == 1;
    let mut manifests = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        let origin = if single {
            origin.to_owned()
        } else {
            format!("{origin}, document {}", index + 1)
        };
        collect(&origin, document, &mut manifests)?;
    }
    Ok(manifests)
}

fn collect(origin: &str, document: Value, manifests: &mut Vec<Manifest>) -> Result<()> {
    if document.is_null() {
        return Ok(());
    }
    let kind = document["kind"].as_str().unwrap_or_default().to_owned();
    let is_list = kind.ends_with("List") && document["items"].is_array();
    if is_list {
        for (index, item) in document["items"]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .enumerate()
        {
            collect(&format!("{origin}, item {}", index + 1), item, manifests)?;
        }
        return Ok(());
    }
    if kind.is_empty() || document["apiVersion"].as_str().unwrap_or_default().is_empty() {
        bail!("{origin}: an object needs apiVersion and kind");
    }
    if document["apiVersion"]
        .as_str()
        .is_some_and(|version| version.starts_with("kustomize.config.k8s.io/"))
    {
        note_kustomization(origin);
        return Ok(());
    }
    let object: DynamicObject = field::read(&document.to_string())
        .map_err(|problem| anyhow!("{origin}: {kind} cannot be read: {problem}"))?;
    if object.metadata.name.is_none() && object.metadata.generate_name.is_none() {
        bail!("{origin}: {kind} needs metadata.name or metadata.generateName");
    }
    manifests.push(Manifest {
        origin: origin.to_owned(),
        object,
    });
    Ok(())
}

/// Applies the objects (server-side apply; objects with generateName are created): CustomResourceDefinitions first, then
/// Namespaces, then what claims and pods are admitted by, then the rest as given. An object of a kind that the server does not know is skipped with a note, as other manifests of a
/// cloud's examples are of use without it.
///
/// # Errors
/// The manifest that the server rejected, with the reason; or that none was of a known kind.
pub(crate) async fn apply_all(
    client: &Client,
    clock: &SharedClock,
    mut manifests: Vec<Manifest>,
) -> Result<()> {
    let (mut applied, mut skipped) = (0_usize, 0_usize);
    manifests.sort_by_key(|manifest| match type_of(&manifest.object).kind.as_str() {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        // Claims and pods are admitted by these.
        "PriorityClass" | "RuntimeClass" | "ServiceAccount" | "StorageClass" => 2,
        _ => 3,
    });
    for manifest in manifests {
        match apply(client, clock, &manifest)
            .await
            .with_context(|| manifest.origin.clone())?
        {
            Applied::Yes => applied += 1,
            Applied::UnknownKind => {
                skipped += 1;
                eprintln!("{}", unknown_kind(&manifest));
            }
        }
    }
    if applied == 0 && skipped > 0 {
        bail!("none of the objects is of a kind that this cluster knows; see the notes above");
    }
    Ok(())
}

/// What became of a manifest.
#[derive(Debug, PartialEq, Eq)]
enum Applied {
    Yes,
    UnknownKind,
}

/// What to do about an object of a kind that is not served.
fn unknown_kind(manifest: &Manifest) -> String {
    let types = type_of(&manifest.object);
    let hint = if is_outdated(&types.api_version) {
        "`spokeshave convert -f FILE` makes it the version that is served"
    } else if types.kind == "EC2NodeClass" {
        "`spokeshave up --cloud aws` has it, with a simulated EC2; here NodePools need nodeClassRef group karpenter.kwok.sh, kind KWOKNodeClass, name default"
    } else if types.kind.ends_with("NodeClass") {
        "NodePools of this cluster need nodeClassRef group karpenter.kwok.sh, kind KWOKNodeClass, name default; with its CustomResourceDefinition the object is stored, and nothing acts on it"
    } else {
        "apply its CustomResourceDefinition first, or convert the object to a version that is served"
    };
    format!(
        "note: {}: skipped {} {:?}: this cluster has no kind {} of {}; {hint}",
        manifest.origin,
        types.kind,
        manifest.object.name_any(),
        types.kind,
        types.api_version
    )
}

fn type_of(object: &DynamicObject) -> TypeMeta {
    object.types.clone().unwrap_or_default()
}

async fn apply(client: &Client, clock: &SharedClock, manifest: &Manifest) -> Result<Applied> {
    let object = &manifest.object;
    let types = type_of(object);
    let Some((resource, capabilities)) = resource_of(client, clock, &types).await? else {
        return Ok(Applied::UnknownKind);
    };
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(
            client.clone(),
            object.metadata.namespace.as_deref().unwrap_or("default"),
            &resource,
        ),
    };
    let shown = format!("{} {:?}", types.kind, object.name_any());
    match &object.metadata.name {
        Some(name) => {
            let parameters = PatchParams::apply(FIELD_MANAGER).force();
            api.patch(name, &parameters, &Patch::Apply(object))
                .await
                .map(|_| Applied::Yes)
        }
        None => api
            .create(&kube::api::PostParams::default(), object)
            .await
            .map(|_| Applied::Yes),
    }
    .with_context(|| format!("the server refused {shown}"))
}

/// Finds the resource of a kind; a kind whose CustomResourceDefinition was just created may take a moment to be served.
async fn resource_of(
    client: &Client,
    clock: &SharedClock,
    types: &TypeMeta,
) -> Result<Option<(ApiResource, ApiCapabilities)>> {
    let kind = GroupVersionKind::try_from(types)
        .map_err(|error| anyhow!("apiVersion {:?}: {error}", types.api_version))?;
    let mut attempts_left = 20_u32;
    loop {
        match kube::discovery::pinned_kind(client, &kind).await {
            Ok(found) => return Ok(Some(found)),
            Err(_) if attempts_left == 0 => return Ok(None),
            Err(_) => {
                attempts_left -= 1;
                clock.sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: shop}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: shop}}\n";

    #[test]
    fn documents_and_lists_become_single_objects() {
        let manifests = parse("x.yaml", TWO).expect("valid");
        let names: Vec<_> = manifests
            .iter()
            .map(|manifest| manifest.object.name_any())
            .collect();
        assert_eq!(names, ["shop", "a", "b"]);
    }

    #[test]
    fn json_is_read_too() {
        let manifests = parse(
            "x.json",
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#,
        )
        .expect("valid");
        assert_eq!(manifests.len(), 1);
        assert_eq!(manifests[0].origin, "x.json");
    }

    #[test]
    fn errors_name_the_file_and_the_document() {
        for (text, expected) in [
            ("a: [1", "x.yaml is not valid YAML"),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n",
                "x.yaml: ConfigMap needs metadata.name",
            ),
            (
                "kind: ConfigMap\nmetadata: {name: a}\n",
                "x.yaml: an object needs apiVersion and kind",
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nfoo: 1\n",
                "x.yaml, document 2: an object needs",
            ),
        ] {
            let error = format!("{:#}", parse("x.yaml", text).expect_err("must be refused"));
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn what_is_for_kustomize_is_skipped() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("written");
        write("kustomization.yaml", "resources: [a.yaml]\n");
        write(
            "a.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
        );
        let manifests = read_all(&[directory.path().to_owned()]).expect("readable");
        let names: Vec<_> = manifests
            .iter()
            .map(|manifest| manifest.object.name_any())
            .collect();
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = format!(
            "{:#}",
            read_all(&[PathBuf::from("no/such/file.yaml")]).expect_err("missing")
        );
        assert!(error.starts_with("cannot read no/such/file.yaml"), "{error}");
    }
}
