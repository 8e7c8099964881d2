//! Reading manifests from files and directories, and applying them in an order that works.
//!
//! Owns the messages about unreadable manifests: each names the file and the document in it. It knows no kind beyond the few that
//! others need first (CustomResourceDefinitions, Namespaces).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind, TypeMeta};
use kube::discovery::{ApiCapabilities, ApiResource, Scope};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use spokeshave_ports::SharedClock;

/// The field manager under which manifests are applied.
const FIELD_MANAGER: &str = "spokeshave-up";

/// Extensions that count as manifests inside a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

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

/// The files behind paths that may be directories.
///
/// # Errors
/// A path cannot be read, or a directory holds no manifest.
pub(crate) fn files_of_all(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(files_of(path)?);
    }
    Ok(files)
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("cannot read directory {}", path.display()))? {
        let file = entry
            .with_context(|| format!("cannot read directory {}", path.display()))?
            .path();
        let extension = file
            .extension()
            .and_then(|extension| extension.to_str())
            .unwrap_or_default();
        if file.is_file() && EXTENSIONS.contains(&extension) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("{} has no file that ends in .yaml, .yml or .json", path.display());
    }
    Ok(files)
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
    let object: DynamicObject =
        serde_json::from_value(document).with_context(|| format!("{origin}: not an object"))?;
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
/// Namespaces, then the rest as given.
///
/// # Errors
/// Names the manifest that the server refused, and its reason.
pub(crate) async fn apply_all(
    client: &Client,
    clock: &SharedClock,
    mut manifests: Vec<Manifest>,
) -> Result<()> {
    manifests.sort_by_key(|manifest| match type_of(&manifest.object).kind.as_str() {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        _ => 2,
    });
    for manifest in manifests {
        apply(client, clock, &manifest)
            .await
            .with_context(|| manifest.origin.clone())?;
    }
    Ok(())
}

fn type_of(object: &DynamicObject) -> TypeMeta {
    object.types.clone().unwrap_or_default()
}

async fn apply(client: &Client, clock: &SharedClock, manifest: &Manifest) -> Result<()> {
    let object = &manifest.object;
    let types = type_of(object);
    let (resource, capabilities) = resource_of(client, clock, &types).await?;
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
                .map(|_| ())
        }
        None => api
            .create(&kube::api::PostParams::default(), object)
            .await
            .map(|_| ()),
    }
    .with_context(|| format!("the server refused {shown}"))
}

/// Finds the resource of a kind; a kind whose CustomResourceDefinition was just created may take a moment to be served.
async fn resource_of(
    client: &Client,
    clock: &SharedClock,
    types: &TypeMeta,
) -> Result<(ApiResource, ApiCapabilities)> {
    let kind = GroupVersionKind::try_from(types)
        .map_err(|error| anyhow!("apiVersion {:?}: {error}", types.api_version))?;
    let mut attempts_left = 20_u32;
    loop {
        match kube::discovery::pinned_kind(client, &kind).await {
            Ok(found) => return Ok(found),
            Err(error) if attempts_left == 0 => {
                return Err(anyhow!(error).context(format!(
                    "the server does not know kind {:?} of {}",
                    types.kind, types.api_version
                )));
            }
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
    fn a_missing_file_is_named() {
        let error = format!(
            "{:#}",
            read_all(&[PathBuf::from("no/such/file.yaml")]).expect_err("missing")
        );
        assert!(error.starts_with("cannot read no/such/file.yaml"), "{error}");
    }
}
