use std::collections::{BTreeMap, BTreeSet};

use crate::report::{Outcome, Report};

/// What is known to differ, and why: for each file a heading `## <file>`, under it `- <case>: <reason>`; the case `*` stands
/// for all that no other line names.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    known: BTreeMap<String, BTreeMap<String, String>>,
}

impl Differences {
    /// Reads the list. What is neither a heading nor an item is for people.
    pub fn parse(text: &str) -> Self {
        let mut known: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        let mut file = String::new();
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                heading.clone_into(&mut file);
            } else if let Some((case, reason)) =
                line.strip_prefix("- ").and_then(|item| item.rsplit_once(": "))
            {
                known.entry(file.clone()).or_default().insert(case.to_owned(), reason.to_owned());
            }
        }
        Self { known }
    }

    /// Why this case differs, if that is known.
    pub fn reason(&self, file: &str, case: &str) -> Option<&str> {
        let file = self.known.get(file)?;
        file.get(case).or_else(|| file.get("*")).map(String::as_str)
    }

    /// Where the list is not the truth: differences that nobody explained, and explanations of what does not differ, or is not there.
    pub fn untrue(&self, report: &Report) -> Vec<String> {
        let mut untrue = Vec::new();
        let mut needed = BTreeSet::new();
        for (file, case, outcome) in &report.outcomes {
            if *outcome != Outcome::Passed
                && let Some(cases) = self.known.get(file)
            {
                needed.insert((file.as_str(), if cases.contains_key(case) { case } else { "*" }));
            }
            match outcome {
                Outcome::Failed(difference) if self.reason(file, case).is_none() => {
                    untrue.push(format!("{file}: {case}: {difference}"));
                }
                Outcome::Skipped if self.reason(file, case).is_none() => {
                    untrue.push(format!("{file}: {case}: has no runner"));
                }
                _ => {}
            }
        }
        let listed =
            self.known.iter().flat_map(|(file, cases)| cases.keys().map(move |case| (&**file, &**case)));
        let idle = listed.filter(|one| !needed.contains(one));
        untrue.extend(idle.map(|(file, case)| format!("{file}: {case}: is listed, and nothing differs")));
        untrue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_not_the_truth_is_told() {
        let list = Differences::parse(
            "# x\n## a.One\n- first: wrong: on purpose\n- third: gone\n## a.Two\n- *: later\n## a.Four\n- *: gone\n",
        );
        assert_eq!(list.reason("a.One", "first: wrong"), Some("on purpose"));
        assert_eq!(list.reason("a.Two", "any"), Some("later"));
        let outcome = |file: &str, case: &str, outcome| (file.to_owned(), case.to_owned(), outcome);
        let report = Report {
            outcomes: vec![
                outcome("a.One", "first: wrong", Outcome::Failed("2, wanted 3".into())),
                outcome("a.One", "second", Outcome::Failed("4, wanted 5".into())),
                outcome("a.One", "third", Outcome::Passed),
                outcome("a.Two", "any", Outcome::Skipped),
                outcome("a.Two", "other", Outcome::Passed),
                outcome("a.Three", "alone", Outcome::Skipped),
            ],
        };
        assert_eq!(
            list.untrue(&report),
            [
                "a.One: second: 4, wanted 5",
                "a.Three: alone: has no runner",
                "a.Four: *: is listed, and nothing differs",
                "a.One: third: is listed, and nothing differs",
            ]
        );
    }
}
