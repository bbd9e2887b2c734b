//! The values that a step may carry, taken from Python: counts and a loss.

use pyo3::{exceptions::PyTypeError, prelude::*};

/// A count of tokens or samples: a non-negative int, or an object with `__index__`.
pub(crate) fn count(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
    let Some(value) = value else { return Ok(0) };
    value.extract::<u64>().map_err(|error| {
        let what = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
        let why = format!("step({name}=...) takes a non-negative integer, not {what}");
        as_cause(value.py(), PyTypeError::new_err(why), error)
    })
}

/// A loss: a float, or anything with `__float__`. The hook reads NaN as no loss. A loss of NaN is therefore
/// passed as infinity, so that the last finite loss does not seem to be current.
pub(crate) fn loss(value: Option<&Bound<'_, PyAny>>) -> PyResult<f64> {
    let Some(value) = value else { return Ok(f64::NAN) };
    let loss = value.extract::<f64>().map_err(|error| {
        let kind = value.get_type().qualname().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        let why = format!("step(loss=...) takes a number or anything with __float__, not {kind}");
        as_cause(value.py(), PyTypeError::new_err(why), error)
    })?;
    Ok(if loss.is_nan() { f64::INFINITY } else { loss })
}

fn as_cause(py: Python<'_>, error: PyErr, cause: PyErr) -> PyErr {
    error.set_cause(py, Some(cause));
    error
}
