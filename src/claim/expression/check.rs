//! What an expression may be: names that there are, patterns that compile, and a cost that is bounded before anything
//! is evaluated.
//!
//! Takes in the tree that the parser gives, gives out nothing or the first [`ExpressionError`]. CEL has no loops, but
//! its macros go through lists, and one inside of another multiplies. Values must not grow in them either, so inside of
//! a macro nothing is joined and no list is made of what it goes through.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators};
use regex::RegexBuilder;

use super::facts::{DEVICE, FACTS, MOST_LINKS};
use super::limits::{EXPRESSION_MAX_BYTES, ExpressionError, MOST_COST, MOST_DEPTH};

/// A pattern is compiled at each use.
const MATCH_COST: u64 = 200;
const MOST_PATTERN: usize = 1 << 18;
const FUNCTIONS: [&str; 12] = [
    "bool",
    "bytes",
    "contains",
    "double",
    "dyn",
    "endsWith",
    "int",
    "matches",
    "size",
    "startsWith",
    "string",
    "uint",
];
/// Names of types, for `type(x) == int`.
const TYPES: [&str; 10] = ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

const GROWS: &str = "joins with + inside a macro (all, exists, exists_one, filter, map), which is not allowed";
const LISTS: &str = "makes a list or map of the elements of a macro (all, exists, exists_one, filter, map), which is \
                     not allowed: inside a macro, lists may only hold constants";

pub(super) fn check(expression: &IdedExpr) -> Result<(), ExpressionError> {
    let cost = CostWalk { bound: Vec::new(), depth: 0, macros: 0 }.cost(expression)?;
    if cost > MOST_COST {
        return Err(ExpressionError::TooCostly { cost });
    }
    Ok(())
}

struct CostWalk<'e> {
    /// The variables of the macros around.
    bound: Vec<&'e str>,
    depth: usize,
    macros: usize,
}

impl<'e> CostWalk<'e> {
    /// At most how many steps it takes.
    fn cost(&mut self, expression: &'e IdedExpr) -> Result<u64, ExpressionError> {
        if self.depth > MOST_DEPTH {
            return Err(ExpressionError::TooDeep);
        }
        self.depth += 1;
        let cost = self.step(&expression.expr)?;
        self.depth -= 1;
        Ok(cost.saturating_add(1))
    }

    fn all(&mut self, expressions: impl IntoIterator<Item = &'e IdedExpr>) -> Result<u64, ExpressionError> {
        let mut sum = 0_u64;
        for expression in expressions {
            sum = sum.saturating_add(self.cost(expression)?);
        }
        Ok(sum)
    }

    fn step(&mut self, expression: &'e Expr) -> Result<u64, ExpressionError> {
        match expression {
            Expr::Literal(_) | Expr::Unspecified => Ok(0),
            Expr::Ident(name) => self.name(name).map(|()| 0),
            Expr::Select(select) => {
                self.field(&select.operand, &select.field)?;
                self.cost(&select.operand)
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) if self.macros > 0 && !list.elements.iter().all(is_literal) => {
                Err(ExpressionError::NotAllowed(LISTS))
            }
            Expr::List(list) => self.all(&list.elements),
            Expr::Map(_) | Expr::Struct(_) => {
                Err(ExpressionError::NotAllowed("makes a map or a message, which is not supported here"))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn name(&self, name: &'e str) -> Result<(), ExpressionError> {
        let known = name == DEVICE || name.starts_with('@') || TYPES.contains(&name) || self.bound.contains(&name);
        known.then_some(()).ok_or_else(|| ExpressionError::Variable(name.to_owned()))
    }

    /// A field of the device; of anything else there is none to be told beforehand.
    fn field(&self, operand: &IdedExpr, field: &str) -> Result<(), ExpressionError> {
        let of_device = self.is_device(operand);
        match FACTS.iter().any(|(name, _)| *name == field) {
            false if of_device => Err(ExpressionError::Field(field.to_owned())),
            _ => Ok(()),
        }
    }

    fn is_device(&self, expression: &IdedExpr) -> bool {
        matches!(&expression.expr, Expr::Ident(name) if name == DEVICE && !self.bound.contains(&DEVICE))
    }

    fn call(&mut self, call: &'e CallExpr) -> Result<u64, ExpressionError> {
        let CallExpr { func_name, target, args } = call;
        let operator = func_name.starts_with(['_', '@', '!', '-']);
        if !operator && !FUNCTIONS.contains(&&**func_name) && func_name != "type" {
            let known = FUNCTIONS.join(", ") + ", type, and the macros all, exists, exists_one, filter, has, map";
            return Err(ExpressionError::Function { name: func_name.clone(), known });
        }
        if let (operators::INDEX, [of, at]) = (&**func_name, &**args)
            && let Expr::Literal(LiteralValue::String(field)) = &at.expr
        {
            self.field(of, field.inner())?;
        }
        if func_name == operators::ADD && self.macros > 0 {
            return self.gather(args);
        }
        let own = if func_name == "matches" { pattern(args.last()).map(|()| MATCH_COST)? } else { 1 };
        let parts = self.all(target.as_deref().into_iter().chain(args))?;
        Ok(own.saturating_add(parts))
    }

    /// How the macros themselves gather what they give: `@result + [x]`, `@result + 1`.
    fn gather(&mut self, args: &'e [IdedExpr]) -> Result<u64, ExpressionError> {
        match args {
            [to, one] if matches!(&to.expr, Expr::Ident(name) if name.starts_with('@')) => match &one.expr {
                Expr::List(list) if list.elements.len() == 1 => self.all(&list.elements),
                _ => self.cost(one),
            },
            _ => Err(ExpressionError::NotAllowed(GROWS)),
        }
    }

    fn comprehension(&mut self, comprehension: &'e ComprehensionExpr) -> Result<u64, ExpressionError> {
        let ComprehensionExpr { iter_range, iter_var, iter_var2, accu_var, accu_init, loop_cond, loop_step, result } =
            comprehension;
        // What is gone through must not have been joined either; a list that is written there is as long as it looks.
        let range = match &iter_range.expr {
            Expr::List(list) => self.all(&list.elements)?,
            _ => self.inside(|walk| walk.cost(iter_range))?,
        };
        let before = self.bound.len();
        let (a, b, c) = (iter_var.as_str(), iter_var2.as_deref(), accu_var.as_str());
        self.bound.extend([a, c].into_iter().chain(b));
        let once = self.inside(|walk| walk.all([loop_cond, loop_step]))?;
        let rest = self.all([accu_init, result])?;
        self.bound.truncate(before);
        Ok(range.saturating_add(rest).saturating_add(self.length(iter_range).saturating_mul(once)))
    }

    fn inside<T>(&mut self, walk: impl FnOnce(&mut Self) -> T) -> T {
        self.macros += 1;
        let done = walk(self);
        self.macros -= 1;
        done
    }

    /// At most how long a list is that a macro goes through.
    fn length(&self, range: &IdedExpr) -> u64 {
        let longest = EXPRESSION_MAX_BYTES.max(MOST_LINKS) as u64;
        match &range.expr {
            Expr::List(list) => list.elements.len() as u64,
            Expr::Select(select) if self.is_device(&select.operand) => MOST_LINKS as u64,
            Expr::Comprehension(inner) => self.length(&inner.iter_range),
            _ => longest,
        }
    }
}

fn is_literal(expression: &IdedExpr) -> bool {
    matches!(expression.expr, Expr::Literal(_))
}

/// The pattern of `matches` is written out, so that it can be tried here.
fn pattern(argument: Option<&IdedExpr>) -> Result<(), ExpressionError> {
    let Some(Expr::Literal(LiteralValue::String(pattern))) = argument.map(|argument| &argument.expr) else {
        return Err(ExpressionError::NotAllowed("has a pattern of matches that is not a constant string"));
    };
    let failed = |error: regex::Error| {
        let why = error.to_string();
        let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        ExpressionError::Pattern { pattern: pattern.inner().to_owned(), why }
    };
    RegexBuilder::new(pattern.inner()).size_limit(MOST_PATTERN).build().map(drop).map_err(failed)
}
