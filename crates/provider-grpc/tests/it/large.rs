//! A catalog of the size of the largest region's.

use spokeshave_example as example;
use spokeshave_model::InstanceType;

/// 1,400 types with 16,800 offerings.
pub(crate) fn large() -> Vec<InstanceType> {
    let zones: Vec<String> = (0..6).map(|zone| format!("zone-{zone}")).collect();
    let zones: Vec<&str> = zones.iter().map(String::as_str).collect();
    let types = (0..1400).map(|number| {
        let mut one = example::instance_type(&format!("type-{number:04}"), 1 + number % 96, 4, &zones);
        for key in 0..20 {
            let requirement =
                spokeshave_model::Requirement::is(&format!("shed.example/label-{key}"), "some-value");
            one.requirements.add(requirement);
        }
        one
    });
    types.collect()
}
