//! Which parts of the context policies look at: what nobody looks at need not be shown. Building it takes
//! longer than most policies do.

use std::collections::BTreeSet;

use cedar_policy::Policy;
use serde_json::Value;

/// What policies look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Whatever there is, as far as anyone can tell.
    AtAll,
    /// These attributes of the context.
    At(BTreeSet<String>),
}

impl Default for Looks {
    /// At nothing.
    fn default() -> Self {
        Self::At(BTreeSet::new())
    }
}

impl Looks {
    /// What a policy looks at.
    pub(crate) fn of(policy: &Policy) -> Self {
        let mut seen = BTreeSet::new();
        match policy.to_json() {
            Ok(tree) if looks(&tree, &mut seen) => Self::At(seen),
            _ => Self::AtAll,
        }
    }

    /// What another policy looks at is looked at too.
    pub(crate) fn join(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::At(seen), Self::At(more)) => seen.extend(more.iter().cloned()),
            _ => *self = Self::AtAll,
        }
    }

    /// Whether an attribute of the context must be there.
    pub(crate) fn at(&self, attribute: &str) -> bool {
        match self {
            Self::AtAll => true,
            Self::At(seen) => seen.contains(attribute),
        }
    }
}

/// Takes note of every `context.attribute` and `context has attribute`. False when the context is used in
/// any other way.
fn looks(tree: &Value, seen: &mut BTreeSet<String>) -> bool {
    match tree {
        Value::Object(members) => members.iter().all(|(name, value)| {
            if name == "Var" && value == "context" {
                return false;
            }
            let of_context = value.pointer("/left/Var").is_some_and(|var| var == "context");
            let attribute = match value.get("attr") {
                Some(Value::Array(path)) => path.first(),
                attribute => attribute,
            };
            match attribute {
                Some(Value::String(attribute)) if of_context && (name == "." || name == "has") => {
                    seen.insert(attribute.clone());
                    true
                }
                _ => looks(value, seen),
            }
        }),
        Value::Array(items) => items.iter().all(|item| looks(item, seen)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(condition: &str) -> Looks {
        let text = format!("permit (principal, action, resource) when {{ {condition} }};");
        Looks::of(&text.parse().unwrap())
    }

    fn at(attributes: &[&str]) -> Looks {
        Looks::At(attributes.iter().map(|&attribute| attribute.to_owned()).collect())
    }

    #[test]
    fn what_a_policy_names_is_what_it_looks_at() {
        assert_eq!(of("resource.level > 1"), at(&[]));
        assert_eq!(of("context.args.n > 1 && !(context.tries > 2)"), at(&["args", "tries"]));
        assert_eq!(of("context has left.calls && context.left.calls > 1"), at(&["left"]));
        assert_eq!(of("[1, context.now.ms].contains(3)"), at(&["now"]));
        assert_eq!(of("if context[\"spent\"].calls > 1 then true else false"), at(&["spent"]));
        assert_eq!(of("\"Var\" == \"context\""), at(&[]));
    }

    #[test]
    fn whoever_uses_the_context_whole_sees_it_whole() {
        assert_eq!(of("context == {}"), Looks::AtAll);
        assert_eq!(of("[context.now].contains(context)"), Looks::AtAll);
        assert_eq!(of("{ a: context }.a.tries > 1"), Looks::AtAll);
        assert_eq!(of("(if true then context else context).tries > 1"), Looks::AtAll);
    }
}
