//! What keeps sensitive values out of whatever is recorded of a call that carried them: its error, what it
//! echoes, what it says of its progress. A value that was opened is masked as secrets are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::tools::Mask;

/// Shorter values would be masked where they are not meant.
const SHORTEST: usize = 4;
const LABEL: &str = "[sensitive]";
const WITHHELD: &str = "what it said is withheld: it may hold a sensitive value";

/// Recognises the sensitive values of one call.
#[derive(Default)]
pub(crate) struct Veil {
    mask: Option<Mask>,
    /// Values too short to be masked inside of others.
    short: Vec<String>,
    /// Numbers, as they are written.
    numbers: Vec<String>,
}

impl Veil {
    /// A veil over opened values.
    pub(crate) fn over(opened: &BTreeMap<String, Value>) -> Self {
        let mut texts = Vec::new();
        let mut veil = Self::default();
        for value in opened.values() {
            veil.add(value, &mut texts);
        }
        if !texts.is_empty() {
            let label: Arc<str> = LABEL.into();
            let values = texts.iter().map(|text| (Arc::clone(&label), text.as_bytes()));
            veil.mask = Some(Mask::of(values));
        }
        veil
    }

    fn add(&mut self, value: &Value, texts: &mut Vec<String>) {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => {
                self.numbers.push(number.to_string());
                number.to_string()
            }
            Value::Array(values) => return values.iter().for_each(|value| self.add(value, texts)),
            Value::Object(object) => {
                return object.values().for_each(|value| self.add(value, texts));
            }
            Value::Bool(_) | Value::Null => return,
        };
        match text.len() {
            0 => {}
            1..SHORTEST => self.short.push(text),
            _ => texts.push(text),
        }
    }

    /// A text for people.
    pub(crate) fn text(&self, text: &str) -> String {
        let masked = match &self.mask {
            Some(mask) => mask.apply_text(text),
            None => text.to_owned(),
        };
        let holds = |short: &String| {
            masked.match_indices(short.as_str()).any(|(at, found)| {
                let before = masked.get(..at).and_then(|before| before.chars().next_back());
                let after = masked.get(at + found.len()..).and_then(|after| after.chars().next());
                ![before, after].iter().flatten().any(|c| c.is_alphanumeric())
            })
        };
        if self.short.iter().any(holds) { WITHHELD.to_owned() } else { masked }
    }

    /// A value that was returned, with what it echoes masked.
    pub(crate) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) if self.short.contains(text) => LABEL.clone_into(text),
            Value::String(text) => {
                if let Some(mask) = &self.mask {
                    *text = mask.apply_text(text);
                }
            }
            Value::Number(number) => {
                let written = number.to_string();
                if written.len() >= SHORTEST && self.numbers.contains(&written) {
                    *value = LABEL.into();
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.value(value)),
            Value::Object(object) => {
                let keys: Vec<String> = object.keys().cloned().collect();
                for key in keys {
                    let Some(mut below) = object.remove(&key) else { continue };
                    self.value(&mut below);
                    let mut key = Value::String(key);
                    self.value(&mut key);
                    object.insert(key.as_str().unwrap_or(LABEL).to_owned(), below);
                }
            }
            Value::Bool(_) | Value::Null => {}
        }
    }
}

/// What stands for a message that nobody can tell to be free of sensitive values.
pub(crate) fn withheld() -> String {
    WITHHELD.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn veil() -> Veil {
        let opened =
            json!({ "mail": "bob@example.org", "who": { "age": 41, "pin": 48213, "land": "DE" } });
        Veil::over(&BTreeMap::from([(String::new(), opened)]))
    }

    #[test]
    fn texts_do_not_tell() {
        let veil = veil();
        assert_eq!(veil.text("no such bob@example.org"), "no such [sensitive]");
        assert_eq!(veil.text("no such bob%40example.org"), "no such [sensitive]");
        assert_eq!(veil.text("pin 48213 is wrong"), "pin [sensitive] is wrong");
        assert_eq!(veil.text("nobody is 41 years old"), WITHHELD);
        assert_eq!(veil.text("from: DE"), WITHHELD);
        assert_eq!(veil.text("took 410 ms under load"), "took 410 ms under load");
    }

    #[test]
    fn echoes_do_not_tell() {
        let mut value = json!({
            "to": "bob@example.org", "text": "mail to Ym9iQGV4YW1wbGUub3Jn", "pin": 48213,
            "age": 41, "land": "DE", "by": { "bob@example.org": [true] },
        });
        veil().value(&mut value);
        assert_eq!(
            value,
            json!({
                "to": "[sensitive]", "text": "mail to [sensitive]", "pin": "[sensitive]",
                "age": 41, "land": "[sensitive]", "by": { "[sensitive]": [true] },
            })
        );
    }
}
