//! Objects of any kind, as users make, read, change and delete them. A failure is the test's.

use std::fmt::Debug;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PropagationPolicy};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use spokeshave_runtime::Api;

use super::Scene;

/// Where users look for objects by name: in no namespace, or in their own.
pub trait Reach {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client) -> Api<K>;
}

impl Reach for ClusterResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client) -> Api<K> {
        Api::all(client)
    }
}

impl Reach for NamespaceResourceScope {
    fn api<K: Resource<DynamicType = (), Scope = Self>>(client: Client) -> Api<K> {
        Api::default_namespaced(client)
    }
}

/// Any kind of object.
pub trait Kind:
    Resource<DynamicType = (), Scope: Reach> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope: Reach> + Clone + Debug + Serialize + DeserializeOwned
{
}

pub trait Objects: Scene {
    fn api<K: Kind>(&self) -> Api<K> {
        <K::Scope as Reach>::api::<K>(self.lab().client.clone())
    }

    /// `kind` and `apiVersion` may be left out.
    async fn create<K: Kind>(&self, object: Value) -> K {
        self.lab().create(&self.api::<K>(), object).await.unwrap()
    }

    async fn get<K: Kind>(&self, name: &str) -> K {
        self.api().get(name).await.unwrap()
    }

    async fn find<K: Kind>(&self, name: &str) -> Option<K> {
        self.api().get_opt(name).await.unwrap()
    }

    async fn exists<K: Kind>(&self, name: &str) -> bool {
        self.find::<K>(name).await.is_some()
    }

    /// Every object of a kind, of all namespaces.
    async fn list<K: Kind>(&self) -> Vec<K> {
        let api: Api<K> = Api::all(self.lab().client.clone());
        api.list(&ListParams::default()).await.unwrap().items
    }

    async fn names<K: Kind>(&self) -> Vec<String> {
        self.list::<K>().await.iter().map(K::name_any).collect()
    }

    async fn patch<K: Kind>(&self, name: &str, patch: Value) -> K {
        self.lab().merge(&self.api::<K>(), name, patch).await.unwrap()
    }

    /// A merge patch of what is in the status.
    async fn patch_status<K: Kind>(&self, name: &str, status: Value) -> K {
        let patch = Patch::Merge(json!({"status": status}));
        self.api()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap()
    }

    /// A time that the definition lets pass and no clock shows: nobody can read the object until it is [mended](Self::mend).
    async fn spoil<K: Kind>(&self, name: &str) {
        let odd = json!({
            "type": "Odd", "status": "True", "reason": "Odd", "message": "", "lastTransitionTime": "2027-01-01T00:00:00+99:99",
        });
        let patch = Patch::Merge(json!({"status": {"conditions": [odd]}}));
        let api = self.api::<K>();
        // The answer cannot be read either.
        drop(api.patch_status(name, &PatchParams::default(), &patch).await);
        assert!(api.get(name).await.is_err(), "{name} can still be read");
    }

    /// Without conditions, so that it can be read again.
    async fn mend<K: Kind>(&self, name: &str) {
        self.patch_status::<K>(name, json!({"conditions": []})).await;
    }

    /// With an annotation on it, or without when the value is null.
    async fn annotate<K: Kind>(&self, name: &str, key: &str, value: impl Into<Value>) -> K {
        let annotations = json!({"metadata": {"annotations": {key: value.into()}}});
        self.patch(name, annotations).await
    }

    /// As a user would.
    async fn remove_finalizers<K: Kind>(&self, name: &str) -> K {
        self.patch(name, json!({"metadata": {"finalizers": null}})).await
    }

    async fn delete<K: Kind>(&self, name: &str) {
        self.api::<K>()
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// Without what it owns.
    async fn delete_alone<K: Kind>(&self, name: &str) {
        let orphan = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        self.api::<K>().delete(name, &orphan).await.unwrap();
    }
}

impl<S: Scene> Objects for S {}
