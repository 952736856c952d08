//! `cargo xtask vectors`: writes the golden vectors again, from fixed keys, clock and seeds.

use anyhow::Result;

use crate::postgres::Cluster;
use crate::tool;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut write =
        tool::cargo(&["run", "--quiet", "--package", "gesta-verify", "--example", "vectors", "--"]);
    tool::run(write.args(args).arg("vectors"))?;
    runs(args.iter().any(|arg| arg == "--check"))
}

/// What jobs write takes the whole program and every store: the tests that compare it can write it.
fn runs(check: bool) -> Result<()> {
    let cluster = Cluster::start()?;
    let mut test = tool::cargo(&["test", "--quiet", "--workspace", "--all-features"]);
    test.args(["--test", "runs", "written::"]).envs(cluster.variables());
    if !check {
        test.env("GESTA_BLESS", "1");
    }
    tool::run(&mut test)?;
    cluster.stop()
}
