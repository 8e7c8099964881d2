//! A caller that dies between two of its requests.
//!
//! Owns the counting. What a request does is [`Azure`]'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use spokeshave_azure_cloud::{Http, Request, Response};

use crate::azure::Azure;

/// How many requests a caller still makes. The last one takes effect, and its reply never arrives; nor does that of any later one.
#[derive(Clone, Debug)]
pub struct Lifeline(Arc<AtomicU64>);

impl Lifeline {
    /// Whether the last request has been made.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Azure {
    /// A way to this Azure for a caller that makes so many requests.
    #[must_use]
    pub fn mortal(&self, requests: u64) -> (Arc<dyn Http>, Lifeline) {
        let life = Lifeline(Arc::new(AtomicU64::new(requests)));
        let http = Mortal {
            azure: self.clone(),
            life: life.clone(),
        };
        (Arc::new(http), life)
    }
}

#[derive(Debug)]
struct Mortal {
    azure: Azure,
    life: Lifeline,
}

impl Http for Mortal {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, String>> {
        async move {
            if self.life.has_ended() {
                return std::future::pending().await;
            }
            let reply = self.azure.answer(&request);
            if self.life.0.fetch_sub(1, Ordering::Relaxed) == 1 {
                return std::future::pending().await;
            }
            reply
        }
        .boxed()
    }
}
