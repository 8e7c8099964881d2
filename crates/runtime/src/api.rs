//! Requests for the objects of one kind: kube's `Api`, whose answers are decoded from a tree.
//!
//! The methods are kube's, with the same names and arguments; answers come without managedFields. What differs is how much of the program they take: the requests of all kinds are
//! one piece of code (see [`raw`](crate::raw)), and a kind brings its decoder along and nothing else.

use std::fmt;
use std::marker::PhantomData;

use either::Either;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::autoscaling::v1::Scale;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ObjectList, Status};
use kube::{Client, Resource, Result};
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::json;
use spokeshave_ports::read_object;

use crate::raw::{Raw, RawKind};

type RawApi = kube::Api<Raw>;

/// The objects of one kind, everywhere or in one namespace.
pub struct Api<K> {
    raw: RawApi,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        Self {
            raw: self.raw.clone(),
            kind: PhantomData,
        }
    }
}

impl<K> fmt::Debug for Api<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

impl<K: Resource<DynamicType = ()>> Api<K> {
    /// Of all namespaces, or of none.
    #[must_use]
    pub fn all(client: Client) -> Self {
        Self {
            raw: RawApi::all_with(client, &RawKind::of::<K>()),
            kind: PhantomData,
        }
    }

    /// Of one namespace.
    #[must_use]
    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self {
            raw: RawApi::namespaced_with(client, namespace, &RawKind::of::<K>()),
            kind: PhantomData,
        }
    }

    /// Of the client's own namespace.
    #[must_use]
    pub fn default_namespaced(client: Client) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self {
            raw: RawApi::default_namespaced_with(client, &RawKind::of::<K>()),
            kind: PhantomData,
        }
    }
}

/// The response of the API server, as a value of its kind.
fn decoded<K: DeserializeOwned>(raw: Raw) -> Result<K> {
    read_object(raw.into_tree()).map_err(|error| kube::Error::SerdeError(serde_json::Error::custom(error)))
}

// The requests are boxed here, so that only this crate contains their code.

fn get<'a>(api: &'a RawApi, name: &'a str) -> BoxFuture<'a, Result<Raw>> {
    Box::pin(api.get(name))
}

fn get_opt<'a>(api: &'a RawApi, name: &'a str) -> BoxFuture<'a, Result<Option<Raw>>> {
    Box::pin(api.get_opt(name))
}

fn list<'a>(api: &'a RawApi, parameters: &'a ListParams) -> BoxFuture<'a, Result<ObjectList<Raw>>> {
    Box::pin(api.list(parameters))
}

fn create<'a>(api: &'a RawApi, parameters: &'a PostParams, object: &'a Raw) -> BoxFuture<'a, Result<Raw>> {
    Box::pin(api.create(parameters, object))
}

fn delete<'a>(
    api: &'a RawApi,
    name: &'a str,
    parameters: &'a DeleteParams,
) -> BoxFuture<'a, Result<Either<Raw, Status>>> {
    Box::pin(api.delete(name, parameters))
}

fn replace<'a>(
    api: &'a RawApi,
    name: &'a str,
    parameters: &'a PostParams,
    object: &'a Raw,
) -> BoxFuture<'a, Result<Raw>> {
    Box::pin(api.replace(name, parameters, object))
}

/// The request for an object.
fn encoded<K: Serialize>(object: &K) -> Result<Raw> {
    let tree = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    Ok(Raw::new(tree))
}

impl<K: Clone + DeserializeOwned> Api<K> {
    /// One object.
    ///
    /// # Errors
    /// The server's, also that there is none.
    pub async fn get(&self, name: &str) -> Result<K> {
        decoded(get(&self.raw, name).await?)
    }

    /// One object, if it exists.
    ///
    /// # Errors
    /// The server's.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>> {
        get_opt(&self.raw, name).await?.map(decoded).transpose()
    }

    /// All objects.
    ///
    /// # Errors
    /// The server's, and that one of the objects cannot be decoded.
    pub async fn list(&self, parameters: &ListParams) -> Result<ObjectList<K>> {
        let found = list(&self.raw, parameters).await?;
        Ok(ObjectList {
            types: found.types,
            metadata: found.metadata,
            items: found.items.into_iter().map(decoded).collect::<Result<_>>()?,
        })
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The server's.
    pub async fn create(&self, parameters: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        decoded(create(&self.raw, parameters, &encoded(object)?).await?)
    }

    /// Deletes an object; what is left of it, when it does not go at once.
    ///
    /// # Errors
    /// The server's.
    pub async fn delete(&self, name: &str, parameters: &DeleteParams) -> Result<Either<K, Status>> {
        Ok(match delete(&self.raw, name, parameters).await? {
            Either::Left(object) => Either::Left(decoded(object)?),
            Either::Right(status) => Either::Right(status),
        })
    }

    /// Changes an object.
    ///
    /// # Errors
    /// The server's.
    pub async fn patch<P>(&self, name: &str, parameters: &PatchParams, patch: &Patch<P>) -> Result<K>
    where
        P: Serialize + fmt::Debug + Sync,
    {
        let answer: BoxFuture<'_, Result<Raw>> = Box::pin(self.raw.patch(name, parameters, patch));
        decoded(answer.await?)
    }

    /// Changes an object's status.
    ///
    /// # Errors
    /// The server's.
    pub async fn patch_status<P>(&self, name: &str, parameters: &PatchParams, patch: &Patch<P>) -> Result<K>
    where
        P: Serialize + fmt::Debug + Sync,
    {
        let answer: BoxFuture<'_, Result<Raw>> = Box::pin(self.raw.patch_status(name, parameters, patch));
        decoded(answer.await?)
    }

    /// Changes how many replicas an object is to have, through its scale subresource: of that write only the number has a new owner.
    ///
    /// # Errors
    /// The server's.
    pub async fn patch_scale<P>(
        &self,
        name: &str,
        parameters: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<Scale>
    where
        P: Serialize + fmt::Debug + Sync,
    {
        let answer: BoxFuture<'_, Result<Scale>> = Box::pin(self.raw.patch_scale(name, parameters, patch));
        answer.await
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// The server's.
    pub async fn replace(&self, name: &str, parameters: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        decoded(replace(&self.raw, name, parameters, &encoded(object)?).await?)
    }

    /// Writes to a subresource; the response has its own kind.
    ///
    /// # Errors
    /// The server's.
    pub async fn create_subresource<B, A>(
        &self,
        subresource: &str,
        name: &str,
        parameters: &PostParams,
        body: &B,
    ) -> Result<A>
    where
        B: Serialize,
        A: DeserializeOwned,
    {
        self.raw
            .create_subresource(subresource, name, parameters, body)
            .await
    }

    /// Evicts a pod (policy/v1).
    ///
    /// # Errors
    /// The server's: 429 when a budget does not allow it.
    pub async fn evict(&self, name: &str, parameters: &EvictParams) -> Result<Status> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": parameters.delete_options,
        });
        self.create_subresource("eviction", name, &parameters.post_options, &eviction)
            .await
    }
}
