//! Which hosts a client of a cloud asks itself, whatever proxy the environment names.
//!
//! Owns the addresses. Through which proxy the others are asked is the client's.

use std::net::IpAddr;

/// Where instances of AWS (`fd00:ec2::254`) and the agent of Pod Identity (`fd00:ec2::23`) are asked in IPv6.
const AGENTS: [u16; 2] = [0xfd00, 0x0ec2];

/// Whether a host is the machine's own business: loopback and link-local addresses, as which the metadata of instances (`169.254.169.254`) and the agents of
/// Pod Identity (`169.254.170.23`) and ECS (`169.254.170.2`) are asked, and the same in IPv6. No proxy can reach it.
#[must_use]
pub fn is_of_the_machine(host: &str) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_link_local() || address.is_loopback(),
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.segments().starts_with(&AGENTS),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_of_the_machine_are_asked_directly_and_services_are_not() {
        for direct in [
            "169.254.169.254",
            "[fd00:ec2::254]",
            "169.254.170.23",
            "[fd00:ec2::23]",
            "169.254.170.2",
            "127.0.0.1",
            "[::1]",
            "LocalHost",
        ] {
            assert!(is_of_the_machine(direct), "{direct}");
        }
        for through in [
            "sts.eu-west-3.amazonaws.com",
            "management.azure.com",
            "10.0.0.1",
            "[fd00:ec3::23]",
            "169.254.169.254.example.com",
            "localhost.example.com",
            "",
        ] {
            assert!(!is_of_the_machine(through), "{through}");
        }
    }
}
