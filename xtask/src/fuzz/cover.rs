//! Which inputs are worth keeping: the fewest that together reach what all of them reach. libFuzzer tells what
//! each one reaches, in the control file of a merge.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// An input, and the places of the program that it reaches, as libFuzzer numbers them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    size_bytes: u64,
    reaches: BTreeSet<u64>,
}

/// Reads a control file: how many files, how many of them are in the first directory, their names; then of
/// each, in lines of their own, its size (`STARTED`) and what it reaches (`FT`).
pub(super) fn read(told: &str) -> Result<Vec<Input>> {
    let mut lines = told.lines();
    let mut number = || lines.next().and_then(|line| line.trim().parse::<usize>().ok());
    let count = number().context("it does not say how many files there are")?;
    number().context("it does not say how many files there were before")?;
    let named = lines.by_ref().take(count);
    let mut inputs: Vec<Input> = named
        .map(|path| Input { path: path.into(), size_bytes: 0, reaches: BTreeSet::new() })
        .collect();
    for line in lines {
        let mut words = line.split_whitespace();
        let what = words.next();
        let mut numbers = words.filter_map(|word| word.parse::<u64>().ok());
        let file = numbers.next().and_then(|file| usize::try_from(file).ok());
        let Some(input) = file.and_then(|file| inputs.get_mut(file)) else { continue };
        match what {
            Some("STARTED") => input.size_bytes = numbers.next().unwrap_or_default(),
            Some("FT") => input.reaches = numbers.collect(),
            _ => {}
        }
    }
    Ok(inputs)
}

/// Each time the input that adds most to what is reached already, the smallest of equals, until none adds
/// anything or there are `most`. What is in `had` counts as reached, and is not chosen.
pub(super) fn choose(inputs: Vec<Input>, had: &Path, most: usize) -> Vec<PathBuf> {
    let (had, mut offered): (Vec<Input>, Vec<Input>) =
        inputs.into_iter().partition(|input| input.path.starts_with(had));
    let mut reached: BTreeSet<u64> = had.into_iter().flat_map(|input| input.reaches).collect();
    let mut chosen = Vec::new();
    while chosen.len() < most {
        for input in &mut offered {
            input.reaches.retain(|place| !reached.contains(place));
        }
        offered.retain(|input| !input.reaches.is_empty());
        offered.sort_by(|one, other| {
            let rank = |input: &Input| (Reverse(input.reaches.len()), input.size_bytes);
            (rank(one), &one.path).cmp(&(rank(other), &other.path))
        });
        if offered.is_empty() {
            break;
        }
        let best = offered.remove(0);
        reached.extend(best.reaches);
        chosen.push(best.path);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "5\n0\nhad/a\nnew/tiny\nnew/wide\nnew/deep\nnew/long\n\
                        STARTED 0 9\nFT 0 1 2\nCOV 0 1\nSTARTED 1 1\nFT 1 1\n\
                        STARTED 2 40\nFT 2 1 3 4 5\nSTARTED 3 30\nFT 3 5 6\n\
                        STARTED 4 90\nFT 4 5 6\n";

    #[test]
    fn what_reaches_most_is_kept_and_not_what_is_smallest() {
        let chosen = |most| choose(read(TOLD).unwrap(), Path::new("had"), most);
        assert_eq!(chosen(9), [PathBuf::from("new/wide"), PathBuf::from("new/deep")]);
        assert_eq!(chosen(1), [PathBuf::from("new/wide")]);
    }

    #[test]
    fn an_input_that_broke_off_reaches_nothing() {
        let inputs = read("1\n0\nnew/a\nSTARTED 0 9\n").unwrap();
        assert_eq!(choose(inputs, Path::new("had"), 9), [] as [PathBuf; 0]);
        assert!(read("").is_err());
    }
}
