//! `cargo xtask soak`: many jobs while a worker dies every second, for as long as there is patience
//! for. Nothing may be lost or happen twice, every chain must verify and every job end.

use anyhow::{Context, Result, bail};

use crate::postgres::Cluster;
use crate::tool;

const JOBS: &str = "64";
const STEPS: &str = "100";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let Wanted { minutes, store, profile } = read(args)?;
    let cluster = Cluster::start()?;
    let mut test = tool::cargo(&["test", "--package", "gesta-cli", "--all-features"]);
    test.args(["--profile", &profile, "--test", "fleet"]);
    test.args(["--", "--nocapture", "--test-threads=1"]);
    test.arg(match store {
        None => "while_workers_die".to_owned(),
        Some(store) => format!("while_workers_die_on_{store}"),
    });
    test.env("GESTA_LOAD_MINUTES", minutes.to_string());
    test.env("GESTA_LOAD_JOBS", JOBS).env("GESTA_LOAD_STEPS", STEPS).envs(cluster.variables());
    tool::run(&mut test)?;
    cluster.stop()
}

#[derive(Debug, PartialEq)]
struct Wanted {
    /// For how long new rounds begin, on each store; one round each if it is 0.
    minutes: u64,
    /// Which store, if not both.
    store: Option<String>,
    /// How workers are built.
    profile: String,
}

fn read(args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted { minutes: 0, store: None, profile: "release".to_owned() };
    for pair in args.chunks(2) {
        match pair {
            [flag, minutes] if flag == "--minutes" => {
                wanted.minutes =
                    minutes.parse().with_context(|| format!("`{minutes}` is not a number"))?;
            }
            [flag, store] if flag == "--store" && ["sqlite", "postgres"].contains(&&**store) => {
                wanted.store = Some(store.clone());
            }
            [flag, profile] if flag == "--profile" && ["dev", "release"].contains(&&**profile) => {
                wanted.profile.clone_from(profile);
            }
            _ => bail!(
                "unknown arguments `{}`; as in `cargo xtask soak --minutes 10 --store postgres --profile dev`, \
                 where the store is sqlite or postgres, or both if none is named, for so many minutes each, and \
                 the profile dev or release, which is the default",
                pair.join(" ")
            ),
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let read = |text: &str| {
            super::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let release = "release".to_owned();
        assert_eq!(read("").unwrap(), Wanted { minutes: 0, store: None, profile: release });
        let (store, profile) = (Some("sqlite".to_owned()), "dev".to_owned());
        let all = Wanted { minutes: 7, store, profile };
        assert_eq!(read("--minutes 7 --store sqlite --profile dev").unwrap(), all);
        assert!(read("--minutes many").is_err());
        assert!(read("--store disk").unwrap_err().to_string().contains("sqlite or postgres"));
    }
}
