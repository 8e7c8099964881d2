//! Objects that this version cannot read, as another version may have written them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use spokeshave_api::NodeClaim;
use spokeshave_api::crds::without_schema;

use super::objects::Kind;
use super::{Objects as _, Scene};

pub trait Unreadable: Scene {
    /// Takes the schema of a kind away, as the definitions of another version may allow what this one cannot read.
    async fn allow_any<K: Kind>(&self) {
        let name = format!("{}.{}", K::plural(&()), K::group(&()));
        let definitions = self.api::<CustomResourceDefinition>();
        let definition = without_schema(definitions.get(&name).await.unwrap());
        let as_it_is = PostParams::default();
        definitions.replace(&name, &as_it_is, &definition).await.unwrap();
    }

    /// A merge patch of an object that need not be readable, before or after.
    async fn patch_any<K: Kind>(&self, name: &str, patch: Value) {
        let kind = ApiResource::erase::<K>(&());
        let objects: Api<DynamicObject> = Api::all_with(self.lab().client.clone(), &kind);
        let patch = Patch::Merge(patch);
        objects
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Makes a NodeClaim without taints unreadable, and leaves all else in it as it is; its kind has to [allow](Self::allow_any) it.
    async fn garble_claim(&self, claim: &str) {
        let garbled = json!({"spec": {"taints": "none"}});
        self.patch_any::<NodeClaim>(claim, garbled).await;
    }

    /// The same NodeClaim, readable again.
    async fn restore_claim(&self, claim: &str) {
        let restored = json!({"spec": {"taints": null}});
        self.patch_any::<NodeClaim>(claim, restored).await;
    }
}

impl<S: Scene> Unreadable for S {}
