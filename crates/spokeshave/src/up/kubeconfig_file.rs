//! The kubeconfig that `up` writes: it is written atomically, readable by its owner only, and removed with the cluster.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// First line of every file written here, so that no other kubeconfig is ever overwritten.
const MARK: &str = "# Written by `spokeshave up`; removed when it ends.";

/// A kubeconfig on disk. Dropping it removes the file, unless another process has replaced it.
#[derive(Debug)]
pub(crate) struct KubeconfigFile {
    path: PathBuf,
    content: String,
}

impl KubeconfigFile {
    /// Fails early when the file could not be written later: it was not written by `up`, or its directory is missing.
    pub(crate) fn check(path: &Path) -> Result<()> {
        match fs::read_to_string(path) {
            Ok(content) if !content.starts_with(MARK) => bail!(
                "{} exists and was not written by `spokeshave up`; name another file with --kubeconfig",
                path.display()
            ),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let directory = directory_of(path);
                if directory.is_dir() {
                    Ok(())
                } else {
                    bail!("directory {} does not exist", directory.display())
                }
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes the file under another name, with mode 0600, and moves it into place.
    pub(crate) fn write(path: &Path, kubeconfig: &str) -> Result<Self> {
        let content = format!("{MARK}\n{kubeconfig}");
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("kubeconfig");
        let temporary = directory_of(path).join(format!(".{name}.{}", std::process::id()));
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| file.write_all(content.as_bytes()))
            .and_then(|()| fs::rename(&temporary, path));
        if let Err(error) = written {
            drop(fs::remove_file(&temporary));
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
        Ok(Self {
            path: path.to_owned(),
            content,
        })
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        if fs::read_to_string(&self.path).is_ok_and(|content| content == self.content) {
            drop(fs::remove_file(&self.path));
        }
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn it_appears_with_mode_0600_and_goes_away() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("config");
        KubeconfigFile::check(&path).expect("free");
        let file = KubeconfigFile::write(&path, "apiVersion: v1\n").expect("written");
        let mode = fs::metadata(&path).expect("exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        KubeconfigFile::check(&path).expect("our own file may be replaced");
        drop(file);
        assert!(!path.exists());
        assert_eq!(
            fs::read_dir(directory.path()).expect("directory").count(),
            0,
            "nothing is left behind"
        );
    }

    #[test]
    fn somebody_elses_file_is_not_touched() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("config");
        fs::write(&path, "apiVersion: v1\n").expect("written");
        let error = KubeconfigFile::check(&path).expect_err("not ours").to_string();
        assert!(error.contains("--kubeconfig"), "{error}");
    }

    #[test]
    fn a_replaced_file_stays() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("config");
        let file = KubeconfigFile::write(&path, "one\n").expect("written");
        fs::write(&path, "two\n").expect("replaced");
        drop(file);
        assert!(path.exists());
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = KubeconfigFile::check(Path::new("/no/such/directory/config"))
            .expect_err("missing")
            .to_string();
        assert!(error.contains("/no/such/directory"), "{error}");
    }
}
