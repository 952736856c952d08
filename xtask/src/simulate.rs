//! `cargo xtask simulate`: whole histories in virtual time, with everything going wrong, for as many
//! seeds as there is patience for.

use anyhow::{Context, Result, bail};

use crate::tool;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (name, number) = match args {
        [flag, number] if flag == "--seeds" => ("GESTA_SIM_SEEDS", number),
        [flag, number] if flag == "--seed" => ("GESTA_SIM_SEED", number),
        [] => bail!("how many? as in `cargo xtask simulate --seeds 10000`, or `--seed 17` for one"),
        _ => bail!("unknown arguments `{}`; there are --seeds N and --seed N", args.join(" ")),
    };
    number.parse::<u64>().with_context(|| format!("`{number}` is not a number"))?;
    let mut test = tool::cargo(&["test", "--release", "--package", "gesta-runtime"]);
    test.args(["--test", "simulation", "--", "--nocapture", "no_history"]).env(name, number);
    tool::run(&mut test)
}
