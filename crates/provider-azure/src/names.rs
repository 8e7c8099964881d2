//! Names: the parts of a size's name, names and resource IDs of machines, provider IDs, labels of zones (Z1.5, Z6.3, Z7).

/// The parts of a size's name, as Azure's naming convention has them: `Standard_NC24ads_A100_v4`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SizeName {
    /// First letter, such as `N`.
    pub family: String,
    /// Letters after it, such as `C`.
    pub subfamily: String,
    /// Number of vCPUs in the name.
    pub cpus: String,
    /// vCPUs that are left of those, for sizes that sell fewer, such as `2` of `M8-2ms`.
    pub constrained_cpus: Option<String>,
    /// Letters after the number, such as `ads`.
    pub features: String,
    /// Such as `A100`.
    pub accelerator: Option<String>,
    /// Such as `v4`.
    pub version: Option<String>,
}

fn split_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|letter| !keep(letter)).unwrap_or(text.len()))
}

impl SizeName {
    /// Reads a name, with or without its tier.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let size = name
            .strip_prefix("Standard_")
            .or_else(|| name.strip_prefix("Basic_"))
            .unwrap_or(name);
        let size = size.strip_suffix("_Promo").unwrap_or(size);
        let mut parts = size.split('_');
        let first = parts.next()?;
        let (letters, rest) = split_while(first, |letter| letter.is_ascii_uppercase());
        let (cpus, rest) = split_while(rest, |letter| letter.is_ascii_digit());
        let (constrained_cpus, features) = match rest.strip_prefix('-') {
            Some(rest) => {
                let (number, features) = split_while(rest, |letter| letter.is_ascii_digit());
                (Some(number.to_owned()), features)
            }
            None => (None, rest),
        };
        if letters.is_empty()
            || cpus.is_empty()
            || !features.chars().all(|letter| letter.is_ascii_alphabetic())
        {
            return None;
        }
        let (family, subfamily) = letters.split_at(1);
        let mut parsed = SizeName {
            family: family.to_owned(),
            subfamily: subfamily.to_owned(),
            cpus: cpus.to_owned(),
            constrained_cpus,
            features: features.to_owned(),
            ..SizeName::default()
        };
        for part in parts {
            let number = part.strip_prefix(['v', 'V']);
            if number.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|it| it.is_ascii_digit()))
            {
                parsed.version = Some(part.to_lowercase());
            } else if part.starts_with(|letter: char| letter.is_ascii_uppercase())
                && parsed.accelerator.is_none()
            {
                parsed.accelerator = Some(part.to_owned());
            }
        }
        Some(parsed)
    }

    /// The series, such as `NCads_v4` or `Ds_v5`.
    #[must_use]
    pub fn series(&self) -> String {
        let base = format!("{}{}{}", self.family, self.subfamily, self.features);
        match &self.version {
            Some(version) => format!("{base}_{version}"),
            None => base,
        }
    }

    /// The version's number; sizes without one are version 1.
    #[must_use]
    pub fn version_number(&self) -> &str {
        self.version.as_deref().map_or("1", |version| &version[1..])
    }

    /// Sizes for confidential computing, which are not used (Z4).
    #[must_use]
    pub fn is_confidential(&self) -> bool {
        self.subfamily.starts_with('C') && matches!(self.family.as_str(), "D" | "E")
    }
}

/// Value of the label of a zone: `<region>-<n>`; `0` for a machine without zone.
#[must_use]
pub fn zone_label(region: &str, zone: Option<&str>) -> String {
    zone.map_or_else(|| REGIONAL.to_owned(), |zone| format!("{region}-{zone}"))
}

/// Label value of a machine without zone.
pub const REGIONAL: &str = "0";

/// The zone as ARM names it; `None` for a machine without zone.
#[must_use]
pub fn arm_zone(label: &str) -> Option<&str> {
    label
        .rsplit_once('-')
        .map(|(_, zone)| zone)
        .filter(|zone| !zone.is_empty())
}

/// Name of a NodeClaim's machine and of its network interface. The same claim always gets the same name: that is what makes a launch that is
/// repeated find what the first one made.
#[must_use]
pub fn machine(node_claim: &str) -> String {
    format!("aks-{node_claim}")
}

/// The NodeClaim of a machine's name.
#[must_use]
pub fn node_claim(machine: &str) -> Option<&str> {
    machine.strip_prefix("aks-").filter(|claim| !claim.is_empty())
}

/// Where machines are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Subscription.
    pub subscription: String,
    /// Resource group of the nodes.
    pub resource_group: String,
}

impl Place {
    /// Resource ID of a machine.
    #[must_use]
    pub fn machine_id(&self, name: &str) -> String {
        self.id("Microsoft.Compute/virtualMachines", name)
    }

    /// Resource ID of a network interface.
    #[must_use]
    pub fn interface_id(&self, name: &str) -> String {
        self.id("Microsoft.Network/networkInterfaces", name)
    }

    fn id(&self, kind: &str, name: &str) -> String {
        format!(
            "/subscriptions/{}/resourceGroups/{}/providers/{kind}/{name}",
            self.subscription, self.resource_group
        )
    }

    /// Provider ID of a machine: its resource ID with subscription and resource group in lower case, whatever their case in the settings. Azure does not tell
    /// letters apart by it, and whoever compares provider IDs does.
    #[must_use]
    pub fn provider_id(&self, machine: &str) -> String {
        let lower = Place {
            subscription: self.subscription.to_lowercase(),
            resource_group: self.resource_group.to_lowercase(),
        };
        format!("azure://{}", lower.machine_id(machine))
    }

    /// The machine of a provider ID; `None` for what is no machine of this place.
    #[must_use]
    pub fn machine_of<'a>(&self, provider_id: &'a str) -> Option<&'a str> {
        let parts: Vec<&str> = provider_id.strip_prefix("azure:///")?.split('/').collect();
        let [
            subscriptions,
            subscription,
            groups,
            group,
            providers,
            compute,
            machines,
            name,
        ] = parts[..]
        else {
            return None;
        };
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        (same(subscriptions, "subscriptions")
            && same(subscription, &self.subscription)
            && same(groups, "resourceGroups")
            && same(group, &self.resource_group)
            && same(providers, "providers")
            && same(compute, "Microsoft.Compute")
            && same(machines, "virtualMachines")
            && !name.is_empty())
        .then_some(name)
    }
}
