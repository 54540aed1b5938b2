//! What all TLS connections of a generation share: certificate, key and protocol choices.

use boring::error::ErrorStack;
use boring::pkey::PKey;
use boring::ssl::{AlpnError, Ssl, SslContext, SslContextBuilder, SslMethod, SslVersion, select_next_proto};
use boring::x509::X509;

/// Protocols offered, in order of preference, as RFC 7301 writes them on the wire.
const PROTOCOLS: &[u8] = b"\x08http/1.1";

/// Why a certificate and key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the certificate file holds no PEM certificate")]
    NoCertificate,
    #[error("the certificate cannot be used: {0}")]
    Certificate(ErrorStack),
    #[error("the private key cannot be read: {0}")]
    Key(ErrorStack),
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] ErrorStack),
}

/// Shared by all workers; immutable.
#[derive(Clone)]
pub struct TlsContext(SslContext);

impl TlsContext {
    /// A server context for a chain of PEM certificates (leaf first) and its PEM private key.
    pub fn new(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsError> {
        let chain = X509::stack_from_pem(certificate_pem).map_err(TlsError::Certificate)?;
        let key = PKey::private_key_from_pem(key_pem).map_err(TlsError::Key)?;
        let mut chain = chain.into_iter();
        let leaf = chain.next().ok_or(TlsError::NoCertificate)?;
        if !leaf.public_key().map_err(TlsError::Certificate)?.public_eq(&key) {
            return Err(TlsError::Mismatch);
        }
        let mut builder = SslContextBuilder::new(SslMethod::tls())?;
        builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
        builder.set_max_proto_version(Some(SslVersion::TLS1_3))?;
        builder.set_certificate(&leaf).map_err(TlsError::Certificate)?;
        for issuer in chain {
            builder.add_extra_chain_cert(issuer).map_err(TlsError::Certificate)?;
        }
        builder.set_private_key(&key).map_err(TlsError::Key)?;
        builder.set_alpn_select_callback(|_, offered| {
            // RFC 7301 3.2: no protocol in common is fatal, and only for a client that named some.
            select_next_proto(PROTOCOLS, offered).ok_or(AlpnError::ALERT_FATAL)
        });
        Ok(Self(builder.build()))
    }

    pub(super) fn new_ssl(&self) -> Result<Ssl, ErrorStack> {
        Ssl::new(&self.0)
    }
}
