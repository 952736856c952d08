//! Documents that are too large to be kept as vectors.

use gesta_core::json::{Canon, Limits};

use super::Tried;

/// How many brackets, keys or bytes a hostile document has.
const MANY: usize = 200_000;

/// Deep and huge documents, each with what must be said of it.
pub(super) fn documents() -> Vec<Tried> {
    let most = Limits::DEFAULT.max_bytes;
    let keys = |last: &str| {
        let keys: Vec<String> = (0..MANY / 4).map(|key| format!("\"{key}\":0")).collect();
        format!("{{{},\"{last}\":1}}", keys.join(","))
    };
    let too_deep = format!("nested deeper than {} levels", Limits::DEFAULT.max_depth);
    let too_large = format!("larger than {most} bytes");
    let zeros = format!("0.{}1", "0".repeat(MANY));
    let cases = [
        ("deep-arrays", "[".repeat(MANY), Err(too_deep.clone())),
        ("deep-objects", r#"{"a":"#.repeat(MANY), Err(too_deep)),
        ("huge-text", format!("\"{}\"", "x".repeat(most)), Err(too_large.clone())),
        ("huge-white-space", format!("{}0", " ".repeat(most)), Err(too_large)),
        ("many-keys", keys("last"), Ok(())),
        ("many-keys-one-twice", keys("7"), Err("duplicate key `7`".to_owned())),
        ("many-zeros", zeros, Ok(())),
    ];
    let tried = cases.into_iter().map(|(name, text, wanted)| {
        let found = Canon::parse(text.as_bytes());
        let said = match &found {
            Ok(canon) => format!("canonical, {} bytes", canon.as_bytes().len()),
            Err(error) => format!("refused: {}", error.problem()),
        };
        let right = match (&found, &wanted) {
            (Ok(_), Ok(())) => true,
            (Err(error), Err(wanted)) => error.problem().to_string() == *wanted,
            _ => false,
        };
        let wanted = match wanted {
            Ok(()) => "canonical".to_owned(),
            Err(why) => format!("refused: {why}"),
        };
        Tried { part: "made", name: name.to_owned(), said, expected: (!right).then_some(wanted) }
    });
    tried.collect()
}
