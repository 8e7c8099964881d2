//! With which settings it was decided: those of the operator that runs, as far as they are known.
//!
//! Owns the value that answers carry, and its sentence. Who looks for the operator and reads its settings is the binary.

use std::collections::BTreeMap;

use serde::Serialize;

/// The settings by which an answer was decided, and what is not known of those of the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsInForce {
    /// The Deployment of the operator, as `namespace/name`; none where its settings are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment: Option<String>,
    /// Those that were set, by their environment variable, as they are written; all others have their defaults.
    pub set: BTreeMap<String, String>,
    /// Those of them that the command was given itself, which win.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<String>,
    /// What is not known, and what is done instead: a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl SettingsInForce {
    /// What was taken, if that says more than what is not known, and what is not known.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let says_more = self.deployment.is_some() || !self.set.is_empty();
        let taken = says_more.then(|| self.sentence());
        taken.into_iter().chain(self.notes.iter().cloned()).collect()
    }

    /// What was taken, on one line.
    #[must_use]
    pub fn sentence(&self) -> String {
        let whose = match &self.deployment {
            Some(name) => format!("the settings of Deployment {name}"),
            None => "default settings".to_owned(),
        };
        let one = |(variable, text): (&String, &String)| {
            let own = if self.given.contains(variable) {
                " (given here)"
            } else {
                ""
            };
            format!("{variable}={text}{own}")
        };
        let set: Vec<String> = self.set.iter().map(one).collect();
        match (set.is_empty(), &self.deployment) {
            (true, Some(_)) => format!("decided with {whose}, which are the defaults"),
            (true, None) => format!("decided with {whose}"),
            (false, Some(_)) => format!("decided with {whose}: {}", set.join(", ")),
            (false, None) => format!("decided with {whose} and {}", set.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_whose_settings_and_who_gave_them() {
        let mut settings = SettingsInForce::default();
        assert_eq!(settings.sentence(), "decided with default settings");
        assert!(settings.lines().is_empty());
        settings.deployment = Some("kube-system/spokeshave".to_owned());
        assert_eq!(
            settings.sentence(),
            "decided with the settings of Deployment kube-system/spokeshave, which are the defaults"
        );
        for (variable, text) in [("FEATURE_GATES", "NodeOverlay=true"), ("RESERVED_ENIS", "1")] {
            settings.set.insert(variable.to_owned(), text.to_owned());
        }
        settings.given.push("RESERVED_ENIS".to_owned());
        let set = "FEATURE_GATES=NodeOverlay=true, RESERVED_ENIS=1 (given here)";
        assert_eq!(
            settings.sentence(),
            format!("decided with the settings of Deployment kube-system/spokeshave: {set}")
        );
        settings.deployment = None;
        assert_eq!(
            settings.sentence(),
            format!("decided with default settings and {set}")
        );
        settings.notes.push("no Deployment runs an operator".to_owned());
        assert_eq!(settings.lines().len(), 2);
        settings.set.clear();
        assert_eq!(settings.lines(), ["no Deployment runs an operator"]);
    }
}
