//! Models that are kept from run to run, in files.

use crate::fault::{Answer, Fault, guarded};
use crate::{Model, Status, given, made};
use std::ffi::{CStr, OsStr, c_char};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a model to a file. See `presagio_predict.h`.
///
/// # Safety
/// `model` is NULL or a model that was not freed, `path` NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_model_save(
    model: *const Model,
    path: *const c_char,
    program_id: u64,
) -> Status {
    guarded("presagio_model_save", || {
        // SAFETY: as the caller promises.
        let (model, path) = unsafe { (given(model, "model")?, path_at(path)?) };
        let bytes = model.read(|model| model.save(program_id))?;
        replace(path, &bytes).map_err(|error| cannot("write", path, error))
    })
}

/// Reads a model from a file. See `presagio_predict.h`.
///
/// # Safety
/// `path` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn presagio_model_load(path: *const c_char, program_id: u64) -> *mut Model {
    made("presagio_model_load", || {
        // SAFETY: as the caller promises.
        let path = unsafe { path_at(path)? };
        let bytes = contents(path).map_err(|error| cannot("read", path, error))?;
        let model = presagio_predict::Model::load(&bytes, program_id);
        let model = model.map_err(|error| cannot("use", path, error))?;
        Ok(Model::new(model))
    })
}

/// The path that a C string names.
///
/// # Safety
/// `text` is NULL or a C string that lives through the call.
unsafe fn path_at<'a>(text: *const c_char) -> Answer<&'a Path> {
    if text.is_null() {
        return Err(Fault::Null("path"));
    }
    // SAFETY: not NULL, so the caller promises a C string.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// What could not be done to a file, and why.
fn cannot(what: &str, path: &Path, why: impl std::fmt::Display) -> Fault {
    let text = format!("cannot {what} {}: {why}", path.display());
    io::Error::other(text).into()
}

/// A pipe or a device would never end.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    match fs::metadata(path)?.is_file() {
        true => fs::read(path),
        false => Err(io::Error::other("it is not a file")),
    }
}

/// Writes beside the file and renames, so that there is always a whole one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = beside(path);
    let written = write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        fs::remove_file(&beside).ok();
    }
    written
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_data()
}

/// A name that nobody else who saves to the same file uses.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    static SAVED: AtomicU64 = AtomicU64::new(0);
    let number = SAVED.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}.{number}.tmp", std::process::id()));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all_and_nothing_is_left_beside_it() {
        let dir = std::env::temp_dir().join(format!("presagio-saved-{}", std::process::id()));
        let (file, taken) = (dir.join("model"), dir.join("taken"));
        fs::create_dir_all(taken.join("by a directory")).unwrap();
        replace(&file, b"first").unwrap();
        replace(&file, b"second").unwrap();
        assert_eq!(contents(&file).unwrap(), b"second");
        assert!(replace(&taken, b"third").is_err());
        assert!(contents(&taken).is_err());
        let left = fs::read_dir(&dir).unwrap().count();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(left, 2, "the file and the directory");
    }
}
