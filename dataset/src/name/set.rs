//! Several snapshots of one dataset, as `destroy` takes them: `tank/home@a%c,x`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{DatasetName, NameError, NameProblem, SnapshotName, rules::component_problem};

/// Some snapshots of one dataset: `dataset@a,b%c,%d`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotSet {
    /// The dataset of all the snapshots.
    pub dataset: DatasetName,
    /// The parts between the commas; at least one.
    pub spans: Vec<SnapshotSpan>,
}

/// One part of a [`SnapshotSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotSpan {
    /// The snapshot with the given name.
    One(String),
    /// All snapshots from the first to the last, both included, in the order of creation; `None` is an open end.
    Range {
        /// The name of the oldest snapshot.
        first: Option<String>,
        /// The name of the newest snapshot.
        last: Option<String>,
    },
}

impl SnapshotSet {
    /// The snapshot, if the set consists of exactly one name.
    pub fn single(&self) -> Option<SnapshotName> {
        match self.spans.as_slice() {
            [SnapshotSpan::One(name)] => self.dataset.snapshot(name).ok(),
            _ => None,
        }
    }
}

impl FromStr for SnapshotSet {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let Some((dataset, list)) = text.split_once('@') else {
            return Err(NameError::new(text, text.len(), NameProblem::NotSnapshot));
        };
        let dataset: DatasetName = dataset.parse()?;
        let mut start = dataset.as_str().len() + 1;
        let mut spans = Vec::new();
        for part in list.split(',') {
            spans.push(parse_span(part).map_err(|(at, problem)| NameError::new(text, start + at, problem))?);
            start += part.len() + 1;
        }
        Ok(SnapshotSet { dataset, spans })
    }
}

fn parse_span(part: &str) -> Result<SnapshotSpan, (usize, NameProblem)> {
    let named = |component: &str, at: usize| match component_problem(component) {
        None => Ok(component.to_owned()),
        Some((inner, problem)) => Err((at + inner, problem)),
    };
    let Some((first, last)) = part.split_once('%') else {
        return named(part, 0).map(SnapshotSpan::One);
    };
    let end = |component: &str, at| (!component.is_empty()).then(|| named(component, at)).transpose();
    Ok(SnapshotSpan::Range { first: end(first, 0)?, last: end(last, first.len() + 1)? })
}

impl fmt::Display for SnapshotSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotSpan::One(name) => f.write_str(name),
            SnapshotSpan::Range { first, last } => {
                write!(f, "{}%{}", first.as_deref().unwrap_or(""), last.as_deref().unwrap_or(""))
            }
        }
    }
}

impl fmt::Display for SnapshotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.dataset)?;
        for (index, span) in self.spans.iter().enumerate() {
            write!(f, "{}{span}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
