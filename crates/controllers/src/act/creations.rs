//! How NodeClaims and commands come to be, and what is done when nobody answers.
//!
//! Owns the way of what was created into the stores. A creation without an answer may have taken effect, and a watch that stands still does not show it:
//! the API server is asked before anything else is created for the same NodePool (invariants 2, 15 and 38). It is asked for all NodeClaims where an instance
//! seems to belong to none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use spokeshave_api::disruption::Disruption;
use spokeshave_api::{NodeClaim, labels};
use spokeshave_model::{ObjectKind, ObjectRef};
use spokeshave_ports::causes;
use spokeshave_runtime::Api;

use crate::act::error::{ExecuteError, classify};
use crate::act::hands::{AT_ONCE, Hands};

/// NodePools for which NodeClaims may have come to be that nobody knows of, with how many creations had no answer. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Unanswered(Arc<Mutex<BTreeMap<String, usize>>>);

impl Unanswered {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pool: &str) {
        *self.lock().entry(pool.to_owned()).or_default() += 1;
    }

    /// Forgets a NodePool that was looked at, unless another creation had no answer since.
    fn forget(&self, pool: &str, looked_at: usize) {
        let mut all = self.lock();
        if all.get(pool) == Some(&looked_at) {
            all.remove(pool);
        }
    }
}

impl Hands {
    /// Creates NodeClaims, several at once (P-065), each for something. `done` is called with each and what it is for as soon as it is created or has failed; one that fails
    /// stops no other. Those of a NodePool fail for which a creation before had no answer: they were planned without knowing what came of it.
    pub(crate) async fn create_claims<'claim, For>(
        &self,
        wanted: Vec<(For, &'claim NodeClaim)>,
        done: impl Fn(For, &'claim NodeClaim, Result<NodeClaim, ExecuteError>),
    ) {
        let unknown = self.find_unnoticed_claims().await;
        let (done, unknown) = (&done, &unknown);
        let create = |(what, claim): (For, &'claim NodeClaim)| async move {
            let pool = claim.node_pool().unwrap_or_default();
            let answer = if unknown.contains(pool) {
                let target = format!("nodepool {pool}, for which a nodeclaim was created without an answer,");
                Err(ExecuteError::Conflict { target })
            } else {
                self.create_claim(claim).await
            };
            self.note_failure(&answer);
            done(what, claim, answer);
        };
        futures::stream::iter(wanted)
            .for_each_concurrent(AT_ONCE, create)
            .await;
        // At once, so that what is decided next knows of them. What fails here is tried again before the next ones are created.
        self.find_unnoticed_claims().await;
    }

    /// Takes in NodeClaims whose creation had no answer. Returns the NodePools for which there may be some that a plan made before does not know.
    async fn find_unnoticed_claims(&self) -> BTreeSet<String> {
        let pools = self.unanswered.lock().clone();
        for (pool, count) in &pools {
            match self.read_claims(pool).await {
                Ok(()) => self.unanswered.forget(pool, *count),
                Err(error) => {
                    tracing::warn!(NodePool = pool, error = %causes(&error), "nodeclaims whose creation had no answer cannot be looked for; none is created until they can");
                }
            }
        }
        pools.into_keys().collect()
    }

    /// Asks the API server for the NodeClaims of a NodePool, and takes in those that can be read.
    async fn read_claims(&self, pool: &str) -> kube::Result<()> {
        let of_pool = ListParams::default().labels(&format!("{}={pool}", labels::NODE_POOL));
        let (claims, _) = self.list_claims(&of_pool).await?;
        for claim in claims {
            self.stores.node_claims.note_written(claim);
        }
        Ok(())
    }

    /// All NodeClaims as the server has them now, and the names of those that cannot be read. The stores are left as they are: what else is decided goes by the
    /// commands beside the NodeClaims, and those must not be older than they.
    ///
    /// # Errors
    /// The class of the failure.
    pub(crate) async fn all_claims(&self) -> Result<(Vec<NodeClaim>, BTreeSet<String>), ExecuteError> {
        let found = self.list_claims(&ListParams::default()).await;
        found.map_err(|source| ExecuteError::Failed {
            verb: "list",
            target: "nodeclaims".to_owned(),
            source,
        })
    }

    /// NodeClaims of the API server, and the names of those that cannot be read. The log names these, as the watch tells of them.
    async fn list_claims(&self, which: &ListParams) -> kube::Result<(Vec<NodeClaim>, BTreeSet<String>)> {
        let kind = ApiResource::erase::<NodeClaim>(&());
        let api: kube::Api<DynamicObject> = kube::Api::all_with(self.client.clone(), &kind);
        let (mut claims, mut unreadable) = (Vec::new(), BTreeSet::new());
        for found in api.list(which).await?.items {
            let name = found.metadata.name.clone().unwrap_or_default();
            let claim = serde_json::to_value(found).and_then(serde_json::from_value::<NodeClaim>);
            match claim {
                Ok(claim) => claims.push(claim),
                Err(_) => {
                    unreadable.insert(name);
                }
            }
        }
        Ok((claims, unreadable))
    }

    /// Creates a NodeClaim and returns it with its name.
    ///
    /// # Errors
    /// The class of the failure.
    pub(super) async fn create_claim(&self, claim: &NodeClaim) -> Result<NodeClaim, ExecuteError> {
        let api: Api<NodeClaim> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), claim).await;
        let created = answer.map_err(|source| {
            let name = claim.metadata.generate_name.as_deref();
            ExecuteError::Failed {
                verb: "create nodeclaim",
                target: name.unwrap_or(claim.name()).to_owned(),
                source,
            }
        });
        match created {
            Ok(created) => {
                self.created.insert(created.name());
                self.stores.node_claims.note_written(created.clone());
                Ok(created)
            }
            Err(error) => {
                // One whose name was chosen before is created again by that name.
                if error.is_unanswered() && claim.metadata.name.is_none() {
                    self.unanswered.add(claim.node_pool().unwrap_or_default());
                }
                Err(error)
            }
        }
    }

    /// Creates a NodeClaim whose name was chosen before; one that was made before for the same Disruption is as good.
    pub(super) async fn create_replacement(&self, claim: &NodeClaim) -> Result<(), ExecuteError> {
        let error = match self.create_claim(claim).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if !error.says_already_exists() {
            return Err(error);
        }
        let api: Api<NodeClaim> = Api::all(self.client.clone());
        let there = api.get(claim.name()).await.map_err(|source| {
            let target = ObjectRef::cluster(ObjectKind::NodeClaim, claim.name(), "");
            classify("get", &target, source)
        })?;
        if there.annotation(labels::DISRUPTION) != claim.annotation(labels::DISRUPTION) {
            return Err(error);
        }
        self.stores.node_claims.note_written(there);
        Ok(())
    }

    /// Writes a command down.
    pub(super) async fn create_disruption(&self, disruption: &Disruption) -> Result<(), ExecuteError> {
        let api: Api<Disruption> = Api::all(self.client.clone());
        match api.create(&PostParams::default(), disruption).await {
            Ok(created) => {
                self.stores.disruptions.note_written(created);
                Ok(())
            }
            Err(source) => Err(ExecuteError::Failed {
                verb: "create disruption",
                target: disruption.name().to_owned(),
                source,
            }),
        }
    }

    /// Asks the API server for a command, and takes it in if there is one of that name.
    pub(crate) async fn read_disruption(&self, name: &str) -> Result<(), ExecuteError> {
        if let Some(found) = self.get::<Disruption>(name).await? {
            self.stores.disruptions.note_written(found);
        }
        Ok(())
    }
}
