use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

/// One case of a table.
#[derive(Clone, Debug)]
pub struct Case {
    /// `<family>.<test>`: its file's name.
    pub file: String,
    /// Its name, unique within the file.
    pub name: String,
    /// The whole line: inputs and expectations under `tc`, fixtures under `ctx_…`.
    pub line: Value,
}

impl Case {
    /// Inputs and expectations.
    pub fn tc(&self) -> &Value {
        &self.line["tc"]
    }

    /// What the cases of a file share under this name; null where there is nothing.
    pub fn shared(&self, name: &str) -> &Value {
        &self.line[format!("ctx_{name}")]
    }

    /// `scheduler`, `webhooks`, …
    pub fn family(&self) -> &str {
        self.file.split('.').next().unwrap_or_default()
    }

    /// All cases of a folder, by file.
    ///
    /// # Errors
    /// The folder or a file cannot be read, or a line is no case.
    pub fn load(folder: &Path) -> anyhow::Result<Vec<Self>> {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("cannot read {}", folder.display()))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        let mut cases = Vec::new();
        for path in paths {
            let file = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
                let at = || format!("{}:{}", path.display(), number + 1);
                let line: Value = serde_json::from_str(line).with_context(at)?;
                let name = line["case"].as_str().with_context(at)?.to_owned();
                cases.push(Self { file: file.clone(), name, line });
            }
        }
        Ok(cases)
    }
}

/// What came of a case: `Err` has the difference, readable.
pub type Verdict = Result<(), String>;

/// Runs the cases of one test.
pub type Runner = fn(&Case) -> Verdict;
