//! The functions of Python a user asks for: `megatron.core.pipeline_parallel@schedules@forward_step,train@Trainer@step`.

/// Functions there can be, and characters of one.
pub const FUNCTIONS: usize = 1024;
const LONGEST: usize = 256;

/// Names between two `@`: a module, then what is in it.
const PARTS: std::ops::RangeInclusive<usize> = 2..=8;

/// Reads functions separated by commas. What cannot be read is said, and there are none then.
pub fn read(text: &str) -> Result<Vec<String>, String> {
    let all = || text.split(',').map(str::trim).filter(|form| !form.is_empty());
    if all().count() > FUNCTIONS {
        return Err(format!("XPU_TOP_TRACE_FUNCS: more than {FUNCTIONS} functions"));
    }
    if let Some(form) = all().find(|form| !is_function(form)) {
        return Err(format!(
            "XPU_TOP_TRACE_FUNCS: '{form:.64}' is not module@function or module@Class@function"
        ));
    }
    Ok(all().map(str::to_owned).collect())
}

fn is_function(form: &str) -> bool {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first == '_' || first.is_alphabetic())
            && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
    };
    // A module's name has dots in it.
    let mut parts = form.split('@');
    form.len() <= LONGEST
        && PARTS.contains(&parts.clone().count())
        && parts.next().is_some_and(|module| module.split('.').all(is_name))
        && parts.all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_or_refused_whole() {
        let read_as = |text: &str, expected: &[&str]| {
            assert_eq!(read(text), Ok(expected.iter().map(|&form| form.to_owned()).collect()), "{text}");
        };
        read_as("", &[]);
        read_as(" a.b@C@f ,, g@h,", &["a.b@C@f", "g@h"]);
        read_as(
            "torch@cuda@Stream@wait_event,__main__@Ä1@_f",
            &["torch@cuda@Stream@wait_event", "__main__@Ä1@_f"],
        );
        let (many, long) = ("a@b,".repeat(FUNCTIONS + 1), format!("ok@f,a@{}", "b".repeat(LONGEST)));
        for text in ["f", "a@", "@f", "a@b.c", "a..b@c", "a@1b", "a@b c", "ok@f;a@b", "a@b@@c", &many, &long]
        {
            assert!(read(text).unwrap_err().contains("XPU_TOP_TRACE_FUNCS"), "{text:.20}");
        }
        assert!(read(&many[4..]).is_ok());
    }
}
