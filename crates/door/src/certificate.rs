//! TLS 1.3: the node's own certificate, and what the certificates of clients say.
//!
//! A client's certificate is signed by the site's authority and names its user in a subject alternative name of type
//! URI: `presagio:uid:1000`. Exactly one such name; a certificate without it lets nobody in, whoever signed it.
//! Nothing is resumed: each connection shows its certificate anew, so that an expired one ends with its last connection.

use crate::peer::{NOBODY, Proof};
use crate::{DoorError, TlsFiles};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// What names a user.
const USER: &str = "presagio:uid:";

/// What a server needs to speak TLS 1.3 with those who have a certificate of the client authority.
pub fn server(files: &TlsFiles) -> Result<Arc<ServerConfig>, DoorError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in certificates(&files.client_ca)? {
        roots
            .add(root)
            .map_err(|error| unusable(&files.client_ca, &error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| unusable(&files.client_ca, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, &error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| DoorError(error.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| unusable(&files.certificate, &error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, DoorError> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, &error))?;
    match all.is_empty() {
        true => Err(unusable(path, &"there is no certificate in it")),
        false => Ok(all),
    }
}

fn unusable(path: &Path, why: &dyn Display) -> DoorError {
    DoorError(format!("{} is of no use for TLS: {why}", path.display()))
}

/// The user that a certificate names, which was checked already.
pub fn user(certificate: &CertificateDer<'_>) -> Result<Proof, &'static str> {
    let certificate = webpki::EndEntityCert::try_from(certificate);
    let certificate = certificate.map_err(|_| "its certificate cannot be read")?;
    let mut names = certificate
        .valid_uri_names()
        .filter_map(|name| name.strip_prefix(USER));
    let (Some(uid), None) = (names.next(), names.next()) else {
        return Err("its certificate does not name one user as URI:presagio:uid:NUMBER");
    };
    let digits = !uid.is_empty() && uid.bytes().all(|digit| digit.is_ascii_digit());
    match uid.parse() {
        Ok(uid) if digits && uid != u32::MAX => Ok(Proof::Vouched { uid, gid: NOBODY }),
        _ => Err("the uid that its certificate names is no number of a user"),
    }
}
