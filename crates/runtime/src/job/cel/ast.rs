//! Expressions as trees.

use std::sync::Arc;

use super::functions::Function;
use super::value::Val;

/// A part of an expression.
#[derive(Clone, Debug)]
pub(in crate::job) struct Node {
    /// The byte of the source at which its name or operator stands.
    pub(in crate::job) at: usize,
    /// How many parts lie one in another, this one included.
    pub(super) depth: usize,
    pub(in crate::job) kind: Kind,
}

#[derive(Clone, Debug)]
pub(in crate::job) enum Kind {
    Literal(Val),
    Name(Arc<str>),
    /// `of.field`.
    Select {
        of: Box<Node>,
        field: Arc<str>,
    },
    /// `has(of.field)`.
    Has {
        of: Box<Node>,
        field: Arc<str>,
    },
    /// `of[index]`.
    Index {
        of: Box<Node>,
        index: Box<Node>,
    },
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary {
        operator: Operator,
        left: Box<Node>,
        right: Box<Node>,
    },
    /// `test ? yes : no`.
    Conditional {
        test: Box<Node>,
        yes: Box<Node>,
        no: Box<Node>,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Call {
        function: Function,
        args: Vec<Node>,
    },
    Fold(Box<Fold>),
}

/// One of the macros over lists and the keys of objects.
#[derive(Clone, Debug)]
pub(in crate::job) struct Fold {
    pub(in crate::job) kind: FoldKind,
    pub(in crate::job) over: Node,
    /// The name of the element inside `guard` and `body`.
    pub(in crate::job) name: Arc<str>,
    /// The condition of `map` with three arguments.
    pub(in crate::job) guard: Option<Node>,
    pub(in crate::job) body: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::job) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::job) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(super) fn of(sign: &str) -> Option<Self> {
        Some(match sign {
            "||" => Self::Or,
            "&&" => Self::And,
            "==" => Self::Equal,
            "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            "in" => Self::In,
            "+" => Self::Add,
            "-" => Self::Subtract,
            "*" => Self::Multiply,
            "/" => Self::Divide,
            "%" => Self::Remainder,
            _ => return None,
        })
    }

    /// How tightly it binds.
    pub(super) fn strength(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And => 2,
            Self::Equal
            | Self::NotEqual
            | Self::Less
            | Self::LessOrEqual
            | Self::Greater
            | Self::GreaterOrEqual
            | Self::In => 3,
            Self::Add | Self::Subtract => 4,
            Self::Multiply | Self::Divide | Self::Remainder => 5,
        }
    }
}

impl Node {
    /// The parts directly inside this one.
    pub(in crate::job) fn parts(&self) -> Vec<&Node> {
        match &self.kind {
            Kind::Literal(_) | Kind::Name(_) => Vec::new(),
            Kind::Select { of, .. } | Kind::Has { of, .. } => vec![of],
            Kind::Index { of, index } => vec![of, index],
            Kind::Not(of) | Kind::Negate(of) => vec![of],
            Kind::Binary { left, right, .. } => vec![left, right],
            Kind::Conditional { test, yes, no } => vec![test, yes, no],
            Kind::List(nodes) => nodes.iter().collect(),
            Kind::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            Kind::Call { args, .. } => args.iter().collect(),
            Kind::Fold(fold) => [Some(&fold.over), fold.guard.as_ref(), Some(&fold.body)]
                .into_iter()
                .flatten()
                .collect(),
        }
    }

    /// The string, if the part is one written out.
    pub(in crate::job) fn literal_text(&self) -> Option<&Arc<str>> {
        match &self.kind {
            Kind::Literal(Val::Text(text)) => Some(text),
            _ => None,
        }
    }
}
