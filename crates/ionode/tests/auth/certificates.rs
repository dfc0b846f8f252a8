//! Certificates of all kinds, made for one test.

use presagio_door::TlsFiles;
use presagio_ninep::client::TlsIdentity;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose, date_time_ymd};
use std::path::{Path, PathBuf};

/// An authority, and where its files are.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    name: &'static str,
    directory: PathBuf,
}

impl Authority {
    pub fn new(directory: &Path, name: &'static str) -> Authority {
        let mut params = CertificateParams::new([]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let path = directory.join(format!("{name}.pem"));
        std::fs::write(path, certificate.pem()).expect("a file");
        Authority {
            issuer: Issuer::new(params, key),
            name,
            directory: directory.to_owned(),
        }
    }

    /// Its own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory.join(format!("{}.pem", self.name))
    }

    /// What a node needs whose clients are known to `clients`.
    pub fn node(&self, clients: &Authority) -> TlsFiles {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = self.sign(params, "node");
        TlsFiles {
            certificate,
            key,
            client_ca: clients.certificate(),
        }
    }

    /// A certificate with these names, for a client that believes servers of `servers`.
    pub fn user(&self, file: &str, names: &[&str], servers: &Authority) -> TlsIdentity {
        self.user_with(file, names, servers, |_| {})
    }

    /// The same, for a time that is over.
    pub fn expired(&self, file: &str, names: &[&str], servers: &Authority) -> TlsIdentity {
        self.user_with(file, names, servers, |params| {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        })
    }

    /// The files of a certificate with these names, and of its key.
    pub fn user_files(&self, file: &str, names: &[&str]) -> (PathBuf, PathBuf) {
        self.sign(user(names), file)
    }

    fn user_with(
        &self,
        file: &str,
        names: &[&str],
        servers: &Authority,
        change: impl FnOnce(&mut CertificateParams),
    ) -> TlsIdentity {
        let mut params = user(names);
        change(&mut params);
        let (certificate, key) = self.sign(params, file);
        let identity = TlsIdentity::from_files(&certificate, &key, &servers.certificate());
        identity.expect("files that can be used")
    }

    fn sign(&self, params: CertificateParams, file: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |end: &str| self.directory.join(format!("{}-{file}.{end}", self.name));
        std::fs::write(path("pem"), certificate.pem()).expect("a file");
        std::fs::write(path("key"), key.serialize_pem()).expect("a file");
        (path("pem"), path("key"))
    }
}

/// What a certificate with these names is to say.
fn user(names: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::new([]).expect("parameters");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let names = names.iter().map(|name| name.to_string().try_into());
    let names = names.map(|name| SanType::URI(name.expect("a name")));
    params.subject_alt_names.extend(names);
    params
}
