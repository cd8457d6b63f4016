//! The SQL that bide sends: constant text but for the tables' own names, every name qualified.
//!
//! Nothing in it is looked up along the search_path: functions and operators are qualified, and what
//! Postgres looks up by itself (LIKE, IN, a simple CASE) does not occur. A lint in the tests holds that,
//! beside the pinned search_path of the calling function: each of the two suffices alone.

/// Quoted, qualified names of a store's tables.
pub struct Names {
    /// Of the schema alone, not quoted.
    pub schema: String,
    pub steps: String,
    pub leases: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statement {
    Position,
    Find,
    Last,
    Append,
    PageSizes,
    Page,
    RunAt,
    RunBehind,
    Lease,
    DeleteSteps,
    DeleteLease,
    FinishedBefore,
    IsFinished,
}

impl Statement {
    pub const ALL: [Statement; 13] = [
        Statement::Position,
        Statement::Find,
        Statement::Last,
        Statement::Append,
        Statement::PageSizes,
        Statement::Page,
        Statement::RunAt,
        Statement::RunBehind,
        Statement::Lease,
        Statement::DeleteSteps,
        Statement::DeleteLease,
        Statement::FinishedBefore,
        Statement::IsFinished,
    ];

    pub fn text(self, names: &Names) -> String {
        let (steps, leases) = (&names.steps, &names.leases);
        let ended = "name OPERATOR(pg_catalog.=) ANY (ARRAY['run:complete', 'run:aborted', \
                     'run:cancelled'])";
        match self {
            Statement::Position => format!(
                "SELECT seq FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1 \
                 AND name OPERATOR(pg_catalog.=) $2"
            ),
            Statement::Find => format!(
                "SELECT seq, data, recorded_at FROM {steps} \
                 WHERE run_id OPERATOR(pg_catalog.=) $1 AND name OPERATOR(pg_catalog.=) $2"
            ),
            Statement::Last => format!(
                "SELECT seq FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1 \
                 ORDER BY seq DESC LIMIT 1"
            ),
            // NULL where a trigger has changed the row.
            Statement::Append => format!(
                "INSERT INTO {steps} (run_id, seq, name, data, recorded_at) \
                 VALUES ($1, $2, $3, $4, $5) \
                 RETURNING CASE WHEN run_id OPERATOR(pg_catalog.=) $1 \
                 AND seq OPERATOR(pg_catalog.=) $2 AND name OPERATOR(pg_catalog.=) $3 \
                 AND data OPERATOR(pg_catalog.=) $4 THEN seq END"
            ),
            // octet_length reads the size of a large payload without reading the payload.
            Statement::PageSizes => format!(
                "SELECT seq, pg_catalog.int8(pg_catalog.octet_length(data)) FROM {steps} \
                 WHERE run_id OPERATOR(pg_catalog.=) $1 AND seq OPERATOR(pg_catalog.>) $2 \
                 ORDER BY seq LIMIT $3"
            ),
            Statement::Page => format!(
                "SELECT seq, name, data, recorded_at FROM {steps} \
                 WHERE run_id OPERATOR(pg_catalog.=) $1 AND seq OPERATOR(pg_catalog.>) $2 \
                 AND seq OPERATOR(pg_catalog.<=) $3 ORDER BY seq"
            ),
            Statement::RunAt => format!(
                "SELECT run_id FROM {steps} WHERE run_id OPERATOR(pg_catalog.>=) $1 \
                 ORDER BY run_id LIMIT 1"
            ),
            Statement::RunBehind => format!(
                "SELECT run_id FROM {steps} WHERE run_id OPERATOR(pg_catalog.>) $1 \
                 ORDER BY run_id LIMIT 1"
            ),
            Statement::Lease => format!(
                "SELECT holder, expiry FROM {leases} WHERE run_id OPERATOR(pg_catalog.=) $1"
            ),
            Statement::DeleteSteps => {
                format!("DELETE FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1")
            }
            Statement::DeleteLease => {
                format!("DELETE FROM {leases} WHERE run_id OPERATOR(pg_catalog.=) $1")
            }
            // Spelt as the partial index is, so that the planner can use it.
            Statement::FinishedBefore => format!(
                "SELECT run_id FROM {steps} WHERE {ended} \
                 AND recorded_at OPERATOR(pg_catalog.<) $1 ORDER BY recorded_at, run_id LIMIT $2"
            ),
            Statement::IsFinished => format!(
                "SELECT seq FROM {steps} WHERE run_id OPERATOR(pg_catalog.=) $1 AND {ended} LIMIT 1"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            schema: "bide".into(),
            steps: r#""we""ird; -- $1 LIKE".steps"#.into(),
            leases: "bide.leases".into(),
        }
    }

    #[derive(Debug, PartialEq)]
    enum Token {
        Word(String),
        Quoted,
        Literal,
        Parameter,
        Number,
        Mark(char),
    }

    /// Splits a statement; anything that hides a call from a reader is an error. C-150.
    fn tokens(sql: &str) -> Result<Vec<Token>, String> {
        let letters: Vec<char> = sql.chars().collect();
        let (mut tokens, mut at) = (Vec::new(), 0);
        let run = |from: usize, holds: &dyn Fn(char) -> bool| {
            (from..letters.len()).find(|at| !holds(letters[*at])).unwrap_or(letters.len())
        };
        while at < letters.len() {
            let letter = letters[at];
            let start = at;
            match letter {
                ' ' => at += 1,
                '"' | '\'' => {
                    loop {
                        at += 1 + letters[at + 1..]
                            .iter()
                            .position(|end| *end == letter)
                            .ok_or("an open quote")?;
                        if letters.get(at + 1) != Some(&letter) {
                            break;
                        }
                        at += 1;
                    }
                    at += 1;
                    let escaped = letter == '\'' && letters[start..at].contains(&'\\');
                    let typed = start > 0 && letters[start - 1].is_alphanumeric();
                    if escaped || typed {
                        return Err("a literal with a type or an escape".into());
                    }
                    tokens.push(if letter == '"' { Token::Quoted } else { Token::Literal });
                }
                '$' => {
                    at = run(at + 1, &|letter| letter.is_ascii_digit());
                    if at == start + 1 {
                        return Err("a dollar quote".into());
                    }
                    tokens.push(Token::Parameter);
                }
                _ if letter.is_ascii_digit() => {
                    at = run(at, &|letter| letter.is_ascii_digit());
                    tokens.push(Token::Number);
                }
                _ if letter.is_ascii_alphabetic() || letter == '_' => {
                    at = run(at, &|letter| letter.is_ascii_alphanumeric() || letter == '_');
                    tokens.push(Token::Word(letters[start..at].iter().collect()));
                }
                ';' => return Err("a semicolon".into()),
                _ if !letter.is_ascii() => return Err("a letter beyond ASCII".into()),
                _ => {
                    at += 1;
                    tokens.push(Token::Mark(letter));
                }
            }
        }
        Ok(tokens)
    }

    /// What may stand before a parenthesis without being a function.
    const NOT_FUNCTIONS: [&str; 5] = ["OPERATOR", "VALUES", "ANY", "WHERE", "AND"];
    /// Words that Postgres turns into operators it looks up, or that hide a cast.
    const LOOKED_UP: [&str; 14] = [
        "LIKE", "ILIKE", "SIMILAR", "BETWEEN", "IN", "DISTINCT", "OVERLAPS", "USING", "NULLIF",
        "CAST", "COLLATE", "GREATEST", "LEAST", "NATURAL",
    ];

    fn lint(sql: &str) -> Result<(), String> {
        let tokens = tokens(sql)?;
        let word = |at: usize| match tokens.get(at) {
            Some(Token::Word(word)) => word.as_str(),
            _ => "",
        };
        let is = |at: usize, mark: char| tokens.get(at) == Some(&Token::Mark(mark));
        for (at, token) in tokens.iter().enumerate() {
            match token {
                Token::Word(name) => {
                    let upper = name.to_uppercase();
                    if LOOKED_UP.contains(&upper.as_str()) {
                        return Err(format!("the word {name}"));
                    }
                    if upper == "CASE" && word(at + 1) != "WHEN" {
                        return Err("a CASE with an operand".into());
                    }
                    let qualified = at >= 2 && is(at - 1, '.') && word(at - 2) == "pg_catalog";
                    let to_columns = at >= 1 && (is(at - 1, '.') || word(at - 1) == "INTO");
                    let called = is(at + 1, '(') && !NOT_FUNCTIONS.contains(&upper.as_str());
                    if called && !qualified && !(to_columns && word(at - 3) == "INTO") {
                        return Err(format!("the function {name}"));
                    }
                }
                Token::Mark('(' | ')' | ',' | '.' | '[' | ']') => {}
                // OPERATOR(pg_catalog.=): up to two marks between the qualifier and the parenthesis.
                Token::Mark(_) => {
                    let first = if is(at - 1, '.') { at } else { at - 1 };
                    let qualified = first >= 4
                        && is(first - 1, '.')
                        && word(first - 2) == "pg_catalog"
                        && is(first - 3, '(')
                        && word(first - 4) == "OPERATOR";
                    if !qualified {
                        return Err("a bare operator or a cast".into());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    #[test]
    fn nothing_in_our_statements_is_looked_up() {
        for statement in Statement::ALL {
            let text = statement.text(&names()).replace(&names().steps, "bide.steps");
            assert_eq!(lint(&text), Ok(()), "{text}");
        }
    }

    #[test]
    fn the_lint_catches_what_would_be() {
        for bypass in [
            "SELECT seq FROM bide.steps WHERE run_id = $1",
            "SELECT seq FROM bide.steps WHERE run_id OPERATOR(evil.=) $1",
            "SELECT seq FROM bide.steps WHERE run_id LIKE $1",
            "SELECT seq FROM bide.steps WHERE seq BETWEEN $1 AND $2",
            "SELECT seq FROM bide.steps WHERE name IN ($1)",
            "SELECT seq FROM bide.steps WHERE name IS DISTINCT FROM $1",
            "SELECT CASE name WHEN $1 THEN seq END FROM bide.steps",
            "SELECT length(data) FROM bide.steps",
            "SELECT evil.length(data) FROM bide.steps",
            "SELECT seq::text FROM bide.steps",
            "SELECT CAST(seq AS evil.domain) FROM bide.steps",
            "SELECT E'\\x41' FROM bide.steps",
            "SELECT 'a\\b' FROM bide.steps",
            "SELECT $$a$$ FROM bide.steps",
            "SELECT 1; SELECT 2",
            "SELECT 1 -- a comment",
            "SELECT 1 /* a comment */",
            "SELECT -seq FROM bide.steps",
            "SELECT seq FROM bide.steps NATURAL JOIN evil.steps",
        ] {
            assert!(lint(bypass).is_err(), "{bypass}");
        }
    }

    #[test]
    fn a_table_with_an_odd_name_stands_quoted_in_each_statement() {
        for statement in Statement::ALL {
            let text = statement.text(&names());
            assert!(text.contains(&names().steps) || text.contains(&names().leases), "{text}");
        }
    }

    #[test]
    fn the_end_names_are_the_ones_of_the_arguments() {
        let text = Statement::IsFinished.text(&names());
        for name in crate::args::END_NAMES {
            assert!(text.contains(&format!("'{name}'")), "{name}");
        }
    }
}
