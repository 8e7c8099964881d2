//! The commands of disruption, as recorded in their objects.

use spokeshave_api::NodeClaim;
use spokeshave_api::conditions::Conditioned as _;
use spokeshave_api::disruption::{Disruption, DisruptionPhase};

use super::{Objects as _, Rest as _, Scene};

pub trait Ledger: Scene {
    /// All commands, oldest first.
    async fn ledger(&self) -> Vec<Disruption> {
        self.list::<Disruption>().await
    }

    /// One line a command, for messages.
    async fn ledger_text(&self) -> Vec<String> {
        let line = |one: &Disruption| {
            let message = one.status.as_ref().and_then(|status| status.message.clone());
            format!(
                "{} {} {} -> {} {} ({})",
                one.spec.reason,
                one.spec.decision,
                one.spec.node_summary,
                one.spec.replacement_summary,
                one.phase(),
                message.unwrap_or_default()
            )
        };
        self.ledger().await.iter().map(line).collect()
    }

    /// How many commands of a reason ended in a phase.
    async fn ended(&self, reason: &str, phase: DisruptionPhase) -> usize {
        let ledger = self.ledger().await;
        let found = ledger
            .iter()
            .filter(|one| one.spec.reason.as_str() == reason && one.phase() == phase);
        found.count()
    }

    /// Nothing was ever decided.
    async fn assert_no_commands(&self) {
        assert!(self.ledger().await.is_empty(), "{:?}", self.ledger_text().await);
    }

    /// No command is under way, no stray taint, no leaked instance, no condition of a command that is no more.
    async fn assert_at_rest(&self) {
        self.assert_tidy().await;
        for one in self.ledger().await {
            assert!(one.is_finished(), "{:?}", self.ledger_text().await);
        }
        for claim in self.list::<NodeClaim>().await {
            assert_eq!(claim.condition("DisruptionReason"), None, "stray condition");
        }
    }
}

impl<S: Scene> Ledger for S {}
