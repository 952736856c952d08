//! `cargo xtask vectors`: writes the golden vectors again, from fixed keys, clock and seeds.

use anyhow::Result;

use crate::tool;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut write =
        tool::cargo(&["run", "--quiet", "--package", "gesta-verify", "--example", "vectors", "--"]);
    tool::run(write.args(args).arg("vectors"))
}
