//! From the words of CEL to a tree. Functions are looked up and counted here, so that a misspelt one
//! is found before anything runs.

use std::sync::Arc;

use super::ast::{Fold, FoldKind, Kind, Node, Operator};
use super::functions::Function;
use super::lexer::{Lexer, SyntaxError, Token};
use super::value::Val;
use super::{MAX_DEPTH, MAX_NESTING, MAX_SOURCE_BYTES};
use crate::job::problem::nearest;

/// Reads an expression.
pub(in crate::job) fn parse(source: &str) -> Result<Node, SyntaxError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(SyntaxError::new(
            0,
            format!("this expression is longer than {MAX_SOURCE_BYTES} bytes"),
        )
        .hint("compute parts of it in `set` steps"));
    }
    let mut parser = Parser { lexer: Lexer::new(source), at: 0, token: Token::End, nesting: 0 };
    parser.advance()?;
    let node = parser.expression()?;
    match parser.token {
        Token::End => Ok(node),
        _ => Err(parser.unexpected("an operator")),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// Where the current word begins.
    at: usize,
    token: Token,
    nesting: usize,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token, SyntaxError> {
        let (at, token) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// Takes the sign if it is the current word.
    fn accept(&mut self, sign: &str) -> Result<bool, SyntaxError> {
        let here = matches!(self.token, Token::Sign(found) if found == sign);
        if here {
            self.advance()?;
        }
        Ok(here)
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), SyntaxError> {
        if self.accept(sign)? { Ok(()) } else { Err(self.unexpected(&format!("`{sign}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        SyntaxError::new(self.at, format!("expected {wanted}, found {}", self.token))
    }

    fn node(at: usize, kind: Kind) -> Result<Node, SyntaxError> {
        let mut node = Node { at, depth: 0, kind };
        node.depth = 1 + node.parts().iter().map(|part| part.depth).max().unwrap_or(0);
        if node.depth > MAX_DEPTH {
            return Err(too_deep(at, MAX_DEPTH));
        }
        Ok(node)
    }

    fn expression(&mut self) -> Result<Node, SyntaxError> {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            return Err(too_deep(self.at, MAX_NESTING));
        }
        let test = self.binary(1)?;
        let at = self.at;
        let node = if self.accept("?")? {
            let yes = self.binary(1)?;
            self.expect(":")?;
            let no = self.expression()?;
            Self::node(
                at,
                Kind::Conditional { test: Box::new(test), yes: Box::new(yes), no: Box::new(no) },
            )?
        } else {
            test
        };
        self.nesting -= 1;
        Ok(node)
    }

    /// Operators that bind at least as tightly as `least`, from left to right.
    fn binary(&mut self, least: u8) -> Result<Node, SyntaxError> {
        let mut left = self.unary()?;
        loop {
            let operator = match self.token {
                Token::Sign(sign) => Operator::of(sign),
                _ => None,
            };
            let Some(operator) = operator.filter(|operator| operator.strength() >= least) else {
                return Ok(left);
            };
            let at = self.at;
            self.advance()?;
            let right = self.binary(operator.strength() + 1)?;
            let kind = Kind::Binary { operator, left: Box::new(left), right: Box::new(right) };
            left = Self::node(at, kind)?;
        }
    }

    fn unary(&mut self) -> Result<Node, SyntaxError> {
        let mut signs = Vec::new();
        while let Token::Sign(sign @ ("!" | "-")) = self.token {
            signs.push((self.at, sign));
            self.advance()?;
        }
        // The least integer has no positive counterpart: its sign belongs to the literal.
        let mut node = match (signs.last(), &self.token) {
            (Some((at, "-")), Token::Int(value)) if *value == 1 << 63 => {
                let least = Self::node(*at, Kind::Literal(Val::Int(i64::MIN)))?;
                signs.pop();
                self.advance()?;
                self.member(least)?
            }
            _ => {
                let primary = self.primary()?;
                self.member(primary)?
            }
        };
        for (at, sign) in signs.into_iter().rev() {
            let inner = Box::new(node);
            node =
                Self::node(at, if sign == "!" { Kind::Not(inner) } else { Kind::Negate(inner) })?;
        }
        Ok(node)
    }

    /// Fields, indexes and methods of what stands before them.
    fn member(&mut self, mut node: Node) -> Result<Node, SyntaxError> {
        loop {
            if self.accept("[")? {
                let at = self.at;
                if self.accept("?")? {
                    return Err(no_optionals(at));
                }
                let index = Box::new(self.expression()?);
                self.expect("]")?;
                node = Self::node(at, Kind::Index { of: Box::new(node), index })?;
            } else if self.accept(".")? {
                let at = self.at;
                let field = match self.advance()? {
                    Token::Name(name) => name,
                    Token::Sign("?") => return Err(no_optionals(at)),
                    found => {
                        let error = format!("expected the name of a field, found {found}");
                        return Err(
                            SyntaxError::new(at, error).hint("write other names as `x[\"…\"]`")
                        );
                    }
                };
                node = if self.accept("(")? {
                    let args = self.list(")")?;
                    method(at, node, &field, args)?
                } else {
                    Self::node(at, Kind::Select { of: Box::new(node), field: field.into() })?
                };
            } else {
                return Ok(node);
            }
        }
    }

    fn primary(&mut self) -> Result<Node, SyntaxError> {
        let at = self.at;
        if self.accept("(")? {
            let node = self.expression()?;
            self.expect(")")?;
            return Ok(node);
        }
        if self.accept("[")? {
            return Self::node(at, Kind::List(self.list("]")?));
        }
        if self.accept("{")? {
            return Self::node(at, Kind::Map(self.entries()?));
        }
        let kind = match &self.token {
            Token::Int(value) => match i64::try_from(*value) {
                Ok(value) => Kind::Literal(Val::Int(value)),
                Err(_) => {
                    return Err(SyntaxError::new(at, format!("integer `{value}` is out of range")));
                }
            },
            Token::Double(value) => Kind::Literal(Val::Double(*value)),
            Token::Text(text) => Kind::Literal(Val::text(text.as_str())),
            Token::Name(name) => match name.as_str() {
                "null" => Kind::Literal(Val::Null),
                "true" => Kind::Literal(Val::Bool(true)),
                "false" => Kind::Literal(Val::Bool(false)),
                name => Kind::Name(name.into()),
            },
            Token::Sign(_) | Token::End => return Err(self.unexpected("a value")),
        };
        self.advance()?;
        if let Kind::Name(name) = &kind
            && self.accept("(")?
        {
            let name = Arc::clone(name);
            let args = self.list(")")?;
            return global(at, &name, args);
        }
        Self::node(at, kind)
    }

    /// Expressions up to the closing sign, which is taken too. A last comma is allowed.
    fn list(&mut self, close: &'static str) -> Result<Vec<Node>, SyntaxError> {
        let mut nodes = Vec::new();
        while !self.accept(close)? {
            nodes.push(self.expression()?);
            if !self.accept(",")? {
                self.expect(close)?;
                break;
            }
        }
        Ok(nodes)
    }

    fn entries(&mut self) -> Result<Vec<(Node, Node)>, SyntaxError> {
        let mut entries = Vec::new();
        while !self.accept("}")? {
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
            if !self.accept(",")? {
                self.expect("}")?;
                break;
            }
        }
        Ok(entries)
    }
}

fn too_deep(at: usize, levels: usize) -> SyntaxError {
    SyntaxError::new(at, format!("this expression is nested deeper than {levels} levels"))
        .hint("compute parts of it in `set` steps")
}

fn no_optionals(at: usize) -> SyntaxError {
    SyntaxError::new(at, "optional values are not supported")
        .hint("ask with `has(x.field)` or `\"key\" in x` first")
}

/// A call such as `size(x)`.
fn global(at: usize, name: &str, args: Vec<Node>) -> Result<Node, SyntaxError> {
    if name == "has" {
        let [arg] =
            <[Node; 1]>::try_from(args).map_err(|args| counts(at, name, "1", args.len()))?;
        return match arg.kind {
            Kind::Select { of, field } => Parser::node(at, Kind::Has { of, field }),
            _ => Err(SyntaxError::new(arg.at, "`has` asks for a field, as in `has(x.field)`")),
        };
    }
    call(at, name, Function::global(name), args, 0)
}

/// A call such as `x.contains(y)`.
fn method(at: usize, target: Node, name: &str, args: Vec<Node>) -> Result<Node, SyntaxError> {
    let fold = match name {
        "all" => Some(FoldKind::All),
        "exists" => Some(FoldKind::Exists),
        "exists_one" | "existsOne" => Some(FoldKind::ExistsOne),
        "map" => Some(FoldKind::Map),
        "filter" => Some(FoldKind::Filter),
        _ => None,
    };
    if let Some(kind) = fold {
        return fold_of(at, kind, name, target, args);
    }
    if let Kind::Name(space) = &target.kind
        && &**space == "math"
    {
        let name = format!("math.{name}");
        return call(at, &name, Function::global(&name), args, 0);
    }
    let args = std::iter::once(target).chain(args).collect();
    call(at, name, Function::method(name), args, 1)
}

/// A call whose first arguments, as many as `receivers`, stand before the dot.
fn call(
    at: usize,
    name: &str,
    function: Option<Function>,
    args: Vec<Node>,
    receivers: usize,
) -> Result<Node, SyntaxError> {
    let Some(function) = function else {
        let error = SyntaxError::new(at, format!("unknown function `{name}`"));
        let near = match receivers {
            0 => nearest(name, Function::globals()),
            _ => nearest(name, Function::methods()),
        };
        return Err(match near {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error,
        });
    };
    let (least, most) = function.arity();
    if args.len() < least || args.len() > most {
        let wanted = match (least - receivers, most) {
            (least, usize::MAX) => format!("at least {least}"),
            (least, most) if least == most - receivers => least.to_string(),
            (least, most) => format!("{least} to {}", most - receivers),
        };
        return Err(counts(at, name, &wanted, args.len() - receivers));
    }
    Parser::node(at, Kind::Call { function, args })
}

fn counts(at: usize, name: &str, wanted: &str, found: usize) -> SyntaxError {
    let noun = if wanted.ends_with('1') { "argument" } else { "arguments" };
    SyntaxError::new(at, format!("`{name}` takes {wanted} {noun}, not {found}"))
}

fn fold_of(
    at: usize,
    kind: FoldKind,
    name: &str,
    over: Node,
    args: Vec<Node>,
) -> Result<Node, SyntaxError> {
    let found = args.len();
    let mut args = args.into_iter();
    let (Some(variable), Some(second), third, None) =
        (args.next(), args.next(), args.next(), args.next())
    else {
        return Err(counts(at, name, if kind == FoldKind::Map { "2 or 3" } else { "2" }, found));
    };
    let (guard, body) = match third {
        None => (None, second),
        Some(body) if kind == FoldKind::Map => (Some(second), body),
        Some(_) => return Err(counts(at, name, "2", found)),
    };
    let Kind::Name(variable) = variable.kind else {
        return Err(SyntaxError::new(
            variable.at,
            format!(
                "the first argument of `{name}` is the name of an element, as in `x.{name}(e, …)`"
            ),
        ));
    };
    Parser::node(at, Kind::Fold(Box::new(Fold { kind, over, name: variable, guard, body })))
}
