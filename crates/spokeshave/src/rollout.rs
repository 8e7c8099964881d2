//! `rollout`: the progress of drift in waves, and the commands pause, resume, approve.
//!
//! It reads and patches DisruptionPolicies; the controllers act on them.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use spokeshave_api::DisruptionPolicy;
use spokeshave_api::disruption_policy::{RolloutApproval, RolloutPhase, RolloutStatus};

use crate::cluster::Cluster;
use crate::connection::ClusterArgs;
use crate::text::wrap;
use crate::{field, freeze};

pub(crate) const EXAMPLES: &str = "\
Examples:
  spokeshave rollout status                    all rollouts in progress
  spokeshave rollout pause careful             start nothing further under DisruptionPolicy careful
  spokeshave rollout resume careful            continue, and ignore what halted it
  spokeshave rollout approve careful default   start the next wave of NodePool default

It reads and patches DisruptionPolicies with spec.rollout; docs/policies.md explains each field.";

/// What a resumption does not forgive.
const GOES_ON_RESTARTING: &str =
    "a pod that goes on restarting halts it again: raise health.restarts, or mend or remove the pod";

/// Halts are written down in whole seconds.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Arguments of `rollout`.
#[derive(Debug, Args)]
// Before or after the subcommand.
#[command(mut_args(|argument| argument.global(true)))]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    what: What,
    /// The cluster
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show the rollouts in progress
    Status,
    /// Pause a rollout: start nothing further
    Pause {
        /// The DisruptionPolicy
        #[arg(value_name = "POLICY")]
        policy: String,
    },
    /// Resume after a pause or a halt
    Resume {
        /// The DisruptionPolicy
        #[arg(value_name = "POLICY")]
        policy: String,
    },
    /// Approve the next wave of a NodePool
    Approve {
        /// The DisruptionPolicy
        #[arg(value_name = "POLICY")]
        policy: String,
        /// The NodePool
        #[arg(value_name = "NODEPOOL")]
        node_pool: String,
    },
}

/// Runs the command.
///
/// # Errors
/// The cluster does not answer, there is no such policy, or it has no roll-outs.
pub(crate) async fn run(args: &RolloutArgs) -> Result<String> {
    let cluster = Cluster::reach(&args.cluster).await?;
    let api = freeze::objects(cluster.client);
    let (name, patch, said) = match &args.what {
        What::Status => {
            let list = api.list(&ListParams::default()).await;
            return Ok(status(&list.context("cannot list DisruptionPolicies")?.items));
        }
        What::Pause { policy } => (policy, json!({"paused": true}), "paused".to_owned()),
        What::Resume { policy } => {
            let (patch, said) = resumption(&of(&api, policy).await?, cluster.now);
            (policy, patch, said)
        }
        What::Approve { policy, node_pool } => {
            let found = of(&api, policy).await?;
            let (patch, said) = approval(&found, node_pool)?;
            (policy, patch, said)
        }
    };
    of(&api, name).await?;
    let patch = Patch::Merge(json!({"spec": {"rollout": patch}}));
    api.patch(name, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("cannot patch DisruptionPolicy {name}"))?;
    Ok(format!("DisruptionPolicy {name}: {said}\n"))
}

/// What is told of all policies; one that cannot be read is named, and hides no other.
fn status(objects: &[DynamicObject]) -> String {
    let (mut policies, mut problems) = (Vec::new(), String::new());
    for object in objects {
        match read(object) {
            Ok(policy) => policies.push(policy),
            Err(problem) => _ = writeln!(problems, "{problem}"),
        }
    }
    table(&policies) + &problems
}

/// Reads a policy as the cluster has it.
fn read(object: &DynamicObject) -> Result<DisruptionPolicy> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    field::read(&serde_json::to_string(object)?)
        .map_err(|problem| anyhow!("DisruptionPolicy {name} cannot be read: {problem}"))
}

/// A policy that has roll-outs.
async fn of(api: &Api<DynamicObject>, name: &str) -> Result<DisruptionPolicy> {
    let found = api.get(name).await;
    let found = read(&found.with_context(|| format!("cannot read DisruptionPolicy {name}"))?)?;
    if found.spec.rollout.is_none() {
        bail!("DisruptionPolicy {name} has no spec.rollout: drift is not rolled out in waves");
    }
    Ok(found)
}

/// The end of a pause. Only where something is halted is anything forgiven: a pause is no verdict on what goes on meanwhile.
fn resumption(policy: &DisruptionPolicy, now: Timestamp) -> (Value, String) {
    let rollouts = policy.status.iter().flat_map(|status| &status.rollouts);
    let is_halted = |one: &&RolloutStatus| one.phase == RolloutPhase::Halted;
    let halted: Vec<&RolloutStatus> = rollouts.filter(is_halted).collect();
    if halted.is_empty() {
        return (json!({"paused": null}), "resumed".to_owned());
    }
    // Only halts from before it are cleared, and the operator, whose clock may be ahead of the cluster's, tells when they were.
    let halts = halted.iter().filter_map(|one| one.halted_at.as_ref());
    let after = halts.map(|time| time.0.saturating_add(SECOND).unwrap_or(Timestamp::MAX));
    let resumed = after.fold(now, Timestamp::max);
    let patch = json!({"paused": null, "resumedAt": resumed.to_string()});
    let pools: Vec<&str> = halted.iter().map(|one| one.node_pool.as_str()).collect();
    let said = format!(
        "resumed, and what halted NodePool {} is ignored",
        pools.join(", ")
    );
    (patch, said)
}

/// The wave after the one that a NodePool is in, for this roll-out and no later one.
fn approval(policy: &DisruptionPolicy, node_pool: &str) -> Result<(Value, String)> {
    let rollouts = policy.status.as_ref().map(|status| status.rollouts.as_slice());
    let known = rollouts
        .unwrap_or_default()
        .iter()
        .find(|one| one.node_pool == node_pool);
    let Some(known) = known else {
        bail!(
            "no rollout of NodePool {node_pool} is in progress under DisruptionPolicy {}",
            policy.name()
        );
    };
    if !needs_approval(policy) {
        bail!(
            "DisruptionPolicy {} needs no approval; set `approval: Manual` in its spec.rollout",
            policy.name()
        );
    }
    let next = known.wave + 1;
    Ok((
        json!({"approved": {node_pool: next}, "approvedFor": {node_pool: known.since}}),
        format!("wave {next} of NodePool {node_pool} may start"),
    ))
}

fn table(policies: &[DisruptionPolicy]) -> String {
    let mut out = String::new();
    for policy in policies.iter().filter(|policy| policy.spec.rollout.is_some()) {
        let rollouts = policy.status.as_ref().map(|status| status.rollouts.as_slice());
        let rollouts = rollouts.unwrap_or_default();
        let is_paused = policy.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused);
        if rollouts.is_empty() {
            let paused = if is_paused { "paused; " } else { "" };
            let _ = writeln!(
                out,
                "DisruptionPolicy {}: {paused}nothing to roll out",
                policy.name()
            );
        }
        for one in rollouts {
            line(&mut out, policy, is_paused, one);
        }
    }
    if out.is_empty() {
        out.push_str("no DisruptionPolicy has spec.rollout\n");
    }
    out
}

fn line(out: &mut String, policy: &DisruptionPolicy, is_paused: bool, one: &RolloutStatus) {
    // The phase is where it was when it was paused, and where it will be when it is resumed.
    let phase = if is_paused {
        format!("paused ({})", one.phase)
    } else {
        one.phase.to_string()
    };
    let (name, pool) = (policy.name(), &one.node_pool);
    let _ = writeln!(
        out,
        "DisruptionPolicy {name}, NodePool {pool}: {phase}, {} left",
        one.remaining
    );
    if let Some(message) = &one.message {
        let _ = writeln!(out, "{}", wrap(message, 2, 4));
    }
    if let Some(eta) = &one.eta {
        let _ = writeln!(
            out,
            "  estimated completion {}",
            eta.0.strftime("%Y-%m-%d %H:%M UTC")
        );
    }
    let _ = match one.phase {
        _ if is_paused => writeln!(out, "  to continue: spokeshave rollout resume {name}"),
        RolloutPhase::WaitingForApproval if !needs_approval(policy) => {
            writeln!(
                out,
                "  wave {} needs no approval any more: it starts once the operator has seen that, and all is healthy",
                one.wave + 1
            )
        }
        RolloutPhase::WaitingForApproval if is_approved(policy, one) => {
            writeln!(
                out,
                "  wave {} is approved: it starts once the operator has seen that, and all is healthy",
                one.wave + 1
            )
        }
        RolloutPhase::WaitingForApproval => {
            writeln!(out, "  to start it: spokeshave rollout approve {name} {pool}")
        }
        RolloutPhase::Halted if is_resumed(policy, one) => {
            writeln!(out, "  resumed: it continues once the operator has seen that")
        }
        RolloutPhase::Halted => writeln!(
            out,
            "  to continue anyway: spokeshave rollout resume {name}\n{}",
            wrap(GOES_ON_RESTARTING, 2, 4)
        ),
        _ => Ok(()),
    };
}

/// Whether each wave after the canary waits until somebody has approved it.
fn needs_approval(policy: &DisruptionPolicy) -> bool {
    let rollout = policy.spec.rollout.as_ref();
    rollout.is_some_and(|rollout| rollout.approval == Some(RolloutApproval::Manual))
}

/// Whether the wave after the present one has been approved in this roll-out, as the operator will see it.
fn is_approved(policy: &DisruptionPolicy, one: &RolloutStatus) -> bool {
    let rollout = policy.spec.rollout.as_ref();
    rollout.is_some_and(|rollout| {
        one.is_approved_anew(rollout) && rollout.approved.get(&one.node_pool) > Some(&one.wave)
    })
}

/// Whether a halt has been resumed, as the operator will see it.
fn is_resumed(policy: &DisruptionPolicy, one: &RolloutStatus) -> bool {
    let rollout = policy.spec.rollout.as_ref();
    rollout.is_some_and(|rollout| one.is_resumed(rollout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(status: Value) -> DisruptionPolicy {
        let object = json!({"apiVersion": "spokeshave.dev/v1alpha1", "kind": "DisruptionPolicy", "metadata": {"name": "careful"},
            "spec": {"rollout": {"soak": "5m", "approval": "Manual"}}, "status": status});
        serde_json::from_value(object).expect("a policy")
    }

    fn waiting() -> DisruptionPolicy {
        policy(
            json!({"rollouts": [{"nodePool": "default", "since": "2026-11-21T08:00:00Z", "wave": 2, "size": 2, "begun": 2, "remaining": 9,
            "waveSince": "2026-11-21T08:20:00Z", "phase": "WaitingForApproval", "message": "wave 2 is through and healthy", "eta": "2026-11-21T10:00:00Z"}]}),
        )
    }

    #[test]
    fn the_status_of_roll_outs_is_told() {
        let expected = "DisruptionPolicy careful, NodePool default: WaitingForApproval, 9 left\n  wave 2 is through and healthy\n  estimated completion 2026-11-21 10:00 UTC\n  to start it: spokeshave rollout approve careful default\n";
        assert_eq!(table(&[waiting()]), expected);
        let mut halted = waiting();
        halted.status.as_mut().expect("a status").rollouts[0].phase = RolloutPhase::Halted;
        let told = table(&[halted]);
        let words: Vec<&str> = told.split_whitespace().collect();
        let expected = format!("to continue anyway: spokeshave rollout resume careful {GOES_ON_RESTARTING}");
        assert!(words.join(" ").ends_with(&expected), "{told}");
        assert_eq!(
            table(&[policy(json!({}))]),
            "DisruptionPolicy careful: nothing to roll out\n"
        );
        assert_eq!(table(&[]), "no DisruptionPolicy has spec.rollout\n");
    }

    /// The operator writes its status a moment later; until then nobody is told to do again what is done.
    #[test]
    fn what_was_just_approved_or_resumed_is_not_asked_for_again() {
        let said = |policy: &DisruptionPolicy, edit: &Value| {
            let mut object = serde_json::to_value(policy).expect("JSON");
            for (field, value) in edit.as_object().expect("fields") {
                object["spec"]["rollout"][field] = value.clone();
            }
            let edited: DisruptionPolicy = serde_json::from_value(object).expect("a policy");
            table(&[edited]).lines().last().unwrap_or_default().to_owned()
        };
        let approved = "  wave 3 is approved: it starts once the operator has seen that, and all is healthy";
        let asks = "  to start it: spokeshave rollout approve careful default";
        let mut waiting = waiting();
        let this = json!({"approved": {"default": 3}, "approvedFor": {"default": "2026-11-21T08:00:00Z"}});
        assert_eq!(said(&waiting, &json!({"approved": {"default": 3}})), approved);
        assert_eq!(said(&waiting, &this), approved);
        assert_eq!(said(&waiting, &json!({"approved": {"default": 2}})), asks);
        assert_eq!(said(&waiting, &json!({"approved": {"other": 3}})), asks);
        let goes_on = "  wave 3 needs no approval any more: it starts once the operator has seen that, and all is healthy";
        assert_eq!(said(&waiting, &json!({"approval": "Automatic"})), goes_on);
        assert_eq!(said(&waiting, &json!({"approval": null})), goes_on);
        waiting.status.as_mut().expect("a status").rollouts[0].approved_before = Some(3);
        assert_eq!(
            said(&waiting, &json!({"approved": {"default": 3}})),
            asks,
            "it stood there before"
        );
        assert_eq!(said(&waiting, &this), approved);

        let mut halted = waiting;
        let one = &mut halted.status.as_mut().expect("a status").rollouts[0];
        one.phase = RolloutPhase::Halted;
        let at: Timestamp = "2026-11-21T08:30:00Z".parse().expect("a time");
        one.halted_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        let resumed = "  resumed: it continues once the operator has seen that";
        assert_eq!(
            said(&halted, &json!({"resumedAt": "2026-11-21T08:30:01Z"})),
            resumed
        );
        let earlier = said(&halted, &json!({"resumedAt": "2026-11-21T08:30:00Z"}));
        assert_ne!(earlier, resumed, "that was before the halt");
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_named_with_its_field_and_hides_no_other() {
        let object = |policy: &DisruptionPolicy| -> DynamicObject {
            serde_json::from_value(serde_json::to_value(policy).expect("JSON")).expect("an object")
        };
        let mut odd = object(&waiting());
        odd.metadata.name = Some("odd".to_owned());
        odd.data["spec"]["rollout"]["paused"] = json!("perhaps");
        let told = status(&[odd, object(&waiting())]);
        assert!(
            told.starts_with("DisruptionPolicy careful, NodePool default: "),
            "{told}"
        );
        let problem = "DisruptionPolicy odd cannot be read: spec.rollout.paused: invalid type: string \"perhaps\", expected a boolean\n";
        assert!(told.ends_with(problem), "{told}");
    }

    #[test]
    fn a_pause_is_told_whatever_the_controllers_have_written() {
        let mut paused = waiting();
        paused.spec.rollout.as_mut().expect("a roll-out").paused = true;
        let told = table(&[paused.clone()]);
        assert!(
            told.starts_with(
                "DisruptionPolicy careful, NodePool default: paused (WaitingForApproval), 9 left\n"
            ),
            "{told}"
        );
        assert!(
            told.ends_with("  to continue: spokeshave rollout resume careful\n"),
            "{told}"
        );
        paused.status = None;
        assert_eq!(
            table(&[paused]),
            "DisruptionPolicy careful: paused; nothing to roll out\n"
        );
    }

    /// What is seen after a pause counts as before; only a halt is forgiven.
    #[test]
    fn a_pause_ends_without_forgiving_anything() {
        let now: Timestamp = "2026-11-21T09:00:00Z".parse().expect("a time");
        let (patch, said) = resumption(&waiting(), now);
        assert_eq!(patch, json!({"paused": null}));
        assert_eq!(said, "resumed");
        let mut halted = waiting();
        halted.status.as_mut().expect("a status").rollouts[0].phase = RolloutPhase::Halted;
        let (patch, said) = resumption(&halted, now);
        assert_eq!(patch, json!({"paused": null, "resumedAt": now.to_string()}));
        assert_eq!(said, "resumed, and what halted NodePool default is ignored");
        halted.status = None;
        assert_eq!(resumption(&halted, now).0, json!({"paused": null}));
    }

    /// The operator clears halts from before a resumption, and tells by its own clock when it halted something: two minutes ahead here, in the same second, or before.
    #[test]
    fn a_resumption_is_later_than_each_halt_that_it_clears() {
        let now: Timestamp = "2026-11-21T09:00:00Z".parse().expect("a time");
        for (halted_at, resumed_at) in [
            ("2026-11-21T09:02:00Z", "2026-11-21T09:02:01Z"),
            ("2026-11-21T09:00:00Z", "2026-11-21T09:00:01Z"),
            ("2026-11-21T08:58:00Z", "2026-11-21T09:00:00Z"),
        ] {
            let halt = |pool: &str, at: &str| {
                json!({"nodePool": pool, "since": "2026-11-21T08:00:00Z", "wave": 2, "size": 2, "begun": 2, "remaining": 9,
                    "waveSince": "2026-11-21T08:20:00Z", "phase": "Halted", "haltedAt": at})
            };
            let earlier = halt("earlier", "2026-11-21T08:30:00Z");
            let halted = policy(json!({"rollouts": [halt("default", halted_at), earlier]}));
            let (patch, said) = resumption(&halted, now);
            assert_eq!(patch, json!({"paused": null, "resumedAt": resumed_at}));
            assert_eq!(
                said,
                "resumed, and what halted NodePool default, earlier is ignored"
            );
        }
    }

    #[test]
    fn the_next_wave_is_approved_by_its_number() {
        let (patch, said) = approval(&waiting(), "default").expect("a roll-out");
        let this = json!({"default": "2026-11-21T08:00:00Z"});
        assert_eq!(patch, json!({"approved": {"default": 3}, "approvedFor": this}));
        assert_eq!(said, "wave 3 of NodePool default may start");
        assert!(approval(&waiting(), "other").is_err());
        let mut automatic = waiting();
        automatic.spec.rollout.as_mut().expect("a roll-out").approval = None;
        let refused = approval(&automatic, "default")
            .expect_err("nothing waits")
            .to_string();
        assert!(refused.contains("`approval: Manual`"), "{refused}");
    }
}
