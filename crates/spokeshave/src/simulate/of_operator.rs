//! With which settings the policies of a scenario begin that `simulate init` writes for a cluster: those of its operator, as far as a scenario has them.
//!
//! Owns how they are written. What else is in the scenario is `init`'s.

use anyhow::Result;
use spokeshave_plan::disrupt::DisruptOptions;
use spokeshave_scenario::duration_ms;

use super::args::InitArgs;
use crate::cluster::Cluster;
use crate::plan::SourceArgs;
use crate::plan::in_force::InForce;
use crate::text::say;

/// The policies that stand for the operator, as they are written without settings.
const POLICIES: [&str; 2] = ["  - {name: now", "  - {name: patient"];
/// The most replacements that a scenario takes.
const MOST_REPLACEMENTS: usize = 100;

/// The settings of a policy of the cluster's operator, as the inside of a mapping; nothing where all are the defaults. What was taken is said.
///
/// # Errors
/// The cluster does not answer.
pub(super) async fn settings(args: &InitArgs) -> Result<String> {
    let cluster = Cluster::reach(&args.cluster).await?;
    let source = SourceArgs {
        cluster: args.cluster.clone(),
        operator: args.operator.clone(),
        ..SourceArgs::default()
    };
    let in_force = InForce::of_cluster(&cluster.client, &source).await?;
    for note in in_force.notes() {
        say(&format!("note: {note}"));
    }
    Ok(inside(&in_force))
}

fn inside(in_force: &InForce) -> String {
    let (disrupt, default) = (in_force.policy().disrupt, DisruptOptions::default());
    let mut fields = Vec::new();
    if disrupt.spot_to_spot != default.spot_to_spot {
        fields.push(format!("spotToSpotConsolidation: {}", disrupt.spot_to_spot));
    }
    if disrupt.replacements != default.replacements {
        let replacements = disrupt.replacements.min(MOST_REPLACEMENTS);
        fields.push(format!("consolidationReplacements: {replacements}"));
    }
    let set = in_force.told.as_ref().map(|told| &told.set);
    for (field, variable) in [
        ("batchIdleDuration", "BATCH_IDLE_DURATION"),
        ("batchMaxDuration", "BATCH_MAX_DURATION"),
    ] {
        let duration = set.and_then(|set| set.get(variable));
        // No scenario has one of 0.
        if let Some(duration) = duration.filter(|text| duration_ms(text).is_ok_and(|length| length > 0)) {
            fields.push(format!("{field}: {duration}"));
        }
    }
    fields.join(", ")
}

/// A scenario with these settings in the policies that stand for the operator.
pub(super) fn written(scenario: String, settings: &str) -> String {
    if settings.is_empty() {
        return scenario;
    }
    POLICIES.iter().fold(scenario, |text, policy| {
        text.replace(*policy, &format!("{policy}, settings: {{{settings}}}"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use spokeshave_scenario::file::SettingsSpec;
    use spokeshave_story::settings::SettingsInForce;

    use super::*;
    use crate::simulate::document::Document;

    const SCENARIO: &str = "\
apiVersion: simulate.spokeshave.dev/v1alpha1
kind: Scenario
metadata: {name: nowhere}
spec:
  start: 2026-03-03T00:00:00Z
  duration: 7d
  seeds: 5
  cluster: {snapshot: dump.yaml}
  policies:
  - {name: now}            # the NodePools as they are
  - {name: patient, merge: {NodePool: {spec: {disruption: {consolidateAfter: 30m}}}}}
  - {name: never, model: none}
  baseline: now
";

    fn settings_of(text: &str) -> Vec<SettingsSpec> {
        let read = Document::parse("x.yaml", text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"));
        let policies = read.scenario.policies.into_iter();
        policies.map(|policy| policy.settings).collect()
    }

    #[test]
    fn only_what_is_set_is_written() {
        assert_eq!(inside(&InForce::default()), "");
        let set = [("BATCH_IDLE_DURATION", "5s"), ("BATCH_MAX_DURATION", "0s")];
        let set = set.map(|(variable, text)| (variable.to_owned(), text.to_owned()));
        let mut in_force = InForce::default();
        in_force.told = Some(SettingsInForce {
            set: BTreeMap::from(set),
            ..SettingsInForce::default()
        });
        assert_eq!(inside(&in_force), "batchIdleDuration: 5s");
        assert_eq!(written(SCENARIO.to_owned(), ""), SCENARIO);
    }

    #[test]
    fn the_policies_that_stand_for_the_operator_have_its_settings() {
        let settings = "spotToSpotConsolidation: true, batchIdleDuration: 5s";
        let text = written(SCENARIO.to_owned(), settings);
        let [now, patient, never] = &settings_of(&text)[..] else {
            panic!("{text}");
        };
        for one in [now, patient] {
            assert_eq!((one.spot_to_spot, one.batch_idle_ms), (Some(true), Some(5_000)));
        }
        assert_eq!((never.spot_to_spot, never.batch_idle_ms), (None, None));
    }
}
