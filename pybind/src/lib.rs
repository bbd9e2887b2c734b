//! The Python module `xpu_top._native`: step marks and spans, passed on to the hook.
//!
//! The hook is found, not linked: the preloaded one if there is one, else the packaged one, which then only
//! carries the marks and interposes nothing. Without either, or with `XPU_TOP_DISABLE=1`, every call does
//! nothing.

mod hook;
mod work;

use std::{
    ffi::CString,
    sync::{Mutex, PoisonError},
};

use pyo3::{
    exceptions::{PyRuntimeWarning, PyValueError},
    prelude::*,
    types::PyTuple,
};

use hook::Hook;

/// Marks training steps for xpu-top. Cheap to create; may be called from any thread.
///
/// >>> tracer = Tracer()
/// >>> for batch in loader:
/// ...     train(batch)
/// ...     tracer.step()
#[pyclass(frozen, module = "xpu_top")]
struct Tracer {
    hook: Hook,
}

#[pymethods]
impl Tracer {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let hook = Hook::find();
        if let Hook::Missing { why } = &hook {
            let text = CString::new(format!("xpu-top: steps are not recorded: {why}")).unwrap_or_default();
            PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 1)?;
        }
        Ok(Self { hook })
    }

    /// Marks the end of a training step: of the next one, or of number `n`, counted from 1.
    ///
    /// `tokens` and `samples` are the numbers that this rank processed in the step, `loss` is the last known
    /// loss; xpu-top shows tokens and samples per second. A loss that is a CUDA tensor is read like
    /// `float(loss)`, which waits for the GPU: pass it only where the program reads it anyway.
    #[pyo3(signature = (n = None, *, tokens = None, samples = None, loss = None))]
    fn step(
        &self,
        n: Option<i64>,
        tokens: Option<&Bound<'_, PyAny>>,
        samples: Option<&Bound<'_, PyAny>>,
        loss: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if n.is_some_and(|completed| completed < 0) {
            return Err(PyValueError::new_err(
                "n is the number of steps completed, 0 or more; leave it out to count one more",
            ));
        }
        let completed = n.unwrap_or(-1);
        if tokens.is_none() && samples.is_none() && loss.is_none() {
            self.hook.step(completed);
            return Ok(());
        }
        let (tokens, samples) = (work::count("tokens", tokens)?, work::count("samples", samples)?);
        self.hook.step_with(completed, tokens, samples, work::loss(loss)?);
        Ok(())
    }

    /// Names a part of the program, shown in captures:
    ///
    /// >>> with tracer.span("data"):
    /// ...     batch = next(batches)
    fn span(slf: Py<Self>, name: String) -> PyResult<Span> {
        let name =
            CString::new(name).map_err(|_nul| PyValueError::new_err("the name of a span has no NUL"))?;
        Ok(Span { tracer: slf, name, begun: Mutex::new(Vec::new()) })
    }

    /// Where the marks go: "preloaded", "packaged", "disabled" or "missing".
    #[getter]
    fn source(&self) -> &'static str {
        self.hook.source()
    }

    fn __repr__(&self) -> String {
        format!("Tracer(source={:?})", self.hook.source())
    }
}

/// The result of `Tracer.span`: a context manager that may be entered repeatedly.
#[pyclass(frozen, module = "xpu_top")]
struct Span {
    tracer: Py<Tracer>,
    name: CString,
    /// When the open spans began.
    begun: Mutex<Vec<u64>>,
}

#[pymethods]
impl Span {
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        let span = slf.get();
        let begun = span.tracer.get().hook.span_begin();
        span.begun.lock().unwrap_or_else(PoisonError::into_inner).push(begun);
        slf
    }

    /// Exceptions propagate.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) -> bool {
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).pop();
        self.tracer.get().hook.span_end(&self.name, begun.unwrap_or(0));
        false
    }

    fn __repr__(&self) -> String {
        format!("Span({:?})", self.name)
    }
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Span>()?;
    module.add_class::<Tracer>()
}
