//! Sound bundles changed at random: no change may verify.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use anyhow::{Context as _, Result};
use gesta_core::content::BlobRef;
use gesta_core::digest::{Digest, EntryId};
use gesta_core::entry::Head;
use gesta_core::ids::TrajectoryId;
use gesta_core::json::Canon;
use gesta_core::trust::TrustRoot;
use gesta_verify::bundle::{Bundle, Contents, Disclosed, Writer};
use gesta_verify::engine::Chains as _;
use gesta_verify::report::Verdict;
use serde_json::Value;

use super::{Arguments, VECTORS, report, trust, vector};
use crate::commands::verify::bar;
use crate::output;
use crate::problem::Problem;
use crate::session::Session;

/// The bundles of vectors that are changed, beside what jobs wrote. One is sealed, one discloses values.
const SOUND: [&str; 3] = ["valid", SEALED, DISCLOSED];
const SEALED: &str = "sealed";
const DISCLOSED: &str = "disclosed";

/// A sound bundle.
struct Sound {
    name: &'static str,
    bytes: &'static [u8],
    trust: TrustRoot,
}

impl Sound {
    /// Those that are made to be changed, and what jobs wrote.
    fn all() -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for name in SOUND {
            let bytes = vector("bundles", &format!("{name}.tar"));
            all.push((name, bytes.context("a sound bundle is lacking")?, trust(name)?));
        }
        for (_, file, bytes) in VECTORS.iter().filter(|(part, ..)| *part == "runs") {
            if let Some(name) = file.strip_suffix(".tar") {
                let keys = vector("runs", &format!("{name}.trust.json"));
                let keys = TrustRoot::parse(keys.context("a run has no trust root")?)?;
                all.push((name, bytes, keys));
            }
        }
        all.into_iter()
            .map(|(name, bytes, trust)| {
                let sound = Self { name, bytes, trust };
                match sound.passes(bytes.to_vec())? {
                    true => Ok(sound),
                    false => {
                        Err(Problem::new(format!("`{name}` of the vectors is not sound")).into())
                    }
                }
            })
            .collect()
    }

    fn named<'a>(all: &'a [Self], name: &str) -> Result<&'a Self> {
        all.iter().find(|sound| sound.name == name).context("a sound bundle is lacking")
    }

    fn passes(&self, bytes: Vec<u8>) -> Result<bool> {
        Ok(report(bytes, &self.trust)?.verdict == Verdict::Sound)
    }
}

/// Changes sound bundles at random, again and again. Returns the changes that were not found out.
pub(super) fn mutations(session: &Session, arguments: &Arguments) -> Result<Vec<String>> {
    let all = Sound::all()?;
    let (sealed, disclosed) = (Sound::named(&all, SEALED)?, Sound::named(&all, DISCLOSED)?);
    let (entries, values) = (Forgery::of(sealed.bytes)?, Forgery::of(disclosed.bytes)?);
    let bar = bar(output::shows_progress(session.out.is_json()), arguments.mutations);
    let mut dice = Dice(arguments.seed);
    let mut passed = Vec::new();
    for number in 0..arguments.mutations {
        let (of, (changed, what)) = match dice.below(4) {
            0 => (sealed, entries.forged(&mut dice)?),
            1 => (disclosed, values.misquoted(&mut dice)?),
            _ => {
                let of = all.get(dice.below(all.len())).unwrap_or(sealed);
                (of, dice.change(of.bytes))
            }
        };
        if changed != of.bytes && of.passes(changed)? {
            passed.push(format!("`{}`: {what}", of.name));
        }
        bar.set_position(number + 1);
    }
    bar.finish_and_clear();
    Ok(passed)
}

/// A bundle taken apart by somebody who changes one value of one entry and makes everything else fit:
/// canonical bytes, the ids of all entries after it, the manifest. Only what others have signed stays.
struct Forgery {
    bundle: Bundle,
    chains: BTreeMap<TrajectoryId, Vec<Vec<u8>>>,
    blobs: Vec<Vec<u8>>,
    openings: Vec<Disclosed>,
}

impl Forgery {
    fn of(bytes: &[u8]) -> Result<Self> {
        let read = |finding: gesta_core::verification::Finding| Problem::new(finding.to_string());
        let bundle = Bundle::read(Box::new(bytes.to_vec())).map_err(read)?;
        let mut chains = BTreeMap::new();
        for trajectory in bundle.trajectories().map_err(read)? {
            let mut lines = Vec::new();
            let each = &mut |line: &[u8], _: Option<EntryId>| {
                lines.push(line.to_vec());
                ControlFlow::Continue(())
            };
            bundle.entries(trajectory, each).map_err(read)?;
            chains.insert(trajectory, lines);
        }
        let listed = bundle.listed_blobs().unwrap_or_default();
        let blobs = listed.into_iter().map(|digest| bundle.blob_bytes(digest).map_err(read));
        let blobs = blobs.collect::<Result<_, _>>()?;
        let openings = bundle.openings().values().cloned().collect();
        Ok(Self { bundle, chains, blobs, openings })
    }

    /// Quotes one of the values that are disclosed in other words, or as that of another commitment.
    fn misquoted(&self, dice: &mut Dice) -> Result<(Vec<u8>, String)> {
        let mut openings = self.openings.clone();
        let chosen = dice.below(openings.len());
        let opening = openings.get_mut(chosen).context("nothing is disclosed")?;
        let mut value = serde_json::to_value(&*opening)?;
        let leaf = dice.below(leaves(&value));
        let place = change_leaf(&mut value, leaf, "").unwrap_or_default();
        *opening = Canon::of(&value)?.read()?;
        let what = format!("`{place}` of opening {chosen} changed and the bundle written anew");
        Ok((self.written(&self.chains, &openings)?, what))
    }

    fn forged(&self, dice: &mut Dice) -> Result<(Vec<u8>, String)> {
        let mut chains = self.chains.clone();
        let chosen = dice.below(chains.len());
        let (trajectory, lines) = chains.iter_mut().nth(chosen).context("an empty bundle")?;
        let seq = dice.below(lines.len());
        let mut what = format!("entry {seq} of {trajectory}, ");
        let mut parent: Option<String> = None;
        for line in lines.iter_mut().skip(seq) {
            let mut value: Value = serde_json::from_slice(line)?;
            match parent.take() {
                Some(parent) => {
                    value
                        .as_object_mut()
                        .context("no entry")?
                        .insert("parent".into(), parent.into());
                }
                None => {
                    let leaf = dice.below(leaves(&value));
                    let place = change_leaf(&mut value, leaf, "").unwrap_or_default();
                    what.push_str(&format!(
                        "`{place}` changed and everything after it hashed anew"
                    ));
                }
            }
            // A value without a canonical form is left as it is: the rest does not fit it any more.
            if let Ok(canon) = Canon::of(&value) {
                *line = canon.as_bytes().to_vec();
            }
            parent = Some(Digest::of(line).to_string());
        }
        Ok((self.written(&chains, &self.openings)?, what))
    }

    fn written(
        &self,
        chains: &BTreeMap<TrajectoryId, Vec<Vec<u8>>>,
        openings: &[Disclosed],
    ) -> Result<Vec<u8>> {
        let mut contents = Contents::default();
        for (trajectory, lines) in chains {
            for (seq, line) in lines.iter().enumerate() {
                let head = Head { id: EntryId::new(Digest::of(line)), seq: seq as u64 };
                contents.entry(*trajectory, head, line.len() as u64);
            }
        }
        self.blobs.iter().for_each(|blob| contents.blob(BlobRef::of(blob)));
        openings.iter().for_each(|opening| contents.opening(opening.clone()));
        self.bundle.hints().iter().for_each(|key| contents.key(key.clone()));
        if let Some(sealing) = self.bundle.sealing() {
            contents.sealing(sealing.clone());
        }
        let mut writer = Writer::new(Vec::new(), contents)?;
        for (trajectory, lines) in chains {
            for line in lines {
                writer.entry(*trajectory, line)?;
            }
        }
        for blob in &self.blobs {
            writer.blob(blob)?;
        }
        Ok(writer.finish()?)
    }
}

/// How many values there are that hold no others.
fn leaves(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.values().map(leaves).sum(),
        Value::Array(items) => items.iter().map(leaves).sum(),
        _ => 1,
    }
}

/// Changes the value of this number, and says where it stands.
fn change_leaf(value: &mut Value, mut leaf: usize, place: &str) -> Option<String> {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                let inside = leaves(field);
                if leaf < inside {
                    return change_leaf(field, leaf, &format!("{place}/{name}"));
                }
                leaf -= inside;
            }
            return None;
        }
        Value::Array(items) => {
            for (number, item) in items.iter_mut().enumerate() {
                let inside = leaves(item);
                if leaf < inside {
                    return change_leaf(item, leaf, &format!("{place}/{number}"));
                }
                leaf -= inside;
            }
            return None;
        }
        Value::Null => *value = 0.into(),
        Value::Bool(said) => *said = !*said,
        Value::Number(number) => *value = number.as_u64().map_or(0, |number| number ^ 1).into(),
        Value::String(text) => {
            // One hexadecimal digit or letter for another keeps most texts what they are.
            let last = text.pop();
            text.push(if last == Some('0') { '1' } else { '0' });
        }
    }
    Some(place.to_owned())
}

/// Numbers that follow from a seed (SplitMix64): the same seed tries the same on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap_or(0)
    }

    /// One change: a bit, a byte, a part that is lost, repeated, moved, or the end cut off.
    fn change(&mut self, bytes: &[u8]) -> (Vec<u8>, String) {
        let mut changed = bytes.to_vec();
        let at = self.below(bytes.len());
        let length = 1 + self.below(600).min(bytes.len() - at - 1);
        let what = match self.below(6) {
            0 | 1 => {
                let bit = self.below(8);
                changed.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << bit);
                format!("bit {bit} of byte {at} flipped")
            }
            2 => {
                changed.drain(at..at + length);
                format!("{length} bytes from {at} on lost")
            }
            3 => {
                let part: Vec<u8> = bytes.iter().skip(at).take(length).copied().collect();
                changed.splice(at..at, part);
                format!("{length} bytes from {at} on repeated")
            }
            4 => {
                let part: Vec<u8> = changed.drain(at..at + length).collect();
                let to = self.below(changed.len());
                changed.splice(to..to, part);
                format!("{length} bytes moved from {at} to {to}")
            }
            _ => {
                changed.truncate(at);
                format!("cut off at {at}")
            }
        };
        (changed, what)
    }
}
