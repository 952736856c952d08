//! A job file and what it is given on the command line: read, checked against the tools, ready to be
//! submitted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use gesta_core::amounts::Budget;
use gesta_core::json::Canon;
use gesta_runtime::job::{self, Compiled, Problems};
use gesta_runtime::tools::Catalogue;
use gesta_runtime::{JobFiles, authority};

use crate::problem::Problem;
use crate::toolbox::Toolbox;

/// What is said of a job on the command line.
#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// The job file, YAML or JSON
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// A value of the job's input; give it again for more
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = pair)]
    inputs: Vec<(String, String)>,
    /// The job's input, as a JSON object in a file
    #[arg(long, value_name = "JSON", conflicts_with = "inputs")]
    input_file: Option<PathBuf>,
    /// What the job may use at most, beside its own budget: calls, money_micros, tokens or wall_ms
    #[arg(long = "budget", value_name = "WHAT=N", value_parser = limit)]
    budgets: Vec<(Limited, u64)>,
    /// The caller's key: the same key and content is the same job
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The writ to narrow the job's from [default: the workspace's root writ]
    #[arg(long, value_name = "FILE")]
    pub(crate) writ: Option<PathBuf>,
}

/// What can be limited.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limited {
    Calls,
    MoneyMicros,
    Tokens,
    WallMs,
}

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn limit(text: &str) -> Result<(Limited, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write it as WHAT=N")?;
    let what = match name {
        "calls" => Limited::Calls,
        "money_micros" => Limited::MoneyMicros,
        "tokens" => Limited::Tokens,
        "wall_ms" => Limited::WallMs,
        _ => return Err("it is one of calls, money_micros, tokens and wall_ms".to_owned()),
    };
    let most = value.parse().map_err(|_| format!("`{value}` is not a whole number"))?;
    Ok((what, most))
}

/// A job that can be submitted.
pub(crate) struct Job {
    pub(crate) compiled: Compiled,
    pub(crate) input: Canon,
    pub(crate) budget: Budget,
}

impl Job {
    /// Reads a job and its input.
    pub(crate) fn read(arguments: &JobArguments, tools: &Toolbox) -> Result<Self> {
        let compiled = load(&arguments.file, &tools.catalogue)?
            .map_err(|problems| refused_file(&problems, tools.advice()))?;
        let input = input(arguments, &compiled)?;
        let budget = authority::least(&compiled.budget, &budget_of(&arguments.budgets));
        Ok(Self { compiled, input, budget })
    }
}

/// Reads and compiles a job file. What is wrong with it is data: there may be much of it.
pub(crate) fn load(file: &Path, tools: &Catalogue) -> Result<Result<Compiled, Problems>> {
    let label = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Problem::new(format!("cannot read the job file `{label}`: {error}")).bad_input()
    })?;
    Ok(job::load_with(&label, &text, tools, &JobFiles))
}

fn input(arguments: &JobArguments, compiled: &Compiled) -> Result<Canon> {
    let input = match &arguments.input_file {
        Some(path) => {
            let shown = path.display();
            let bad =
                |why: String| Problem::new(format!("cannot use `{shown}`: {why}")).bad_input();
            let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
            let value = Canon::parse(&bytes).map_err(|error| bad(error.to_string()))?;
            compiled.input_json(&value)
        }
        None => {
            let mut given = BTreeMap::new();
            for (name, value) in &arguments.inputs {
                if given.insert(name.clone(), value.clone()).is_some() {
                    return Err(Problem::new(format!("the input `{name}` is given twice"))
                        .bad_input()
                        .into());
                }
            }
            compiled.input(&given)
        }
    };
    let hint = Some("give it with `--input NAME=VALUE` or `--input-file JSON`".to_owned());
    Ok(input.map_err(|problems| refused(&problems, hint))?)
}

/// A budget of what was given.
pub(crate) fn budget_of(given: &[(Limited, u64)]) -> Budget {
    let mut budget = Budget::default();
    for (what, most) in given {
        let limit = match what {
            Limited::Calls => &mut budget.calls,
            Limited::MoneyMicros => &mut budget.money_micros,
            Limited::Tokens => &mut budget.tokens,
            Limited::WallMs => &mut budget.wall_ms,
        };
        *limit = Some(*most);
    }
    budget
}

/// The same of a file, with what to do about tools if one is missing.
pub(crate) fn refused_file(problems: &Problems, advice: Option<String>) -> Problem {
    refused(problems, advice.filter(|_| problems.miss_a_tool()))
}

fn refused(problems: &Problems, hint: Option<String>) -> Problem {
    let problem = Problem::new(problems.to_string()).bad_input();
    match hint {
        Some(hint) => problem.hint(hint),
        None => problem,
    }
}
