//! What a server serves between two reloads: the site, its TLS material and its scripts, made whole or not at all.

use std::path::PathBuf;
use std::sync::Arc;

use crate::script::{Chain, ScriptError, ScriptLimits, ScriptSet};
use crate::site::{Site, SiteError};
use crate::tls::{TlsContext, TlsError};

/// Where a generation comes from. A reload reads the same places again.
pub struct Source {
    pub site: PathBuf,
    pub script_limits: ScriptLimits,
}

/// A PEM certificate chain and its PEM key.
pub struct Certificate {
    pub chain_pem: Vec<u8>,
    pub key_pem: Vec<u8>,
}

/// Why a generation could not be made. The one before it goes on.
#[derive(Debug, thiserror::Error)]
pub enum GenerationError {
    #[error(transparent)]
    Site(#[from] SiteError),
    #[error(transparent)]
    Script(#[from] ScriptError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The part that all workers share.
pub struct Generation {
    pub site: Site,
    pub tls: Option<TlsContext>,
}

/// A generation as one worker holds it: loaded scripts belong to their thread.
pub struct Pinned {
    pub shared: Arc<Generation>,
    pub chain: Chain,
}

impl Generation {
    /// Reads the site, and loads its scripts once for each of `workers`, before anyone is disturbed.
    pub fn load(
        source: &Source,
        certificate: Option<&Certificate>,
        workers: usize,
    ) -> Result<(Arc<Self>, Vec<ScriptSet>), GenerationError> {
        let tls = certificate.map(|pair| TlsContext::new(&pair.chain_pem, &pair.key_pem)).transpose()?;
        let site = Site::open(&source.site)?;
        let scripts = (0..workers)
            .map(|_| ScriptSet::load(site.scripts(), &source.script_limits))
            .collect::<Result<Vec<_>, _>>()?;
        Ok((Arc::new(Self { site, tls }), scripts))
    }
}
