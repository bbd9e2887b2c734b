//! The Python functions a user names:
//! `megatron.core.pipeline_parallel@schedules@forward_step,train@Trainer@step,collate`.

use crate::endpoint::variable;

/// Largest number of functions, and of characters in one.
pub const FUNCTIONS: usize = 1024;
const LONGEST: usize = 256;

/// Number of parts separated by `@`: a module, then names within it.
const PARTS: std::ops::RangeInclusive<usize> = 2..=8;

/// The module of a name without a module: the main script, as in xpu-timer.
const MAIN: &str = "__main__";

/// xpu-timer's value for a variable that is not set.
const NOT_SET: &str = "NOT_SET";

/// Largest number of error sentences; the last one counts the others.
const SENTENCES: usize = 16;

/// The requested functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedFunctions {
    /// The variable they come from.
    pub variable: &'static str,
    /// Each with its module.
    pub functions: Vec<String>,
    /// What cannot be parsed, one sentence each. The other functions stay valid.
    pub wrong: Vec<String>,
}

impl RequestedFunctions {
    /// From the environment: [`variable::FUNCTIONS`], or if that is not set xpu-timer's variable.
    pub fn of(value: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let own = value(variable::FUNCTIONS).map(|text| Self::read(variable::FUNCTIONS, &text));
        own.or_else(|| {
            let text = value(variable::FUNCTIONS_OF_XPU_TIMER).filter(|text| text.trim() != NOT_SET)?;
            Some(Self::read(variable::FUNCTIONS_OF_XPU_TIMER, &text))
        })
    }

    /// Parses functions separated by commas.
    pub fn read(variable: &'static str, text: &str) -> Self {
        let (mut functions, mut wrong, mut more) = (Vec::new(), Vec::new(), 0_usize);
        for form in text.split(',').map(str::trim).filter(|form| !form.is_empty()) {
            let function = whole(form);
            if is_function(&function) && functions.len() < FUNCTIONS {
                functions.push(function);
            } else if wrong.len() + 1 < SENTENCES {
                wrong.push(if is_function(&function) {
                    format!("{variable}: '{form:.64}' exceeds the limit of {FUNCTIONS} functions")
                } else {
                    format!(
                        "{variable}: '{form:.64}' is not function, module@function or module@Class@function"
                    )
                });
            } else {
                more += 1;
            }
        }
        if more > 0 {
            wrong.push(format!("{variable}: {more} more are left out"));
        }
        Self { variable, functions, wrong }
    }
}

/// The name with its module.
fn whole(form: &str) -> String {
    if form.contains('@') { form.to_owned() } else { format!("{MAIN}@{form}") }
}

fn is_function(form: &str) -> bool {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        letters.next().is_some_and(|first| first == '_' || first.is_alphabetic())
            && letters.all(|letter| letter == '_' || letter.is_alphanumeric())
    };
    // Only a module's name may contain dots.
    let mut parts = form.split('@');
    form.len() <= LONGEST
        && PARTS.contains(&parts.clone().count())
        && parts.next().is_some_and(|module| module.split('.').all(is_name))
        && parts.all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RequestedFunctions {
        RequestedFunctions::read(variable::FUNCTIONS, text)
    }

    #[test]
    fn an_unreadable_entry_is_reported_and_costs_no_other() {
        let read_as = |text: &str, expected: &[&str], wrong: usize| {
            let asked = read(text);
            assert_eq!(asked.functions, expected, "{text:.40}");
            assert_eq!(asked.wrong.len(), wrong, "{text:.40} {:?}", asked.wrong);
            assert!(asked.wrong.iter().all(|why| why.contains("XPU_TOP_TRACE_FUNCS")), "{:?}", asked.wrong);
        };
        read_as("", &[], 0);
        read_as(" a.b@C@f ,, g@h,", &["a.b@C@f", "g@h"], 0);
        read_as("collate, Ä1", &["__main__@collate", "__main__@Ä1"], 0);
        read_as(
            "torch@cuda@Stream@wait_event,__main__@_f",
            &["torch@cuda@Stream@wait_event", "__main__@_f"],
            0,
        );
        let long = format!("a@{}", "b".repeat(LONGEST));
        for one in ["a@", "@f", "a@b.c", "a.b", "a..b@c", "a@1b", "1b", "a@b c", "ok@f;a@b", "a@b@@c", &long]
        {
            read_as(&format!("ok@f,{one},collate"), &["ok@f", "__main__@collate"], 1);
        }
        read_as("a@,b@,ok@f,c@", &["ok@f"], 3);
    }

    #[test]
    fn functions_and_complaints_about_them_are_bounded() {
        let many = read(&"a@b,".repeat(FUNCTIONS + 1));
        assert_eq!((many.functions.len(), many.wrong.len()), (FUNCTIONS, 1));
        assert!(many.wrong[0].ends_with("'a@b' exceeds the limit of 1024 functions"), "{:?}", many.wrong);
        let wrong = read(&"1,".repeat(100)).wrong;
        assert_eq!(wrong.len(), SENTENCES);
        assert!(wrong[SENTENCES - 1].ends_with("85 more are left out"), "{wrong:?}");
    }

    #[test]
    fn xpu_timers_variable_is_read_if_ours_is_not_set() {
        let of = |ours: Option<&str>, theirs: Option<&str>| {
            RequestedFunctions::of(|name| match name {
                "XPU_TOP_TRACE_FUNCS" => ours.map(str::to_owned),
                "XPU_TIMER_HOST_TRACING_FUNC" => theirs.map(str::to_owned),
                _ => None,
            })
            .map(|asked| (asked.variable, asked.functions.join(",")))
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(None, Some("NOT_SET")), None);
        let theirs = Some(("XPU_TIMER_HOST_TRACING_FUNC", "__main__@collate,a@B@c".to_owned()));
        assert_eq!(of(None, Some("collate,a@B@c")), theirs);
        assert_eq!(of(Some("a@b"), Some("collate")), Some(("XPU_TOP_TRACE_FUNCS", "a@b".to_owned())));
        assert_eq!(
            of(Some(""), Some("collate")),
            Some(("XPU_TOP_TRACE_FUNCS", String::new())),
            "none are wanted"
        );
    }
}
