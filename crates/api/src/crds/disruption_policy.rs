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
            "When voluntary disruption of NodePools has to wait, beyond their own budgets. All that select a NodePool hold. Interruption, expiry and repair never wait.",
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
        "description": "What is wanted.",
        "type": "object",
        "x-kubernetes-validations": [rule(
            "has(self.freeze) || has(self.hold) || has(self.expiry) || has(self.rollout) || has(self.blockedDrains) || has(self.workloads) || has(self.circuitBreakers) || has(self.convergence) || (has(self.budgets) && self.budgets.size() > 0)",
            "set freeze, hold, budgets, expiry, rollout, blockedDrains, workloads, circuitBreakers or convergence: a policy without any does nothing",
        )],
        "properties": {
            "nodePools": {
                "description": "NodePools that it applies to; without it, all.",
                "type": "object",
                "x-kubernetes-validations": [rule(
                    "(has(self.names) && self.names.size() > 0) || (has(self.matchLabels) && self.matchLabels.size() > 0)",
                    "name NodePools or labels of NodePools; leave nodePools out to select all",
                )],
                "properties": {
                    "names": list("Names of NodePools.", &json!({"type": "string", "minLength": 1, "maxLength": 253}), 1000),
                    "matchLabels": {
                        "description": "Labels that a NodePool has to carry, all of them.",
                        "type": "object",
                        "maxProperties": 100,
                        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": shared::LABEL_VALUE_PATTERN},
                    },
                },
            },
            "timeZone": {"description": "IANA time zone of all windows, such as Europe/Kyiv; without it, UTC.", "type": "string", "minLength": 1, "maxLength": 64},
            "freeze": {
                "description": "Stops all voluntary action by hand. Commands that have deleted no node yet are taken back.",
                "type": "object",
                "required": ["reason"],
                "properties": {
                    "reason": {"description": "Why, in words for people.", "type": "string", "minLength": 1, "maxLength": 1024},
                    "until": time("When it ends by itself; without it, when it is taken away."),
                },
            },
            "hold": hold(),
            "budgets": list("Limits of how much and how fast; all of them hold.", &budget(), 50),
            "expiry": expiry(),
            "rollout": rollout(),
            "blockedDrains": {
                "description": "Drifted nodes of NodePools with terminationGracePeriod are not replaced while a PodDisruptionBudget or karpenter.sh/do-not-disrupt keeps a pod on them, so that no replacement is paid for while a drain waits.",
                "type": "object",
                "properties": {
                    "escalateAfter": shared::duration("How long after they have drifted they are replaced all the same, and drained by their grace period; without it, never."),
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
        "description": "Rest after nodes have come or gone.",
        "type": "object",
        "required": ["duration"],
        "x-kubernetes-validations": [rule(
            "!has(self.maximum) || duration(self.maximum) >= duration(self.duration)",
            "maximum is shorter than duration",
        )],
        "properties": {
            "duration": shared::duration("How long it lasts; each further trigger restarts it."),
            "initialDelay": shared::duration("How long after a trigger it begins."),
            "maximum": shared::duration("How long it lasts at most, however many triggers follow each other."),
            "scope": one_of("Cluster: a trigger anywhere holds all selected NodePools. NodePool: each is held by its own. Without it, Cluster.", &["Cluster", "NodePool"]),
            "triggers": list("What starts it; without it, Launch.", &one_of("A trigger.", &["Launch", "ScaleDown", "FailedLaunch"]), 3),
            "reasons": reasons("Reasons of disruption that it holds; without it, all."),
        },
    })
}

fn budget() -> Value {
    json!({
        "description": "How much and how fast.",
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
            "limit": pattern("How much may be disrupting at once: a number of the unit, or a percentage, rounded up.", LIMIT_PATTERN, 9),
            "perHour": number("How much may begin within any hour.", 0, 1_000_000),
            "unit": one_of("What is counted; without it, Nodes.", &["Nodes", "CPU", "Pods"]),
            "scope": one_of("What it is counted by; without it, Cluster.", &["Cluster", "NodePool", "Zone", "Label"]),
            "label": {"description": "The label of nodes, where the scope is Label.", "type": "string", "minLength": 1, "maxLength": 316},
            "oneAtATime": {"description": "Never in two zones, NodePools or values of the label at once.", "type": "boolean"},
            "reasons": reasons("Reasons of disruption that it limits; without it, all."),
            "windows": list("When; without it, always.", &window(), 50),
            "exceptDates": list("Local dates on which no window begins.", &pattern("A date.", DATE_PATTERN, 10), 366),
            "outsideWindows": one_of("Nothing: windows allow, and outside of them nothing may be disrupted. Unlimited: windows restrict. Without it, Nothing.", &["Nothing", "Unlimited"]),
        },
    })
}

fn window() -> Value {
    json!({
        "description": "A stretch of local time.",
        "type": "object",
        "required": ["from", "to"],
        "x-kubernetes-validations": [rule("self.from != self.to", "a window from a time to the same time never opens; the whole day is 00:00 to 24:00")],
        "properties": {
            "days": list("Days on which it begins. With neither days nor dates it begins every day.", &one_of("A day.", &["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]), 7),
            "dates": list("Local dates on which it begins, besides the days.", &pattern("A date.", DATE_PATTERN, 10), 366),
            "from": pattern("Local time at which it begins.", TIME_PATTERN, 5),
            "to": pattern("Local time at which it ends; not later than from means on the next day.", END_PATTERN, 5),
        },
    })
}

fn expiry() -> Value {
    json!({
        "description": "A soft age: nodes that have reached it are replaced inside budgets and windows, as Expired. expireAfter takes what is left, whatever policies say.",
        "type": "object",
        "x-kubernetes-validations": [rule("has(self.softAfter) != has(self.softPercent)", "set one of softAfter and softPercent")],
        "properties": {
            "softAfter": shared::duration("The age."),
            "softPercent": number("The age as a share of expireAfter; NodeClaims without one never reach it.", 1, 99),
            "jitter": shared::duration("Over how long nodes that were born together are spread. Without it, half of the time that is left until expireAfter, or a tenth of the age where there is none."),
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
                "description": "Up to which wave somebody has approved, by NodePool.",
                "type": "object",
                "maxProperties": 1000,
                "additionalProperties": {"type": "integer", "format": "int64", "minimum": 1},
            },
            "resumedAt": time("Halts from before this time are over, and what came before it is no longer looked at."),
            "deadline": shared::duration("How long it may take; the status says when it will not do."),
            "health": {
                "description": "What is not healthy about new nodes and their pods.",
                "type": "object",
                "properties": {
                    "restarts": number("Restarts of a container from which on its pod is not healthy; without it, 3.", 1, 1000),
                    "readyWithin": shared::duration("How long a node or pod may be not Ready; without it, 5m."),
                    "objects": list("What other objects have to say; while one of them does not hold, nothing begins.", &json!({
                        "description": "What one object has to say.",
                        "type": "object",
                        "required": ["apiVersion", "resource", "name", "expression"],
                        "properties": {
                            "apiVersion": pattern("Its group and version, such as apps/v1, or v1.", "^([a-z0-9.-]+/)?v[a-z0-9]+$", 316),
                            "resource": pattern("Its kind in paths: lower case, several of them, such as statefulsets.", "^[a-z][a-z0-9-]*$", 63),
                            "namespace": pattern("Its namespace, where it has one.", "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", 63),
                            "name": pattern("Its name.", "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", 253),
                            "expression": {"description": "CEL over self, the object: true when it is healthy.", "type": "string", "minLength": 1, "maxLength": 512},
                        },
                    }), 10),
                },
            },
        },
    })
}

fn workloads() -> Value {
    json!({
        "description": "Hears the annotations spokeshave.dev/quiet-time, moves-per-day and move-windows of pods, their owners and namespaces; the nearest counts. What is set here is the most that they may ask for.",
        "type": "object",
        "properties": {
            "maximumQuietTime": shared::duration("The longest quiet time that is heard; without it, 24h."),
            "minimumMovesPerDay": number("The fewest moves a day that a workload may ask for; without it, 1.", 1, 1_000_000),
            "maximumClosed": shared::duration("Windows that open later than that keep no pod; without it, 168h."),
            "statefulSets": one_of("OneAtATime: the next member of a StatefulSet moves when all members are there and Ready. Without it, Any.", &["Any", "OneAtATime"]),
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
            "within": shared::duration("Within how long; an hour at most."),
        },
    })
}

fn breakers() -> Value {
    json!({
        "description": "Stops by itself while the cluster is in distress.",
        "type": "object",
        "properties": {
            "notReady": {
                "description": "Too many nodes are not Ready.",
                "type": "object",
                "required": ["percent"],
                "properties": {
                    "percent": number("Share of initialised nodes that are not Ready, from which on nothing is disrupted.", 1, 100),
                    "scope": one_of("Cluster, or Zone: the share in any zone. Without it, Cluster.", &["Cluster", "Zone"]),
                },
            },
            "failedLaunches": {
                "description": "Launches fail.",
                "type": "object",
                "required": ["count", "within"],
                "properties": {
                    "count": number("How many commands were taken back with replacements that did not come up, from which on nothing is disrupted.", 1, 200),
                    "within": shared::duration("Within how long."),
                },
            },
            "cloud": failures("The cloud does not answer, throttles, or has no capacity.", "How many calls failed, from which on nothing is disrupted."),
            "apiServer": failures("The API server does not answer, or answers with errors of its own.", "How many writes failed, from which on nothing is disrupted."),
            "prices": {
                "description": "Prices have not been read for long. Clouds whose prices never change have none to lose.",
                "type": "object",
                "required": ["olderThan"],
                "properties": {"olderThan": shared::duration("The age of the last prices, from which on nothing is disrupted.")},
            },
        },
    })
}

fn convergence() -> Value {
    json!({
        "description": "Consolidation is judged over time, so that it comes to an end: what it costs in restarts against how long its saving lasts, and how often the same was done before. An empty object is enough.",
        "type": "object",
        "x-kubernetes-validations": [rule(
            "!has(self.maximumRest) || !has(self.rest) || duration(self.maximumRest) >= duration(self.rest)",
            "maximumRest is shorter than rest",
        )],
        "properties": {
            "rest": shared::duration("How long nodes rest that were launched, and nodes to which pods were moved; twice as long with each further move of a day. Without it, 10m."),
            "maximumRest": shared::duration("How long they rest at most; without it, 2h."),
            "restartCost": pattern("What it costs to restart a pod elsewhere, in dollars; without it, 0.005.", DOLLARS_PATTERN, 16),
            "horizon": shared::duration("How long a saving is taken to last where none has ended sooner; without it, 4h."),
        },
    })
}

fn status() -> Value {
    json!({
        "description": "What is.",
        "type": "object",
        "properties": {
            "summary": text("What it comes to now, in a few words."),
            "active": list("What stops disruption now.", &json!({
                "description": "A part of a policy that stops disruption now.",
                "type": "object",
                "required": ["field", "reasons", "message"],
                "properties": {
                    "field": text("The field of the spec."),
                    "domain": text("The zone, NodePool or value of the label, where it is about one."),
                    "reasons": list("Reasons of disruption that it stops.", &json!({"type": "string"}), 10),
                    "message": text("Why."),
                    "since": time("Since when, for holds."),
                    "until": time("Until when, as far as it is known."),
                },
            }), 1000),
            "nextChange": time("When that changes by itself, as far as it is known."),
            "nodePools": list("NodePools that it applies to.", &json!({"type": "string"}), 10_000),
            "rollouts": list("Roll-outs under way, by NodePool.", &json!({
                "description": "The roll-out of one NodePool.",
                "type": "object",
                "required": ["nodePool", "since", "wave", "size", "waveSince", "begun", "remaining", "phase"],
                "properties": {
                    "nodePool": text("The NodePool."),
                    "target": text("The hash of what it asks for; another begins another roll-out."),
                    "since": time("When it began."),
                    "wave": number("The number of the wave, from 1.", 1, i64::from(i32::MAX)),
                    "size": number("How many nodes it may take.", 0, i64::from(i32::MAX)),
                    "waveSince": time("When the wave began."),
                    "begun": number("How many nodes it has taken.", 0, i64::from(i32::MAX)),
                    "remaining": number("How many drifted nodes nothing has taken yet.", 0, i64::from(i32::MAX)),
                    "phase": text("Rolling, Soaking, WaitingForApproval or Halted."),
                    "finishedAt": time("When the last command of the wave ended."),
                    "haltedAt": time("When it was halted."),
                    "waitsFor": text("What an object has to say and does not: nothing begins meanwhile."),
                    "message": text("What it comes to, for people."),
                    "eta": time("When it will be done, if it goes on as it did."),
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
                    "late": number("Nodes that budgets and windows do not let go before expireAfter takes them, as far as three days tell.", 0, i64::from(i32::MAX)),
                    "firstLate": time("When the first of these is taken."),
                },
            }), 1000),
            "workloads": {
                "description": "What workloads ask for now.",
                "type": "object",
                "required": ["restingPods", "restingNodes"],
                "properties": {
                    "restingPods": number("Pods that rest.", 0, i64::from(i32::MAX)),
                    "restingNodes": number("Nodes that they keep.", 0, i64::from(i32::MAX)),
                    "faults": list("Annotations that cannot be read, and count as the most that may be asked for; the first 20.", &json!({"type": "string"}), 20),
                },
            },
            "conditions": shared::conditions(false),
        },
    })
}
