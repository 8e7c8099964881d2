//! karpenter-node-holder (spec/disruption.md §10.3): its Helm values, and its Deployment as rendered. It is a separate controller that protects
//! every node for a while after each new one; its configuration becomes the hold of a DisruptionPolicy.

use serde_json::{Value, json};

use crate::World;
use crate::fields::Fields;
use crate::report::Notes;
use crate::workload::{containers, variables};

/// One setting: its name as a Helm value, its environment variables, and its equivalent.
struct Setting {
    value: &'static str,
    variables: &'static [&'static str],
    unit: &'static str,
    becomes: &'static str,
    meaning: &'static str,
}

/// The configuration of a holder: fields with their settings and numbers, and the annotation that it sets.
#[derive(Default)]
struct Told {
    settings: Vec<(String, &'static Setting, u32)>,
    annotation: Option<String>,
}

static SETTINGS: [Setting; 2] = [
    Setting {
        value: "initialDelay",
        variables: &["INITIAL_DELAY"],
        unit: "s",
        becomes: "spec.hold.initialDelay",
        meaning: "how long a new node is there before it begins a hold",
    },
    Setting {
        value: "holdDuration",
        variables: &["HOLD_DURATION"],
        unit: "m",
        becomes: "spec.hold.duration",
        meaning: "how long a hold lasts; each new node restarts it",
    },
];

const PER_NODE: &str = "on Karpenter, consolidateAfter of each NodePool comes nearest: it counts for each node from its last pod event, and not for the whole cluster from its last new node";

/// Whether a document without a kind is the holder's values.yaml.
pub(crate) fn are_values(object: &Value) -> bool {
    object.get("holdDuration").is_some()
        || object.get("holdAnnotation").is_some() && object.get("initialDelay").is_some()
}

/// Makes a DisruptionPolicy of the values.
pub(crate) fn values(object: Value, world: &mut World, notes: &mut Notes) {
    let mut told = Told::default();
    let mut fields = Fields::of("", object, notes);
    fields.take("image");
    for setting in &SETTINGS {
        if let Some(value) = fields.take(setting.value) {
            one(setting, setting.value, &value, &mut told, notes);
        }
    }
    if let Some(value) = fields.take("holdAnnotation") {
        annotation("holdAnnotation", &value, &mut told, notes);
    }
    fields.report_rest(notes);
    hold("karpenter-node-holder", &told, world, notes);
}

/// Converts the configuration of the Deployment to a DisruptionPolicy; the Deployment itself is omitted.
pub(crate) fn deployment(object: &Value, world: &mut World, notes: &mut Notes) {
    let mut told = Told::default();
    for (index, container) in containers(object).enumerate() {
        for (place, (name, value)) in variables(container).enumerate() {
            let field = format!("spec.template.spec.containers[{index}].env[{place}].value");
            let setting = SETTINGS.iter().find(|setting| setting.variables.contains(&name));
            match (setting, name) {
                (Some(setting), _) => one(setting, &field, value, &mut told, notes),
                (None, "HOLD_ANNOTATION") => annotation(&field, value, &mut told, notes),
                (None, "HOLD_ANNOTAION") => notes.dropped(
                    &field,
                    "the holder's image sets this variable, whose name is misspelled, and nothing reads it",
                ),
                (None, _) => notes.unknown(&field, format!("{name} is no variable of the holder")),
            }
        }
    }
    notes.dropped(
        "",
        "the holder is left out, with its ServiceAccount and roles to be deleted by hand: beside v1 it would keep every node from drift as well, and take away do-not-disrupt where a user has set it",
    );
    let name = object["metadata"]["name"]
        .as_str()
        .unwrap_or("karpenter-node-holder");
    hold(name, &told, world, notes);
}

/// Writes the hold, once its duration is known.
fn hold(name: &str, told: &Told, world: &mut World, notes: &mut Notes) {
    let number = |value: &str| {
        let mut settings = told.settings.iter();
        settings.find_map(|(_, setting, number)| (setting.value == value).then_some(*number))
    };
    let Some(minutes) = number("holdDuration").filter(|minutes| *minutes > 0) else {
        for (field, ..) in &told.settings {
            notes.manual(field, "without a duration there is no hold to write");
        }
        return;
    };
    for (field, setting, number) in &told.settings {
        let text = format!(
            "{number}{}: {}. Upstream does not know DisruptionPolicy of spokeshave.dev/v1alpha1; {PER_NODE}",
            setting.unit, setting.meaning
        );
        notes.moved(field, setting.becomes, text);
    }
    let mut hold = json!({"duration": format!("{minutes}m")});
    if let Some(seconds) = number("initialDelay") {
        hold["initialDelay"] = json!(format!("{seconds}s"));
    }
    // do-not-consolidate kept nodes from consolidation only, do-not-disrupt from drift as well.
    if told.annotation.as_deref() != Some("karpenter.sh/do-not-disrupt") {
        hold["reasons"] = json!(["Empty", "Underutilized"]);
    }
    let policy = json!({
        "apiVersion": "spokeshave.dev/v1alpha1",
        "kind": "DisruptionPolicy",
        "metadata": {"name": name},
        "spec": {"hold": hold},
    });
    world.push(policy, notes);
}

fn one(setting: &'static Setting, field: &str, value: &Value, told: &mut Told, notes: &mut Notes) {
    let text = value
        .as_str()
        .map_or_else(|| value.to_string(), |text| text.trim().to_owned());
    match text.parse::<u32>() {
        Ok(number) => told.settings.push((field.to_owned(), setting, number)),
        Err(_) => notes.unknown(field, format!("expected a whole number, found {value}")),
    }
}

fn annotation(field: &str, value: &Value, told: &mut Told, notes: &mut Notes) {
    told.annotation = value.as_str().map(str::to_owned);
    notes.dropped(
        field,
        format!("{value}: nothing is annotated for a hold, and the users' own annotations are not touched"),
    );
}
