//! What the containers of a pod template run, told apart without being kept.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

use model::pod::{ContainerResources, Requirements};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What containers run, as two numbers: their images; and their commands, arguments, folders and the values of variables. Two
/// templates with the same numbers run the same, unless chance has it otherwise (once in 2⁶⁴).
///
/// Of the rest of a container some is written in other words by API servers and controllers (defaults, quantities), and a job
/// must not be stopped for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Runs {
    images: u64,
    rest: u64,
}

impl Runs {
    pub(super) fn of(init_containers: &[Run], containers: &[Run]) -> Self {
        let all = || init_containers.iter().chain(containers);
        let images: Vec<Mark> = all().map(|one| one.image).collect();
        let rest: Vec<u64> = all().map(|one| one.rest).collect();
        let split = init_containers.len();
        Self { images: hash(&(split, images)), rest: hash(&(split, rest)) }
    }

    /// Whether the images are the same: of a pod nothing else of it can be changed.
    pub fn has_images_of(&self, other: &Self) -> bool {
        self.images == other.images
    }
}

/// Reads the spec of a pod template.
impl<'de> Deserialize<'de> for Runs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Spec {
            #[serde(deserialize_with = "model::null_as_default")]
            init_containers: Vec<WrittenContainer>,
            #[serde(deserialize_with = "model::null_as_default")]
            containers: Vec<WrittenContainer>,
        }
        let spec = Spec::deserialize(deserializer)?;
        let runs = |all: Vec<WrittenContainer>| all.into_iter().map(|one| one.apart().1).collect::<Vec<_>>();
        Ok(Self::of(&runs(spec.init_containers), &runs(spec.containers)))
    }
}

/// What one container runs.
pub(super) struct Run {
    image: Mark,
    rest: u64,
}

/// A container, side by side with what it asks for: flattened, it would be read twice.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WrittenContainer {
    name: String,
    #[serde(deserialize_with = "model::null_as_default")]
    restart_policy: String,
    #[serde(deserialize_with = "model::null_as_default")]
    resources: Requirements,
    image: Mark,
    command: Mark,
    args: Mark,
    working_dir: Mark,
    #[serde(deserialize_with = "values")]
    env: BTreeMap<Mark, Mark>,
}

impl WrittenContainer {
    /// What it asks for, and what it runs.
    pub(super) fn apart(self) -> (ContainerResources, Run) {
        let Self { name, restart_policy, resources, image, command, args, working_dir, env } = self;
        let rest = hash(&(command, args, working_dir, env));
        (ContainerResources { name, restart_policy, resources }, Run { image, rest })
    }
}

/// A variable; one that is not written down, but taken from elsewhere, has no value.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Variable {
    name: Mark,
    value: Mark,
}

/// Of those of one name the last one counts.
fn values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Mark, Mark>, D::Error> {
    let variables = Option::<Vec<Variable>>::deserialize(deserializer)?;
    Ok(variables.into_iter().flatten().map(|one| (one.name, one.value)).collect())
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// A number for a text or a list of texts, the same for an empty one as for none. Whatever else is written there counts as nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Mark(u64);

impl<'de> Deserialize<'de> for Mark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Marks;

        impl<'de> Visitor<'de> for Marks {
            type Value = Mark;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("anything")
            }

            fn visit_str<E>(self, text: &str) -> Result<Mark, E> {
                Ok(if text.is_empty() { Mark::default() } else { Mark(hash(&text)) })
            }

            fn visit_unit<E>(self) -> Result<Mark, E> {
                Ok(Mark::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Mark, E> {
                Ok(Mark::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<Mark, E> {
                Ok(Mark::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<Mark, E> {
                Ok(Mark::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<Mark, E> {
                Ok(Mark::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Mark, A::Error> {
                let mut marks = Vec::new();
                while let Some(mark) = list.next_element::<Mark>()? {
                    marks.push(mark);
                }
                Ok(if marks.is_empty() { Mark::default() } else { Mark(hash(&marks)) })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Mark, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Mark::default())
            }
        }

        deserializer.deserialize_any(Marks)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn runs(container: &Value) -> Runs {
        let from_value = Runs::deserialize(&json!({ "containers": [container] })).unwrap();
        let text = json!({ "containers": [container], "initContainers": null }).to_string();
        assert_eq!(serde_json::from_str::<Runs>(&text).unwrap(), from_value, "{container}");
        from_value
    }

    #[test]
    fn what_is_run_is_told_from_how_it_is_written() {
        let trains =
            json!({ "image": "train:1", "args": ["--epochs", "3"], "env": [{ "name": "A", "value": "1" }] });
        let edited = |at: &str, value: Value| {
            let mut container = trains.clone();
            container[at] = value;
            container
        };
        for (at, value) in [
            ("name", json!("another")),
            ("command", json!([])),
            ("command", Value::Null),
            ("workingDir", json!("")),
            ("imagePullPolicy", json!("Always")),
            ("resources", json!({ "requests": { "cpu": "1000m" } })),
            ("env", json!([{ "name": "A", "value": "0" }, { "name": "A", "value": "1" }])),
        ] {
            assert_eq!(runs(&edited(at, value.clone())), runs(&trains), "{at}: {value}");
        }
        for (at, value) in [
            ("image", json!("train:2")),
            ("command", json!(["sh"])),
            ("args", json!(["--epochs 3"])),
            ("args", json!(["3", "--epochs"])),
            ("workingDir", json!("/data")),
            ("env", json!([{ "name": "A", "value": "2" }])),
            ("env", json!([{ "name": "B", "value": "1" }])),
            ("env", json!([])),
        ] {
            assert_ne!(runs(&edited(at, value.clone())), runs(&trains), "{at}: {value}");
        }
        let pulls = |at: &str| runs(&edited(at, json!("another"))).has_images_of(&runs(&trains));
        assert!(!pulls("image") && pulls("command"));
        let moved = json!({ "initContainers": [trains.clone()] });
        assert_ne!(Runs::deserialize(&moved).unwrap(), runs(&trains));
    }

    /// Whoever wrote it is told by the API server of pods.
    #[test]
    fn nonsense_is_read() {
        let nonsense = json!({ "image": 5, "command": { "a": [1] }, "args": [null, 1.5, true], "env": [{ "name": 1, "value": [] }] });
        runs(&nonsense);
    }
}
