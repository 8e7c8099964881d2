//! Which sizes with GPUs can be nodes, whose GPUs they are, and which systems have drivers for them (Z4).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use spokeshave_api::aks_node_class::ImageFamily;

/// GPUs of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gpus {
    /// `nvidia` or `amd`.
    pub maker: &'static str,
    systems: &'static str,
}

static SIZES: LazyLock<BTreeMap<&'static str, Gpus>> = LazyLock::new(|| {
    let rows = include_str!("../data/gpus.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'));
    rows.skip(1)
        .filter_map(|row| {
            let mut cells = row.split('\t');
            let (size, maker, systems) = (cells.next()?, cells.next()?, cells.next()?);
            Some((size, Gpus { maker, systems }))
        })
        .collect()
});

/// GPUs of a size, if it is one that AKS supports.
#[must_use]
pub fn of(size: &str) -> Option<Gpus> {
    let lower = size.to_lowercase();
    SIZES.get(lower.strip_suffix("_promo").unwrap_or(&lower)).copied()
}

impl Gpus {
    /// Whether images of the family have a driver for them.
    #[must_use]
    pub fn work_on(self, family: &ImageFamily) -> bool {
        self.systems.split(',').any(|system| match family {
            ImageFamily::Ubuntu | ImageFamily::Ubuntu2204 | ImageFamily::Ubuntu2404 => system == "ubuntu",
            ImageFamily::AzureLinux => matches!(system, "azurelinux" | "azurelinux3"),
            ImageFamily::Other(_) => false,
        })
    }
}
