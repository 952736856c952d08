//! Transparency logs that are not what they were, shown to somebody who remembers.

use anyhow::{Context as _, Result};
use gesta_core::digest::Digest;
use gesta_core::log::checkpoint::TreeHead;
use gesta_core::log::note::Note;
use gesta_core::time::UnixMs;
use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::Bundle;
use gesta_verify::engine::{Chains as _, Demand, Options, Seen, verify};
use gesta_verify::report::Report;

use super::{Tried, trust, vector};

/// The bundle that comes with a checkpoint.
const SEALED: &str = "sealed";

/// Every case: what is demanded of the log, and the code of the only finding.
pub(super) fn cases() -> Result<Vec<Tried>> {
    let bytes = vector("bundles", &format!("{SEALED}.tar")).context("no sealed bundle")?;
    let read = |why: String| anyhow::anyhow!("the sealed bundle cannot be read: {why}");
    let bundle = Bundle::read(Box::new(bytes.to_vec())).map_err(|it| read(it.to_string()))?;
    let sealing = bundle.sealing().context("the sealed bundle is not")?;
    let note = Note::parse(&sealing.checkpoint)?;
    let now = TreeHead::parse(&note.text)?;
    let seen = |head: TreeHead| Demand {
        seen: Some(Seen { head, consistency: None }),
        ..Demand::default()
    };
    let grown = TreeHead { size: now.size + 1, ..now.clone() };
    let other = TreeHead { root: Digest::of(b"other"), ..now.clone() };
    let earlier = TreeHead { size: now.size - 1, ..now };
    let origin = Some("log.example/other".to_owned());
    let cases = [
        ("rolled-back", seen(grown), "rolled_back"),
        ("two-heads-shown", seen(other), "split_view"),
        ("growth-not-shown", seen(earlier), "consistency"),
        (
            "old-checkpoint",
            Demand { after: Some(UnixMs::LAST), ..Demand::default() },
            "stale_checkpoint",
        ),
        ("another-log", Demand { origin, ..Demand::default() }, "log_origin"),
        ("too-few-witnesses", Demand { witnesses: 2, ..Demand::default() }, "too_few_witnesses"),
    ];
    let trust = trust(SEALED)?;
    cases
        .into_iter()
        .map(|(name, demand, code)| tried(name, &bundle, &trust, &demand, code))
        .collect()
}

fn tried(
    name: &str,
    bundle: &Bundle,
    trust: &TrustRoot,
    demand: &Demand,
    code: &str,
) -> Result<Tried> {
    let options = Options { demand, ..Options::default() };
    let report: Report = verify(bundle, &trust.keyring()?, &options);
    let said = report.first().map_or_else(|| "sound".to_owned(), ToString::to_string);
    let right = matches!(&report.findings[..], [only] if only.code == code);
    let expected = (!right).then(|| code.to_owned());
    Ok(Tried { part: "log", name: name.to_owned(), said, expected })
}
