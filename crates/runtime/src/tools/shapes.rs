//! What policies know of the tools of a catalogue.

use std::collections::BTreeMap;

use gesta_core::ids::ToolName;
use gesta_core::json::JsonError;
use gesta_policy::ToolShape;

use super::catalogue::Catalogue;

impl Catalogue {
    /// The shape of every tool: effect, risk, and the schema of its arguments as it is enforced.
    pub fn shapes(&self) -> Result<BTreeMap<ToolName, ToolShape>, JsonError> {
        let shape = |tool: &super::tool::Tool| {
            let manifest = tool.manifest();
            let input = tool.input_schema().read()?;
            let shape = ToolShape { effect: manifest.effect, input, risk: manifest.risk };
            Ok((tool.name().clone(), shape))
        };
        self.iter().map(shape).collect()
    }
}
