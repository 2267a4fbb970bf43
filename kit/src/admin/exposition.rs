//! The encoder's OpenMetrics text in Prometheus' older text format, which is what the peers serve.

/// The same samples in the format `0.0.4`: a counter's family is named as its sample (`_total`), an info's `_info`,
/// types the old format lacks become their nearest, exemplars, units and the end mark go, and bounds of buckets are written as
/// Prometheus' clients for it do.
pub(super) fn prometheus(open_metrics: &str) -> String {
    let mut old = String::with_capacity(open_metrics.len());
    // The help comes before the type that says what the family is called.
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "stateset" => ("", "gauge"),
                "gaugehistogram" => ("", "histogram"),
                // A counter whose family's name would be that of another metric.
                "unknown" if name.ends_with("_total") => ("", "counter"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some((_, text)) = help.take().filter(|(family, _)| *family == name) {
                old.push_str(&format!("# HELP {name}{suffix} {text}\n"));
            }
            old.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            let line = without_exemplar(line);
            old.push_str(plain_bound(line).as_deref().unwrap_or(line));
            old.push('\n');
        }
    }
    old
}

/// An exemplar follows the value after ` # {`; the same characters inside a label's value do not count.
fn without_exemplar(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in line.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            '#' if !quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
}

/// The sample of a bucket whose bound is a whole number. It is `le="10"`, and so people ask for it; OpenMetrics has `le="10.0"`.
fn plain_bound(line: &str) -> Option<String> {
    let (name, labels) = line.split_once('{').filter(|(name, _)| name.ends_with("_bucket"))?;
    let (bound, rest) = labels.strip_prefix("le=\"")?.split_once('"')?;
    let whole = bound.strip_suffix(".0")?;
    Some(format!("{name}{{le=\"{whole}\"{rest}"))
}

#[cfg(test)]
mod tests {
    use super::prometheus;

    #[test]
    fn families_are_renamed_and_the_rest_is_dropped() {
        let open = r##"# HELP a Help of a.
# TYPE a counter
# UNIT a seconds
a_total{x="1 # {\" #"} 3 # {trace="t"} 1
# TYPE b unknown
b 2
# HELP c Info.
# TYPE c info
c_info{v="1"} 1
# TYPE a_b_total unknown
a_b_total 3
# TYPE d histogram
d_sum{x="le"} 10.0
d_bucket{le="0.5",x="1.0"} 1
d_bucket{le="320.0",x="1.0"} 2 # {trace="t"} 1.0
d_bucket{le="+Inf",x="1.0"} 2
# EOF
"##;
        let old = r##"# HELP a_total Help of a.
# TYPE a_total counter
a_total{x="1 # {\" #"} 3
# TYPE b untyped
b 2
# HELP c_info Info.
# TYPE c_info gauge
c_info{v="1"} 1
# TYPE a_b_total counter
a_b_total 3
# TYPE d histogram
d_sum{x="le"} 10.0
d_bucket{le="0.5",x="1.0"} 1
d_bucket{le="320",x="1.0"} 2
d_bucket{le="+Inf",x="1.0"} 2
"##;
        assert_eq!(prometheus(open), old);
    }
}
