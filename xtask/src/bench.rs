//! `cargo xtask bench`: the benchmarks of `bench/`, built for release, with a PostgreSQL of their own.

use anyhow::Result;

use crate::postgres::Cluster;
use crate::tool;

pub(crate) fn run(args: &[String]) -> Result<()> {
    tool::run(&mut tool::cargo(&["build", "--release", "--package", "gesta-bench"]))?;
    let cluster = Cluster::start()?;
    let mut bench = tool::cargo(&["run", "--release", "--quiet", "--package", "gesta-bench", "--"]);
    let ran = tool::run(bench.args(args).envs(cluster.variables()));
    cluster.stop()?;
    ran
}
