//! How fast a bundle is verified, against the bare cost of its signatures, and in how much memory.
//!
//! What one thread does is measured in the time that it was given a core, so that other work on the
//! machine is not counted.

use std::fs::File;
use std::hint::black_box;
use std::io::BufWriter;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use gesta_core::body::Origin;
use gesta_core::entry::{Body, Entry};
use gesta_core::keys::{KeyId, Signature};
use gesta_core::projection::Admitted;
use gesta_core::signed::{Document, Signed};
use gesta_verify::bundle::{Bundle, Contents, Writer};
use gesta_verify::engine::{Options, verify};
use gesta_verify::report::Verdict;

use crate::history::{cast, results, session, trajectory};
use crate::table::{Table, median, per_second, rate, time};

const ENTRIES: usize = 40_000;
const ROUNDS: usize = 3;

pub(crate) fn rates(place: &Path, table: &mut Table) -> Result<()> {
    let (small, one) = (place.join("small.tar"), place.join("one.tar"));
    let kib = mean(&bundle(&small, 1, |number| results(number, ENTRIES))?);
    let entries = bundle(&one, 1, |number| session(number, ENTRIES))?;
    let documents = signatures(&entries);
    // Keys unpacked beforehand, as a verification has them: the bare cost is not made to look larger.
    let keyring = cast().trust_root().keyring()?;

    let (mut plain, mut calls, mut signed, mut bare) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        plain.push(verified(&small, false)?);
        calls.push(verified(&one, false)?);
        signed.push(verified(&one, true)?);
        let (took, genuine) = on_one_core(|| {
            let mut documents = documents.iter();
            documents.all(|(key, message, signature)| keyring.verifies(key, message, signature))
        })?;
        ensure!(black_box(genuine), "a signature of the sample is not genuine");
        bare.push(per_second(entries.len(), took));
    }
    let (plain, signed, bare) = (median(plain), median(signed), median(bare));
    let what = format!("verify without signatures, one core, {kib}-byte entries");
    table.ratio(&what, rate(plain), plain / 100_000.0, "≥ 100,000/s");
    let what = format!("the same, entries of calls, {} bytes", mean(&entries));
    table.limit(&what, rate(median(calls)));
    let what = format!("bare Ed25519, {} signatures", documents.len());
    table.limit(&what, format!("{bare:.0} entries/s"));
    let what = "verify with signatures, one core";
    table.ratio(what, rate(signed), bare / signed, "≤ 1.3 of the bare cost");

    let many = place.join("many.tar");
    bundle(&many, 8, |number| session(number, ENTRIES / 8))?;
    let (mut single, mut double) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        single.push(passed(&many, 1)?);
        double.push(passed(&many, 2)?);
    }
    let (single, double) = (median(single), median(double));
    table.ratio(
        "verify with signatures, two cores, 8 trajectories",
        rate(double),
        double / single,
        "towards 2 times one",
    );
    memory(place, table)
}

fn mean(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.bytes().len()).sum::<usize>() / entries.len().max(1)
}

/// Writes a bundle of `count` histories, and returns all entries.
fn bundle(
    file: &Path,
    count: u64,
    history: impl Fn(u64) -> Result<Vec<Admitted>>,
) -> Result<Vec<Entry>> {
    let mut lists = Vec::new();
    let mut contents = Contents::default();
    for number in 0..count {
        let appends = history(number)?;
        let entries: Vec<Entry> =
            appends.iter().flat_map(|append| append.entries().to_vec()).collect();
        for entry in &entries {
            contents.entry(trajectory(number), entry.head(), entry.bytes().len() as u64);
        }
        lists.push((trajectory(number), entries));
    }
    lists.sort_by_key(|(trajectory, _)| *trajectory);
    let mut writer = Writer::new(BufWriter::new(File::create(file)?), contents)?;
    for (trajectory, entries) in &lists {
        for entry in entries {
            writer.entry(*trajectory, entry.bytes())?;
        }
    }
    std::io::Write::flush(&mut writer.finish()?)?;
    Ok(lists.into_iter().flat_map(|(_, entries)| entries).collect())
}

/// Entries a second on one core, of a verification that found everything sound.
fn verified(file: &Path, signatures: bool) -> Result<f64> {
    let (took, entries) = on_one_core(|| sound(file, NonZeroUsize::MIN, signatures))?;
    Ok(per_second(entries?, took))
}

/// Entries a second by the clock on the wall, signatures and all.
fn passed(file: &Path, threads: usize) -> Result<f64> {
    let threads = NonZeroUsize::new(threads).context("at least one thread")?;
    let (took, entries) = time(|| sound(file, threads, true));
    Ok(per_second(entries?, took))
}

/// Verifies a bundle, which must be sound. Returns how many entries it has.
fn sound(file: &Path, threads: NonZeroUsize, signatures: bool) -> Result<usize> {
    let trust = cast().trust_root().keyring()?;
    // Without signatures nothing is called sound but what was examined: a part.
    let options = Options { threads, signatures, partial: !signatures, ..Options::default() };
    let bundle = Bundle::open(file).map_err(|finding| anyhow::anyhow!("{finding}"))?;
    let report = verify(&bundle, &trust, &options);
    ensure!(report.verdict == Verdict::Sound, "the sample does not verify: {:?}", report.findings);
    Ok(usize::try_from(report.counts.entries)?)
}

/// For how long this thread was given a core while it did something.
fn on_one_core<T>(run: impl FnOnce() -> T) -> Result<(Duration, T)> {
    let so_far = || -> Result<Duration> {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
        let nanoseconds = times.split(' ').next().context("no times of this thread")?;
        Ok(Duration::from_nanos(nanoseconds.parse()?))
    };
    let before = so_far()?;
    let result = run();
    Ok((so_far()?.saturating_sub(before), result))
}

/// Every signed document of the entries, as bare Ed25519 sees it.
fn signatures(entries: &[Entry]) -> Vec<(KeyId, &[u8], &Signature)> {
    fn bare<D: Document>(signed: &Signed<D>) -> (KeyId, &[u8], &Signature) {
        (signed.doc().key(), signed.canon().as_bytes(), signed.signature())
    }
    let mut found = Vec::new();
    for entry in entries {
        match &entry.payload().body {
            Body::Started(started) => {
                found.extend([bare(&started.decision), bare(&started.permit)]);
            }
            Body::Commit(commit) => {
                if let Origin::Effect { receipt, .. } = &commit.origin {
                    found.push(bare(receipt));
                }
            }
            _ => {}
        }
    }
    found
}

/// The memory of a verification of a short and a ten times longer trajectory, in processes of their own.
fn memory(place: &Path, table: &mut Table) -> Result<()> {
    let (what, short) = peak(place, 20_000)?;
    table.limit(&what, format!("{short:.1} MB"));
    let (what, long) = peak(place, 200_000)?;
    table.ratio(&what, format!("{long:.1} MB"), long / short, "≤ 1.2 of the shorter");
    Ok(())
}

/// The peak of memory of verifying so many entries, in MB, and what that was.
fn peak(place: &Path, entries: usize) -> Result<(String, f64)> {
    let file = place.join(format!("memory-{entries}.tar"));
    bundle(&file, 1, |number| session(number, entries))?;
    let output = Command::new(std::env::current_exe()?).arg("peak-memory").arg(&file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let peak: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    let size = std::fs::metadata(&file)?.len() as f64 / 1e6;
    Ok((format!("peak memory, verifying {entries} entries ({size:.0} MB)"), peak / 1024.0))
}

/// Verifies a bundle and prints the peak of this process's memory in KiB.
pub(crate) fn peak_memory(file: &Path) -> Result<()> {
    sound(file, NonZeroUsize::MIN, false)?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))
        .context("no VmHWM in /proc/self/status")?;
    println!("{}", peak.trim());
    Ok(())
}
