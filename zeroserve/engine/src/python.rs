//! The engine as Python sees it. The only file that knows Python; it converts and delegates, nothing else.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

use crate::generation::{Certificate, Source};
use crate::http::h1::Limits;
use crate::script::ScriptLimits;
use crate::server::{self, Settings};
use crate::worker::Timeouts;

create_exception!(
    _engine,
    EngineError,
    PyException,
    "The engine cannot do what was asked; the text says why."
);

fn engine_error(error: impl std::fmt::Display) -> PyErr {
    EngineError::new_err(error.to_string())
}

fn parse_addresses(texts: &[String]) -> PyResult<Vec<SocketAddr>> {
    let parse = |text: &String| {
        text.parse().map_err(|_| PyValueError::new_err(format!("not an address and port: {text}")))
    };
    texts.iter().map(parse).collect()
}

fn to_texts(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

type PemPair = (Vec<u8>, Vec<u8>);

fn to_certificate(pair: Option<PemPair>) -> Option<Certificate> {
    pair.map(|(chain_pem, key_pem)| Certificate { chain_pem, key_pem })
}

/// A running server.
#[pyclass(frozen)]
struct Server(server::Server);

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (site, *, plain, tls, certificate, workers, header_timeout_s, keep_alive_timeout_s,
        stall_timeout_s, preempt_interval_ms))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one call, as Python has them")]
    fn new(
        py: Python<'_>,
        site: PathBuf,
        plain: Vec<String>,
        tls: Vec<String>,
        certificate: Option<PemPair>,
        workers: usize,
        header_timeout_s: f64,
        keep_alive_timeout_s: f64,
        stall_timeout_s: f64,
        preempt_interval_ms: u64,
    ) -> PyResult<Self> {
        let timeouts = Timeouts {
            header: to_duration(header_timeout_s)?,
            keep_alive: to_duration(keep_alive_timeout_s)?,
            stall: to_duration(stall_timeout_s)?,
            ..Timeouts::default()
        };
        let settings = Settings {
            source: Source { site, script_limits: ScriptLimits::default() },
            certificate: to_certificate(certificate),
            plain_addresses: parse_addresses(&plain)?,
            tls_addresses: parse_addresses(&tls)?,
            workers,
            timeouts,
            head_limits: Limits::default(),
            preempt_interval: Duration::from_millis(preempt_interval_ms),
        };
        py.detach(|| server::Server::start(settings)).map(Self).map_err(engine_error)
    }

    /// The addresses without TLS, with the ports that the system chose.
    #[getter]
    fn plain_addresses(&self) -> Vec<String> {
        to_texts(&self.0.plain_addresses)
    }

    /// The addresses with TLS, with the ports that the system chose.
    #[getter]
    fn tls_addresses(&self) -> Vec<String> {
        to_texts(&self.0.tls_addresses)
    }

    /// Loads the site again, with this certificate, and swaps it in; on EngineError nothing has changed.
    fn reload(&self, py: Python<'_>, certificate: Option<PemPair>) -> PyResult<()> {
        let certificate = to_certificate(certificate);
        py.detach(|| self.0.reload(certificate.as_ref())).map_err(engine_error)
    }

    /// Accepts no more and lets what is in flight finish within the limit. Returns at once.
    fn drain(&self, limit_s: f64) -> PyResult<()> {
        self.0.drain(to_duration(limit_s)?);
        Ok(())
    }

    /// Waits until the server has ended: (connections cut off, what failed or None).
    fn wait(&self, py: Python<'_>) -> (usize, Option<String>) {
        let ending = py.detach(|| self.0.wait());
        (ending.cut_off, ending.failure)
    }
}

fn to_duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("not a length of time: {seconds}")))
}

/// Writes one line to standard error as the engine does, or leaves it out when nobody reads them.
#[pyfunction]
fn notice(py: Python<'_>, message: &str) {
    py.detach(|| crate::notice::write(format_args!("{message}")));
}

#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Server>()?;
    module.add_function(wrap_pyfunction!(notice, module)?)?;
    module.add("EngineError", module.py().get_type::<EngineError>())
}
