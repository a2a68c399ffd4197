//! The certificate of the page: the user's own, or a self-signed one that is kept from run to run.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use protocol::Failure;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

use crate::config::Config;

/// Names and addresses in the self-signed certificate.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The TLS settings of the server, and the certificate's fingerprint.
pub(crate) fn settings(config: &Config) -> Result<(Arc<ServerConfig>, String), Failure> {
    let (chain, key) = match &config.certificate {
        Some((chain, key)) => read(chain, key)?,
        None => own(config)?,
    };
    let first = chain.first().ok_or_else(|| Failure::new("the certificate file holds no certificate"))?;
    let fingerprint = fingerprint(first);
    let refused = |error: rustls::Error| Failure::new(format!("cannot use the certificate: {error}"));
    let mut settings = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(refused)?;
    settings.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(settings), fingerprint))
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn read(chain: &Path, key: &Path) -> Result<Identity, Failure> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| Failure::cannot("read", path.display(), error);
    let certificates = CertificateDer::pem_file_iter(chain).map_err(|error| failed(chain, &error))?;
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|error| failed(chain, &error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    Ok((certificates, key))
}

/// The self-signed certificate, made in the first run.
fn own(config: &Config) -> Result<Identity, Failure> {
    let (chain, key) = (config.folder.join("certificate.pem"), config.folder.join("key.pem"));
    if chain.exists() && key.exists() {
        return read(&chain, &key);
    }
    let made = make(config).map_err(|error| Failure::new(format!("cannot make a certificate: {error}")))?;
    let failed = |error: std::io::Error| Failure::cannot("write to", config.folder.display(), error);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&config.folder).map_err(failed)?;
    for (path, text) in [(&key, &made.1), (&chain, &made.0)] {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    }
    read(&chain, &key)
}

/// Certificate and key as PEM text.
fn make(config: &Config) -> Result<(String, String), rcgen::Error> {
    let mut names: Vec<String> = NAMES.map(str::to_owned).to_vec();
    let address = config.listen.ip();
    if !address.is_unspecified() && !address.is_loopback() {
        names.push(address.to_string());
    }
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Cenote pool web");
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// The SHA-256 fingerprint, as browsers show it.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let pairs: Vec<String> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}
