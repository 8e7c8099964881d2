//! The definition of NodeOverlay (P §1.3).

use serde_json::{Value, json};

use super::shared::{self, Keys, rule};
use super::{Definition, column, wide_column};
use crate::NodeOverlay;

pub(super) fn crd() -> Value {
    let mut capacity = shared::quantities(
        "Extended resources that the instance types have beyond what the provider knows, such as smarter-devices/fuse: 1.",
    );
    capacity["x-kubernetes-validations"] = json!([rule(
        "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
        "invalid resource restricted"
    )]);
    let spec = json!({
        "description": "Which instance types are corrected, and how.",
        "type": "object",
        "required": ["requirements"],
        "x-kubernetes-validations": [rule("!(has(self.price) && has(self.priceAdjustment))", "cannot set both 'price' and 'priceAdjustment'")],
        "properties": {
            "requirements": shared::requirements("Which instance types and offerings it applies to.", Keys::Overlay),
            "price": {"description": "Price per hour to use instead of the provider's.", "type": "string", "pattern": r"^\d+(\.\d+)?$"},
            "priceAdjustment": {
                "description": "Change of the provider's price: signed and absolute such as -0.05, or in percent such as +10%.",
                "type": "string",
                "pattern": r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$",
            },
            "capacity": capacity,
            "weight": {"description": "If overlays conflict, the one with the higher weight wins.", "type": "integer", "format": "int32", "minimum": 1, "maximum": 10000},
        },
    });
    let status = json!({
        "description": "Whether the overlay is applied.",
        "type": "object",
        "properties": {"conditions": shared::conditions(false)},
    });
    Definition {
        group: NodeOverlay::GROUP,
        version: NodeOverlay::VERSION,
        kind: NodeOverlay::KIND,
        plural: NodeOverlay::PLURAL,
        namespaced: false,
        categories: &["karpenter"],
        short_names: &["overlays"],
        columns: vec![
            column(
                "Ready",
                "string",
                ".status.conditions[?(@.type==\"Ready\")].status",
            ),
            column("Age", "date", ".metadata.creationTimestamp"),
            wide_column("Weight", "integer", ".spec.weight"),
        ],
        scale: None,
        schema: shared::object(
            "A correction of the prices and capacities that the provider reports for instance types. Alpha.",
            &spec,
            &status,
        ),
    }
    .build()
}
