//! Whether an instance type can be launched as an EC2NodeClass asks (A3.4). A type that cannot keeps its row in the catalogue and is never
//! launched.

use spokeshave_api::EC2NodeClass;
use spokeshave_api::ec2_node_class::{AmiFamily, InterfaceType, NetworkInterface};

use crate::describe::InstanceTypeInfo;

/// Why an instance type cannot be launched from a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// `a1` types do not run Amazon Linux 2023.
    #[error("a1 instance types do not run AL2023")]
    Family,
    /// The configured interfaces need cards, places or adapters that it has not.
    #[error("it has no room for the network interfaces of the EC2NodeClass")]
    NetworkInterfaces,
    /// It does not support nested virtualization.
    #[error("it does not support nested virtualization")]
    NestedVirtualization,
    /// Connection tracking can only be configured on nitro.
    #[error("connection tracking can only be configured on nitro instances")]
    ConnectionTracking,
    /// The strategy of the placement group.
    #[error("it does not support the strategy of the placement group")]
    PlacementGroup,
}

/// Whether a type can be launched from a class; `strategy` is that of the class's placement group, if it has one.
///
/// # Errors
/// The first rule that the type breaks.
pub fn check(
    info: &InstanceTypeInfo,
    class: &EC2NodeClass,
    strategy: Option<&str>,
) -> Result<(), Incompatible> {
    if class.resolved_ami_family() == AmiFamily::Al2023 && info.instance_type.starts_with("a1.") {
        return Err(Incompatible::Family);
    }
    if !has_room(info, &class.spec.network_interfaces) {
        return Err(Incompatible::NetworkInterfaces);
    }
    let options = class.spec.cpu_options.as_ref();
    if options.and_then(|options| options.nested_virtualization.as_deref()) == Some("enabled")
        && !info
            .processor_info
            .as_ref()
            .is_some_and(|processor| has(&processor.supported_features, "nested-virtualization"))
    {
        return Err(Incompatible::NestedVirtualization);
    }
    let strategies = info
        .placement_group_info
        .as_ref()
        .map(|group| group.supported_strategies.as_slice());
    if strategy.is_some_and(|strategy| !has(strategies.unwrap_or_default(), strategy)) {
        return Err(Incompatible::PlacementGroup);
    }
    if class.spec.connection_tracking.is_some() && info.hypervisor != "nitro" {
        return Err(Incompatible::ConnectionTracking);
    }
    Ok(())
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == wanted)
}

fn has_room(info: &InstanceTypeInfo, interfaces: &[NetworkInterface]) -> bool {
    if interfaces.is_empty() {
        return true;
    }
    let network = &info.network_info;
    let fits = |interface: &NetworkInterface| {
        let card = network
            .network_cards
            .iter()
            .find(|card| card.network_card_index == i64::from(interface.network_card_index));
        card.is_some_and(|card| i64::from(interface.device_index) < card.maximum_network_interfaces)
    };
    let efas = interfaces
        .iter()
        .filter(|interface| interface.interface_type == InterfaceType::EfaOnly)
        .count();
    let most_efas = network
        .efa_info
        .as_ref()
        .and_then(|efa| efa.maximum_efa_interfaces)
        .unwrap_or(0);
    network.ena_support != "unsupported"
        && interfaces.iter().all(fits)
        && i64::try_from(efas).is_ok_and(|efas| efas <= most_efas)
}
