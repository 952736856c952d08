//! Encryption: which certificates are believed. Those of the system, and those of a declared file.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Prepares encryption, or says why it cannot be had.
pub(in crate::tools) fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = system_roots().clone();
    if let Some(path) = ca {
        let bad =
            |why: String| format!("cannot read certificates from `{}`: {why}", path.display());
        let certificates = CertificateDer::pem_file_iter(path).map_err(|e| bad(e.to_string()))?;
        let before = roots.len();
        for certificate in certificates {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        if roots.len() == before {
            return Err(bad("there are none in it".to_owned()));
        }
    }
    if roots.is_empty() {
        return Err("this system trusts no certificate authority; \
            install its `ca-certificates`, or name a file with `ca`"
            .to_owned());
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Read once: a catalogue may have many tools.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    })
}
