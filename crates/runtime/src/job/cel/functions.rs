//! The functions of expressions: CEL's own, those of its string and math extensions that JSON has a
//! use for, JSON itself, and the recorded clock and randomness. None reaches anything ambient.

use std::cmp::Ordering;
use std::sync::Arc;

use gesta_core::json::Canon;

use super::eval::{Evaluation, Fault};
use super::value::Val;

/// How a function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `f(x)`.
    Global,
    /// `x.f()`.
    Method,
    /// Both.
    Either,
}

macro_rules! functions {
    ($($(#[$doc:meta])* $variant:ident: $name:literal, $style:ident, $least:expr, $most:expr;)*) => {
        /// A function, looked up.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::job) enum Function {
            $($(#[$doc])* $variant,)*
        }

        const TABLE: &[(Function, &str, Style, usize, usize)] =
            &[$((Function::$variant, $name, Style::$style, $least, $most),)*];
    };
}

functions! {
    Size: "size", Either, 1, 1;
    String: "string", Global, 1, 1;
    Int: "int", Global, 1, 1;
    Double: "double", Global, 1, 1;
    Bool: "bool", Global, 1, 1;
    Contains: "contains", Method, 2, 2;
    StartsWith: "startsWith", Method, 2, 2;
    EndsWith: "endsWith", Method, 2, 2;
    Matches: "matches", Either, 2, 2;
    LowerAscii: "lowerAscii", Method, 1, 1;
    UpperAscii: "upperAscii", Method, 1, 1;
    Trim: "trim", Method, 1, 1;
    Split: "split", Method, 2, 2;
    Join: "join", Method, 1, 2;
    Replace: "replace", Method, 3, 3;
    Substring: "substring", Method, 2, 3;
    IndexOf: "indexOf", Method, 2, 2;
    Greatest: "math.greatest", Global, 1, usize::MAX;
    Least: "math.least", Global, 1, usize::MAX;
    Abs: "math.abs", Global, 1, 1;
    Ceil: "math.ceil", Global, 1, 1;
    Floor: "math.floor", Global, 1, 1;
    Round: "math.round", Global, 1, 1;
    /// The canonical JSON of a value, as a string.
    ToJson: "to_json", Global, 1, 1;
    /// The value that a string of JSON holds.
    FromJson: "from_json", Global, 1, 1;
    /// The recorded time, in milliseconds since 1970.
    Now: "now", Global, 0, 0;
    /// A number of at least 0 and less than 1, from the step's seed.
    Random: "random", Global, 0, 0;
    /// An integer between two others, both included, from the step's seed.
    RandomInt: "random_int", Global, 2, 2;
    /// A version 4 UUID, from the step's seed.
    Uuid: "uuid", Global, 0, 0;
}

impl Function {
    pub(super) fn global(name: &str) -> Option<Self> {
        find(name, Style::Global)
    }

    pub(super) fn method(name: &str) -> Option<Self> {
        find(name, Style::Method)
    }

    pub(super) fn globals() -> impl Iterator<Item = &'static str> {
        names(Style::Global).chain(["has"])
    }

    pub(super) fn methods() -> impl Iterator<Item = &'static str> {
        names(Style::Method).chain(["all", "exists", "exists_one", "filter", "map"])
    }

    /// The least and the most arguments, the receiver of a method among them.
    pub(super) fn arity(self) -> (usize, usize) {
        let row = TABLE.iter().find(|(function, ..)| *function == self);
        row.map_or((0, usize::MAX), |(.., least, most)| (*least, *most))
    }

    fn name(self) -> &'static str {
        let row = TABLE.iter().find(|(function, ..)| *function == self);
        row.map_or("", |(_, name, ..)| name)
    }
}

fn find(name: &str, style: Style) -> Option<Function> {
    let row = TABLE
        .iter()
        .find(|(_, known, how, ..)| *known == name && (*how == style || *how == Style::Either));
    row.map(|(function, ..)| *function)
}

fn names(style: Style) -> impl Iterator<Item = &'static str> {
    TABLE
        .iter()
        .filter(move |(_, _, how, ..)| *how == style || *how == Style::Either)
        .map(|(_, name, ..)| *name)
}

impl Evaluation<'_> {
    /// Calls a function with arguments that the parser has counted.
    pub(super) fn call(&mut self, function: Function, args: &[Val]) -> Result<Val, Fault> {
        use Function as F;
        match (function, args) {
            (F::Now, []) => self.now(),
            (F::Random, []) => self.random(),
            (F::RandomInt, [Val::Int(least), Val::Int(most)]) => self.random_int(*least, *most),
            (F::Uuid, []) => self.uuid(),
            (F::ToJson, [value]) => self.write_json(value),
            (F::FromJson, [Val::Text(text)]) => self.read_json(text),
            (F::Size, [value]) => {
                self.spend_text(value)?;
                size(value).ok_or_else(|| refuse(function, args))
            }
            (F::String | F::Int | F::Double | F::Bool, [value]) => {
                self.spend_text(value)?;
                convert(function, value)
            }
            (F::Greatest | F::Least, args) => {
                if let [Val::List(values)] = args {
                    self.spend(values.len() as u64)?;
                }
                extreme(function, args)
            }
            (F::Abs | F::Ceil | F::Floor | F::Round, [value]) => rounded(function, value),
            (F::Join, [Val::List(parts), rest @ ..]) => self.join(parts, rest),
            (_, [Val::Text(text), rest @ ..]) => self.on_text(function, text, rest, args),
            _ => Err(refuse(function, args)),
        }
    }

    fn on_text(
        &mut self,
        function: Function,
        text: &Arc<str>,
        rest: &[Val],
        args: &[Val],
    ) -> Result<Val, Fault> {
        use Function as F;
        self.spend_bytes(text.len())?;
        Ok(match (function, rest) {
            (F::Contains, [Val::Text(part)]) => Val::Bool(text.contains(&**part)),
            (F::StartsWith, [Val::Text(part)]) => Val::Bool(text.starts_with(&**part)),
            (F::EndsWith, [Val::Text(part)]) => Val::Bool(text.ends_with(&**part)),
            (F::Matches, [Val::Text(pattern)]) => Val::Bool(self.matches(text, pattern)?),
            (F::LowerAscii, []) => Val::text(text.to_ascii_lowercase()),
            (F::UpperAscii, []) => Val::text(text.to_ascii_uppercase()),
            (F::Trim, []) => Val::text(text.trim()),
            (F::Split, [Val::Text(by)]) => {
                self.spend(text.len() as u64)?;
                Val::list(pieces(text, by).into_iter().map(Val::text).collect())
            }
            (F::Replace, [Val::Text(from), Val::Text(to)]) => {
                let longest = (text.len() + 1).saturating_mul(to.len() + 1);
                self.spend_bytes(longest)?;
                Val::text(text.replace(&**from, to))
            }
            (F::Substring, [Val::Int(start)]) => substring(text, *start, None)?,
            (F::Substring, [Val::Int(start), Val::Int(end)]) => {
                substring(text, *start, Some(*end))?
            }
            (F::IndexOf, [Val::Text(part)]) => {
                let before = text.find(&**part).and_then(|at| text.get(..at));
                Val::Int(before.map_or(-1, |before| length(before.chars().count())))
            }
            _ => return Err(refuse(function, args)),
        })
    }

    fn join(&mut self, parts: &[Val], by: &[Val]) -> Result<Val, Fault> {
        let by = match by {
            [] => "",
            [Val::Text(by)] => by,
            _ => return Err(Fault::error("`join` puts a string between the parts")),
        };
        let mut joined = String::new();
        for (i, part) in parts.iter().enumerate() {
            let Val::Text(part) = part else {
                return Err(Fault::error(format!(
                    "`join` joins strings, not {}",
                    part.type_name()
                )));
            };
            self.spend_bytes(part.len() + by.len())?;
            if i > 0 {
                joined.push_str(by);
            }
            joined.push_str(part);
        }
        Ok(Val::text(joined))
    }

    fn write_json(&mut self, value: &Val) -> Result<Val, Fault> {
        if value.holds_sensitive() {
            return Err(refuse(Function::ToJson, std::slice::from_ref(value)));
        }
        let canon = value.canon().map_err(Fault::error)?;
        self.spend_bytes(canon.len())?;
        Ok(Val::text(canon.as_str()))
    }

    fn read_json(&mut self, text: &str) -> Result<Val, Fault> {
        self.spend_bytes(text.len())?;
        let value = Canon::parse(text.as_bytes())
            .and_then(|canon| Val::read(&canon))
            .map_err(|error| Fault::error(format!("`from_json`: {error}")))?;
        if value.holds_sensitive() {
            return Err(Fault::error(format!("`from_json`: {}", super::reserved())));
        }
        Ok(value)
    }

    fn random(&mut self) -> Result<Val, Fault> {
        let (high, _) = self.draw()?;
        Ok(Val::Double((high >> 11) as f64 / (1_u64 << 53) as f64))
    }

    fn random_int(&mut self, least: i64, most: i64) -> Result<Val, Fault> {
        let span = i128::from(most) - i128::from(least) + 1;
        let Some(span) = u128::try_from(span).ok().filter(|span| *span > 0) else {
            return Err(Fault::error(format!(
                "`random_int` has nothing between {least} and {most}"
            )));
        };
        let (high, low) = self.draw()?;
        let drawn = (u128::from(high) << 64 | u128::from(low)) % span;
        // The span is that of two 64-bit integers, so the sum is one too.
        let value = i128::try_from(drawn)
            .ok()
            .and_then(|drawn| i64::try_from(i128::from(least) + drawn).ok());
        value.map(Val::Int).ok_or_else(|| Fault::error("`random_int` is out of range"))
    }

    fn uuid(&mut self) -> Result<Val, Fault> {
        let (high, low) = self.draw()?;
        let high = high & !0xf000 | 0x4000;
        let low = low & !(0b11 << 62) | 0b10 << 62;
        Ok(Val::text(format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff,
        )))
    }
}

/// The error for arguments that a function has no use for.
fn refuse(function: Function, args: &[Val]) -> Fault {
    let types: Vec<&str> = args.iter().map(Val::type_name).collect();
    Fault::error(format!("`{}` cannot be used on {}", function.name(), types.join(" and ")))
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn size(value: &Val) -> Option<Val> {
    Some(Val::Int(length(match value {
        Val::Text(text) => text.chars().count(),
        Val::List(values) => values.len(),
        Val::Map(map) => map.len(),
        _ => return None,
    })))
}

/// The text between separators; between characters if the separator is empty.
fn pieces<'t>(text: &'t str, by: &str) -> Vec<&'t str> {
    if by.is_empty() {
        text.split("").filter(|piece| !piece.is_empty()).collect()
    } else {
        text.split(by).collect()
    }
}

/// The characters from `start` to before `end`.
fn substring(text: &str, start: i64, end: Option<i64>) -> Result<Val, Fault> {
    let count = length(text.chars().count());
    let end = end.unwrap_or(count);
    if start < 0 || end < start || end > count {
        return Err(Fault::error(format!(
            "`substring` from {start} to {end} is outside a string of {count} characters"
        )));
    }
    let skip = usize::try_from(start).unwrap_or(usize::MAX);
    let take = usize::try_from(end - start).unwrap_or(usize::MAX);
    Ok(Val::text(text.chars().skip(skip).take(take).collect::<String>()))
}

fn convert(to: Function, value: &Val) -> Result<Val, Fault> {
    use Function as F;
    let unreadable = || Fault::error(format!("`{}` cannot read this string", to.name()));
    Ok(match (to, value) {
        (F::Bool, Val::Bool(_))
        | (F::Int, Val::Int(_))
        | (F::Double, Val::Double(_))
        | (F::String, Val::Text(_)) => value.clone(),
        (F::String, Val::Bool(_) | Val::Int(_) | Val::Double(_)) => Val::text(plain(value)?),
        (F::Int, Val::Double(number)) => {
            // Strictly between: 2^63 does not fit, and CEL refuses its negative too.
            let limit = 9_223_372_036_854_775_808.0;
            if !(*number > -limit && *number < limit) {
                return Err(Fault::error("`int` is out of range"));
            }
            Val::Int(*number as i64)
        }
        (F::Int, Val::Text(text)) => text.parse().map(Val::Int).map_err(|_| unreadable())?,
        (F::Double, Val::Int(number)) => Val::Double(*number as f64),
        (F::Double, Val::Text(text)) => {
            // Rust reads `inf` and `nan` too; JSON cannot hold them.
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            number.map(Val::Double).ok_or_else(unreadable)?
        }
        (F::Bool, Val::Text(text)) => match &**text {
            "1" | "t" | "true" | "TRUE" | "True" => Val::Bool(true),
            "0" | "f" | "false" | "FALSE" | "False" => Val::Bool(false),
            _ => return Err(unreadable()),
        },
        _ => return Err(refuse(to, std::slice::from_ref(value))),
    })
}

/// A string, number or boolean as text; of a number, its canonical form.
pub(in crate::job) fn plain(value: &Val) -> Result<Arc<str>, Fault> {
    match value {
        Val::Text(text) => Ok(Arc::clone(text)),
        Val::Bool(value) => Ok(if *value { "true" } else { "false" }.into()),
        Val::Int(value) => Ok(value.to_string().into()),
        Val::Double(_) => value.canon().map(|canon| canon.as_str().into()).map_err(Fault::error),
        _ => Err(Fault::error(format!("{} cannot stand inside a string", value.type_name()))),
    }
}

fn extreme(function: Function, args: &[Val]) -> Result<Val, Fault> {
    let values = match args {
        [Val::List(values)] => values.as_slice(),
        _ => args,
    };
    let wanted = if function == Function::Greatest { Ordering::Greater } else { Ordering::Less };
    let mut best: Option<&Val> = None;
    for value in values {
        let number = value.number().ok_or_else(|| refuse(function, args))?;
        let better =
            best.and_then(Val::number).is_none_or(|best| number.partial_cmp(&best) == Some(wanted));
        if better {
            best = Some(value);
        }
    }
    best.cloned().ok_or_else(|| Fault::error(format!("`{}` of nothing", function.name())))
}

fn rounded(function: Function, value: &Val) -> Result<Val, Fault> {
    use Function as F;
    Ok(match (function, value) {
        (F::Abs, Val::Int(number)) => {
            let abs = number.checked_abs();
            Val::Int(abs.ok_or_else(|| Fault::error("integer overflow in `math.abs`"))?)
        }
        (F::Ceil | F::Floor | F::Round, Val::Int(_)) => value.clone(),
        (F::Abs, Val::Double(number)) => Val::Double(number.abs()),
        (F::Ceil, Val::Double(number)) => Val::Double(number.ceil()),
        (F::Floor, Val::Double(number)) => Val::Double(number.floor()),
        (F::Round, Val::Double(number)) => Val::Double(number.round()),
        _ => return Err(refuse(function, std::slice::from_ref(value))),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// What a function means is written down for good: the run in `vectors/runs` calls each, and is replayed by every
    /// later version. One that is not in it may change its meaning unseen: it goes into
    /// `tests/runs/expressions.rs` of the next format.
    #[test]
    fn the_vector_names_every_function() {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/runs");
        let vectors = std::fs::read_dir(runs).unwrap().map(|file| file.unwrap().path());
        let named = |path: &Path| path.to_string_lossy().ends_with("-expressions.tar");
        let vectors: Vec<String> = vectors
            .filter(|path| named(path))
            .map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned())
            .collect();
        assert!(!vectors.is_empty());
        let calls = |call: String| vectors.iter().any(|vector| vector.contains(&call));
        for name in Function::globals() {
            // Not as the end of another name.
            let global =
                ["${", "(", "[", " "].iter().any(|before| calls(format!("{before}{name}(")));
            assert!(global, "`{name}()` is in no vector");
        }
        for name in Function::methods() {
            assert!(calls(format!(".{name}(")), "`x.{name}()` is in no vector");
        }
    }
}
