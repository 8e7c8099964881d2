//! The definition of DisruptionPolicy.

use serde_json::{Value, json};

use super::shared::{self, rule};
use super::{Definition, column, wide_column};
use crate::disruption_policy::DisruptionPolicy;

const TIME_PATTERN: &str = "^([01][0-9]|2[0-3]):[0-5][0-9]$";
const END_PATTERN: &str = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$";
const DATE_PATTERN: &str = "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$";
const DOLLARS_PATTERN: &str = "^[0-9]{1,6}(\\.[0-9]{1,9})?$";
const LIMIT_PATTERN: &str = "^((100|[0-9]{1,2})%|[0-9]{1,9})$";

pub(super) fn crd() -> Value {
    Definition {
        group: DisruptionPolicy::GROUP,
        version: DisruptionPolicy::VERSION,
        kind: DisruptionPolicy::KIND,
        plural: DisruptionPolicy::PLURAL,
        namespaced: false,
        categories: &["karpenter"],
        short_names: &["dpol"],
        columns: vec![
            column("Now", "string", ".status.summary"),
            // Dates are shown as ages, and kubectl says "<invalid>" of one that is still to come.
            column("Next Change", "string", ".status.nextChange"),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("NodePools", "string", ".status.nodePools"),
        ],
        scale: None,
        schema: shared::object(
            "Restricts voluntary disruption of NodePools beyond their own budgets. All policies that select a NodePool apply. Interruption, expireAfter, repair and manual deletion are never delayed. One field causes disruption: expiry replaces nodes before their expireAfter.",
            &spec(),
            &status(),
        ),
    }
    .build()
}

fn text(description: &str) -> Value {
    json!({"description": description, "type": "string"})
}

/// A text of a form; its length is bounded, because servers estimate the cost of rules by it and refuse definitions that are too dear.
fn pattern(description: &str, pattern: &str, max_length: u32) -> Value {
    json!({"description": description, "type": "string", "pattern": pattern, "maxLength": max_length})
}

fn time(description: &str) -> Value {
    json!({"description": description, "type": "string", "format": "date-time"})
}

fn number(description: &str, minimum: i64, maximum: i64) -> Value {
    json!({"description": description, "type": "integer", "format": "int64", "minimum": minimum, "maximum": maximum})
}

fn one_of(description: &str, values: &[&str]) -> Value {
    json!({"description": description, "type": "string", "enum": values})
}

fn list(description: &str, items: &Value, maximum: u64) -> Value {
    json!({"description": description, "type": "array", "x-kubernetes-list-type": "atomic", "maxItems": maximum, "items": items})
}

fn reasons(description: &str) -> Value {
    let mut schema = list(
        description,
        &one_of("A reason.", &["Empty", "Drifted", "Expired", "Underutilized"]),
        4,
    );
    schema["minItems"] = json!(1);
    schema
}

fn spec() -> Value {
    json!({
        "description": "The desired restrictions.",
        "type": "object",
        "x-kubernetes-validations": [rule(
            "has(self.freeze) || has(self.hold) || has(self.expiry) || has(self.rollout) || has(self.blockedDrains) || has(self.workloads) || has(self.circuitBreakers) || has(self.convergence) || (has(self.budgets) && self.budgets.size() > 0)",
            "set freeze, hold, budgets, expiry, rollout, blockedDrains, workloads, circuitBreakers or convergence: a policy without any does nothing",
        )],
        "properties": {
            "nodePools": {
                "description": "NodePools that the policy applies to; all if unset.",
                "type": "object",
                "x-kubernetes-validations": [rule(
                    "(has(self.names) && self.names.size() > 0) || (has(self.matchLabels) && self.matchLabels.size() > 0)",
                    "name NodePools or labels of NodePools; leave nodePools out to select all",
                )],
                "properties": {
                    "names": list("Names of NodePools.", &json!({"type": "string", "minLength": 1, "maxLength": 253}), 1000),
                    "matchLabels": {
                        "description": "Labels that a NodePool must have, all of them.",
                        "type": "object",
                        "maxProperties": 100,
                        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": shared::LABEL_VALUE_PATTERN},
                    },
                },
            },
            "timeZone": {"description": "IANA time zone of all windows, such as Europe/Kyiv; UTC if unset.", "type": "string", "minLength": 1, "maxLength": 64},
            "freeze": {
                "description": "Stops all voluntary disruption by hand. Commands that have not deleted a node yet are rolled back.",
                "type": "object",
                "required": ["reason"],
                "properties": {
                    "reason": {"description": "The reason, shown wherever the freeze is reported.", "type": "string", "minLength": 1, "maxLength": 1024},
                    "until": time("When the freeze ends; if unset, when it is removed."),
                },
            },
            "hold": hold(),
            "budgets": list("Limits on how much is disrupted, and how fast; all of them apply.", &budget(), 50),
            "expiry": expiry(),
            "rollout": rollout(),
            "blockedDrains": {
                "description": "Drifted nodes of NodePools with terminationGracePeriod are not replaced while a PodDisruptionBudget or karpenter.sh/do-not-disrupt protects a pod on them. This avoids paying for a replacement while a drain is blocked.",
                "type": "object",
                "properties": {
                    "escalateAfter": shared::duration("How long after they drifted they are replaced anyway, and drained within their grace period; never if unset."),
                },
            },
            "workloads": workloads(),
            "circuitBreakers": breakers(),
            "convergence": convergence(),
        },
    })
}

fn hold() -> Value {
    json!({
        "description": "A pause after nodes were launched or removed.",
        "type": "object",
        "required": ["duration"],
        "x-kubernetes-validations": [rule(
            "!has(self.maximum) || duration(self.maximum) >= duration(self.duration)",
            "maximum is shorter than duration",
        )],
        "properties": {
            "duration": shared::duration("Length of the pause; each further trigger restarts it."),
            "initialDelay": shared::duration("How long after a trigger the pause starts."),
            "maximum": shared::duration("Maximum length of the pause, however many triggers occur."),
            "scope": one_of("Cluster: a trigger anywhere pauses all selected NodePools. NodePool: each is paused by its own triggers. Default Cluster.", &["Cluster", "NodePool"]),
            "triggers": list("What starts the pause; default Launch.", &one_of("A trigger.", &["Launch", "ScaleDown", "FailedLaunch"]), 3),
            "reasons": reasons("Disruption reasons that it pauses; all if unset."),
        },
    })
}

fn budget() -> Value {
    json!({
        "description": "A limit on how much is disrupted, and how fast.",
        "type": "object",
        "x-kubernetes-validations": [
            rule(
                "has(self.limit) || has(self.perHour) || (has(self.oneAtATime) && self.oneAtATime) || (has(self.windows) && self.windows.size() > 0)",
                "set limit, perHour, oneAtATime or windows: a budget without any limits nothing",
            ),
            rule("has(self.label) == (has(self.scope) && self.scope == 'Label')", "label is set with scope Label, and only with it"),
            rule(
                "!has(self.oneAtATime) || !self.oneAtATime || (has(self.scope) && self.scope != 'Cluster')",
                "oneAtATime needs scope Zone, NodePool or Label",
            ),
            rule("!has(self.perHour) || !has(self.unit) || self.unit != 'CPU'", "perHour counts Nodes or Pods"),
        ],
        "properties": {
            "limit": pattern("How much may be disrupted at once: a number of units, or a percentage, rounded up.", LIMIT_PATTERN, 9),
            "perHour": number("How much disruption may start within any hour.", 0, 1_000_000),
            "unit": one_of("The unit that is counted; default Nodes.", &["Nodes", "CPU", "Pods"]),
            "scope": one_of("The scope in which it is counted; default Cluster.", &["Cluster", "NodePool", "Zone", "Label"]),
            "label": {"description": "The node label, with scope Label.", "type": "string", "minLength": 1, "maxLength": 316},
            "oneAtATime": {"description": "Whether disruption is limited to one zone, NodePool or label value at a time.", "type": "boolean"},
            "reasons": reasons("Disruption reasons that it limits; all if unset."),
            "windows": list("When the budget applies; always if unset.", &window(), 50),
            "exceptDates": list("Local dates on which no window opens.", &pattern("A date.", DATE_PATTERN, 10), 366),
            "outsideWindows": one_of("Nothing: disruption is allowed only inside windows. Unlimited: the limits apply only inside windows. Default Nothing.", &["Nothing", "Unlimited"]),
        },
    })
}

fn window() -> Value {
    json!({
        "description": "A window of local time.",
        "type": "object",
        "required": ["from", "to"],
        "x-kubernetes-validations": [rule("self.from != self.to", "a window from a time to the same time never opens; the whole day is 00:00 to 24:00")],
        "properties": {
            "days": list("Days on which it opens. Without days and dates it opens every day.", &one_of("A day.", &["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]), 7),
            "dates": list("Local dates on which it opens, in addition to the days.", &pattern("A date.", DATE_PATTERN, 10), 366),
            "from": pattern("Local time at which it opens.", TIME_PATTERN, 5),
            "to": pattern("Local time at which it closes; if not later than from, on the next day.", END_PATTERN, 5),
        },
    })
}

fn expiry() -> Value {
    json!({
        "description": "A soft age: nodes that have reached it are replaced within budgets and windows, with reason Expired. expireAfter still removes the remaining ones, regardless of policies.",
        "type": "object",
        "x-kubernetes-validations": [rule("has(self.softAfter) != has(self.softPercent)", "set one of softAfter and softPercent")],
        "properties": {
            "softAfter": shared::duration("The age."),
            "softPercent": number("The age as a percentage of expireAfter; NodeClaims without expireAfter never reach it.", 1, 99),
            "jitter": shared::duration("Over how long the replacement of nodes of the same age is spread. Default: half of the time left until expireAfter, or a tenth of the age without expireAfter."),
        },
    })
}

fn rollout() -> Value {
    json!({
        "description": "Drift in waves, each NodePool by itself.",
        "type": "object",
        "properties": {
            "canary": number("Nodes of the first wave; without it, 1.", 1, 100_000),
            "waves": list(
                "Nodes of the waves after it; the last is repeated. Without it each wave is twice the one before.",
                &pattern("A number, or a percentage of the NodePool's nodes, rounded up.", LIMIT_PATTERN, 9),
                50,
            ),
            "soak": shared::duration("How long a wave is watched after its last node before the next begins; without it, 10m."),
            "order": list("In which order nodes go; without it, oldest drift first.", &one_of("A key.", &["Zone", "Age", "Importance"]), 3),
            "paused": {"description": "Nothing further begins.", "type": "boolean"},
            "approval": one_of("Manual: each wave after the canary waits until approved names its number. Without it, Automatic.", &["Automatic", "Manual"]),
            "approved": {
                "description": "Up to which wave somebody has approved, by NodePool. What stood when a rollout began does not count in it.",
                "type": "object",
                "maxProperties": 1000,
                "additionalProperties": {"type": "integer", "format": "int64", "minimum": 1},
            },
            "approvedFor": {
                "description": "The rollout that an approval is of, by NodePool, as its since in the status. With it an approval counts although it is the same as in the rollout before.",
                "type": "object",
                "maxProperties": 1000,
                "additionalProperties": {"type": "string", "format": "date-time"},
            },
            "resumedAt": time("Halts from before this time are over, and what these rollouts had seen before it is no longer looked at."),
            "deadline": shared::duration("How long it may take; the status says when it will not do."),
            "health": {
                "description": "What is not healthy about new nodes and their pods.",
                "type": "object",
                "properties": {
                    "restarts": number("Restarts of a container from which on its pod is not healthy; without it, 3.", 1, 1000),
                    "readyWithin": shared::duration("How long a node or pod may be not Ready; default 5m."),
                    "objects": list("Health checks on other objects; while one of them fails, nothing starts.", &json!({
                        "description": "A health check on one object.",
                        "type": "object",
                        "required": ["apiVersion", "resource", "name", "expression"],
                        "properties": {
                            "apiVersion": pattern("Group and version of the object, such as apps/v1, or v1.", "^([a-z0-9.-]+/)?v[a-z0-9]+$", 316),
                            "resource": pattern("Resource name: the lower-case plural of the kind, such as statefulsets.", "^[a-z][a-z0-9-]*$", 63),
                            "namespace": pattern("Namespace of the object, if it is namespaced.", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 63),
                            "name": pattern("Its name.", "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", 253),
                            "expression": {"description": "CEL expression over self, the object; true if it is healthy.", "type": "string", "minLength": 1, "maxLength": 512},
                        },
                    }), 10),
                },
            },
        },
    })
}

fn workloads() -> Value {
    json!({
        "description": "Honors the annotations spokeshave.dev/quiet-time, moves-per-day and move-windows of pods, their owners and namespaces; the nearest one applies. The fields here limit what they may request.",
        "type": "object",
        "properties": {
            "maximumQuietTime": shared::duration("The longest quiet time that is honored; default 24h."),
            "minimumMovesPerDay": number("The fewest moves per day that a workload may request; default 1.", 1, 1_000_000),
            "maximumClosed": shared::duration("A window that opens later than this does not protect a pod; default 168h."),
            "statefulSets": one_of("OneAtATime: the next member of a StatefulSet is moved only when all members exist and are Ready. Default Any.", &["Any", "OneAtATime"]),
        },
    })
}

fn failures(description: &str, what: &str) -> Value {
    json!({
        "description": description,
        "type": "object",
        "required": ["count", "within"],
        "x-kubernetes-validations": [rule("duration(self.within) <= duration('1h')", "failures are remembered for an hour: write 1h or less")],
        "properties": {
            "count": number(what, 1, 500),
            "within": shared::duration("The time window; an hour at most."),
        },
    })
}

fn breakers() -> Value {
    json!({
        "description": "Stops disruption while the cluster is in distress.",
        "type": "object",
        "properties": {
            "notReady": {
                "description": "Too many nodes are not Ready.",
                "type": "object",
                "required": ["percent"],
                "properties": {
                    "percent": number("Percentage of initialized nodes that are not Ready at which disruption stops.", 1, 100),
                    "scope": one_of("Cluster, or Zone: the percentage in any zone. Default Cluster.", &["Cluster", "Zone"]),
                },
            },
            "failedLaunches": {
                "description": "Launches fail.",
                "type": "object",
                "required": ["count", "within"],
                "properties": {
                    "count": number("Number of commands rolled back because their replacements did not initialize at which disruption stops.", 1, 200),
                    "within": shared::duration("The time window."),
                },
            },
            "cloud": failures("The cloud does not respond, throttles, or has no capacity.", "Number of failed calls at which disruption stops."),
            "apiServer": failures("The API server does not respond, or responds with server errors.", "Number of failed writes at which disruption stops."),
            "prices": {
                "description": "Prices are stale. Does not apply to clouds whose prices never change.",
                "type": "object",
                "required": ["olderThan"],
                "properties": {"olderThan": shared::duration("Age of the last prices at which disruption stops.")},
            },
        },
    })
}

fn convergence() -> Value {
    json!({
        "description": "Makes consolidation converge by judging moves over time: the cost of restarts against how long the saving lasts, and how often the same pods were moved before. An empty object enables it.",
        "type": "object",
        "x-kubernetes-validations": [rule(
            "!has(self.maximumRest) || !has(self.rest) || duration(self.maximumRest) >= duration(self.rest)",
            "maximumRest is shorter than rest",
        )],
        "properties": {
            "rest": shared::duration("How long consolidation of a node is paused after its launch or after pods were moved to it; doubled with each further move within a day. Default 10m."),
            "maximumRest": shared::duration("Maximum length of the pause; default 2h."),
            "restartCost": pattern("Cost of restarting a pod elsewhere, in dollars; default 0.005.", DOLLARS_PATTERN, 16),
            "horizon": shared::duration("How long a saving is assumed to last where none has ended sooner; default 4h."),
        },
    })
}

fn status() -> Value {
    json!({
        "description": "The observed state.",
        "type": "object",
        "properties": {
            "summary": text("Summary of the current state."),
            "active": list("What stops disruption now.", &json!({
                "description": "A part of a policy that stops disruption now.",
                "type": "object",
                "required": ["field", "reasons", "message"],
                "properties": {
                    "field": text("The field of the spec."),
                    "domain": text("The zone, NodePool or label value, if it is limited to one."),
                    "reasons": list("Disruption reasons that it stops.", &json!({"type": "string"}), 10),
                    "message": text("Why."),
                    "since": time("Since when, for pauses."),
                    "until": time("Until when, if known."),
                },
            }), 1000),
            "nextChange": time("When this changes next, if known."),
            "nodePools": list("NodePools that the policy applies to.", &json!({"type": "string"}), 10_000),
            "rollouts": list("Rollouts in progress, by NodePool.", &json!({
                "description": "The rollout of one NodePool.",
                "type": "object",
                "required": ["nodePool", "since", "wave", "size", "waveSince", "begun", "remaining", "phase"],
                "properties": {
                    "nodePool": text("The NodePool."),
                    "target": text("Hash of the NodePool's template; a different hash starts a new rollout."),
                    "since": time("A minute before it started; what was launched in that minute belongs to it."),
                    "firstSince": time("When the first of the rollouts since the last completed one started; nodes that came since then excuse nothing."),
                    "wave": number("The number of the wave, from 1.", 1, i64::from(i32::MAX)),
                    "size": number("How many nodes it may take, also where fewer are left.", 0, i64::from(i32::MAX)),
                    "waveSince": time("When the wave started."),
                    "begun": number("How many nodes it has started.", 0, i64::from(i32::MAX)),
                    "remaining": number("How many drifted nodes have not been started yet.", 0, i64::from(i32::MAX)),
                    "phase": text("Rolling, Soaking, WaitingForApproval or Halted."),
                    "finishedAt": time("When the last command of the wave ended."),
                    "haltedAt": time("When it was halted."),
                    "resumedAt": time("When a halt was cleared last; earlier problems are ignored."),
                    "approvedBefore": {
                        "description": "The approval that stood when it started, as long as nobody has approved anything since; it does not count.",
                        "type": "integer",
                        "format": "int64",
                        "minimum": 1,
                    },
                    "waitsFor": text("The health check that fails; nothing starts until it passes."),
                    "message": text("Summary of the rollout."),
                    "eta": time("Estimated time of completion at the current pace."),
                },
            }), 1000),
            "holds": list("Pauses that stand, were ended by their maximum while triggers continue, or whose trigger is gone.", &json!({
                "description": "A pause.",
                "type": "object",
                "required": ["since", "until"],
                "properties": {
                    "nodePool": text("The NodePool, if it is limited to one."),
                    "since": time("Since when."),
                    "until": time("When it would end without a maximum; a trigger before that continues it."),
                },
            }), 1000),
            "expiry": list("Nodes that reach their soft age, by NodePool.", &json!({
                "description": "The coming wave of one NodePool.",
                "type": "object",
                "required": ["nodePool", "due", "withinDay", "late"],
                "properties": {
                    "nodePool": text("The NodePool."),
                    "due": number("Nodes that have reached it.", 0, i64::from(i32::MAX)),
                    "withinDay": number("Nodes that will reach it within 24 hours.", 0, i64::from(i32::MAX)),
                    "nextDue": time("When the next one reaches it."),
                    "late": number("Nodes that budgets and windows will not let be replaced before expireAfter, looking three days ahead.", 0, i64::from(i32::MAX)),
                    "firstLate": time("When the first of these expires."),
                },
            }), 1000),
            "workloads": {
                "description": "What workloads request now.",
                "type": "object",
                "required": ["restingPods", "restingNodes"],
                "properties": {
                    "restingPods": number("Pods within their quiet time.", 0, i64::from(i32::MAX)),
                    "restingNodes": number("Nodes that are kept because of them.", 0, i64::from(i32::MAX)),
                    "faults": list("Annotations that cannot be parsed, which count as the maximum that may be requested; the first 20.", &json!({"type": "string"}), 20),
                },
            },
            "conditions": shared::conditions(false),
        },
    })
}
