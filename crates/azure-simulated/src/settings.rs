//! What a user says in a ConfigMap that there is to buy.
//!
//! Owns how the ConfigMap is read. A line that cannot be read is named in the log and left out; the others hold.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::azure::Azure;
use crate::options::Refusal;

/// ConfigMap in kube-system by which a user says what there is to buy: `refusals` with lines `SIZE/ZONE/CAPACITY-TYPE=CODE`, `quota` with lines
/// `FAMILY=CPUS`, `images` with versions of images that galleries get.
pub const SETTINGS: &str = "simulated-azure";
pub(crate) const SETTINGS_NAMESPACE: &str = "kube-system";
/// ARM refuses at once with this status, whatever the code.
const CONFLICT: u16 = 409;

/// What the ConfigMap says is so from now on, and nothing that it said before.
pub(crate) fn apply(azure: &Azure, settings: &ConfigMap) {
    azure.refuse_nothing();
    for line in lines(settings, "refusals") {
        match refusal(line) {
            Some(refusal) => azure.refuse(refusal),
            None => tracing::warn!(
                line,
                "ConfigMap {SETTINGS_NAMESPACE}/{SETTINGS}, refusals: expected SIZE/ZONE/CAPACITY-TYPE=CODE, such as Standard_D4s_v5/2/spot=SkuNotAvailable \
                or */*/on-demand=AllocationFailed; the line is ignored"
            ),
        }
    }
    let mut all = BTreeMap::new();
    for line in lines(settings, "quota") {
        match quota(line) {
            Some((family, cpus)) => drop(all.insert(family, cpus)),
            None => tracing::warn!(
                line,
                "ConfigMap {SETTINGS_NAMESPACE}/{SETTINGS}, quota: expected FAMILY=CPUS, such as standardDSv5Family=100; the line is ignored"
            ),
        }
    }
    azure.set_quota(all);
    for version in lines(settings, "images") {
        azure.publish_image(version);
    }
}

fn lines<'a>(settings: &'a ConfigMap, key: &str) -> impl Iterator<Item = &'a str> {
    let text = settings.data.as_ref().and_then(|data| data.get(key));
    let lines = text
        .map(String::as_str)
        .unwrap_or_default()
        .lines()
        .map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn refusal(line: &str) -> Option<Refusal> {
    let (place, code) = line.rsplit_once('=')?;
    let parts: Vec<&str> = place.split('/').map(str::trim).collect();
    let [size, zone, capacity_type] = parts[..] else {
        return None;
    };
    let some = |text: &str| (text != "*").then(|| text.to_owned());
    let spot = match capacity_type {
        "*" => None,
        "spot" => Some(true),
        "on-demand" => Some(false),
        _ => return None,
    };
    let code = code.trim();
    if size.is_empty() || zone.is_empty() || code.is_empty() {
        return None;
    }
    Some(Refusal {
        size: some(size),
        zone: some(zone),
        spot,
        status: Some(CONFLICT),
        code: code.to_owned(),
        message: format!("Refused with {code} as ConfigMap {SETTINGS_NAMESPACE}/{SETTINGS} says."),
    })
}

fn quota(line: &str) -> Option<(String, i64)> {
    let (family, cpus) = line.rsplit_once('=')?;
    let cpus = cpus.trim().parse().ok().filter(|cpus| *cpus >= 0)?;
    Some((family.trim().to_owned(), cpus)).filter(|(family, _)| !family.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_places_and_families() {
        let all = refusal("*/*/spot = SkuNotAvailable").unwrap();
        assert_eq!((all.size, all.zone, all.spot), (None, None, Some(true)));
        assert_eq!((all.status, all.code.as_str()), (Some(409), "SkuNotAvailable"));
        let one = refusal("Standard_D2s_v5/3/*=ZonalAllocationFailed").unwrap();
        assert_eq!(
            (one.size.as_deref(), one.zone.as_deref(), one.spot),
            (Some("Standard_D2s_v5"), Some("3"), None)
        );
        for wrong in ["", "D2", "D2/1=X", "D2/1/cheap=X", "/1/spot=X", "D2/1/spot="] {
            assert_eq!(refusal(wrong), None, "{wrong:?}");
        }
        assert_eq!(
            quota("standardDSv5Family = 8"),
            Some(("standardDSv5Family".to_owned(), 8))
        );
        for wrong in ["", "=4", "family", "family=-1", "family=many"] {
            assert_eq!(quota(wrong), None, "{wrong:?}");
        }
    }
}
