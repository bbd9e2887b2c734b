//! Creates output files. They never replace a file or follow a link, and no half-written file is left behind.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write as _},
    path::Path,
};

/// A path that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotWritable(String);

/// Creates a file that does not exist yet.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Writes the whole content to a new file.
///
/// # Errors
/// Fails if the file exists already, or cannot be written completely.
pub fn write(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let failed = |error: anyhow::Error| error.context(format!("cannot write {}", path.display()));
    let file = create(path).map_err(|error| failed(anyhow::Error::msg(why_not(&error))))?;
    let mut out = BufWriter::new(file);
    let filled = fill(&mut out).and_then(|()| Ok(out.flush()?));
    filled.map_err(|error| {
        // The next attempt may use this name.
        let _ = fs::remove_file(path);
        failed(error)
    })
}

/// Why a file could not be created, in words for the user who named it.
pub fn why_not(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "it exists: choose another name, or remove it".to_owned(),
        _ => error.to_string(),
    }
}

/// Refuses an unwritable path before the work begins; `-` is standard output.
///
/// # Errors
/// The error says what to do.
pub fn check(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), NotWritable> {
    for path in paths {
        let path = path.as_ref();
        if path == Path::new("-") {
            continue;
        }
        match create(path) {
            Ok(_) => drop(fs::remove_file(path)),
            Err(error) => {
                return Err(NotWritable(format!("cannot write {}: {}", path.display(), why_not(&error))));
            }
        }
    }
    Ok(())
}

/// Refuses existing files before it creates any.
///
/// # Errors
/// The error says what to do.
pub fn check_absent(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), NotWritable> {
    let taken = paths.into_iter().find(|path| path.as_ref().symlink_metadata().is_ok());
    taken.map_or(Ok(()), |path| {
        let why = why_not(&io::ErrorKind::AlreadyExists.into());
        Err(NotWritable(format!("cannot write {}: {why}", path.as_ref().display())))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn existing_files_stay_and_failed_ones_are_removed() {
        let place = std::env::temp_dir().join(format!("xpu-top-new-file-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let (kept, link, dangling) = (place.join("kept"), place.join("link"), place.join("dangling"));
        fs::write(&kept, "mine").unwrap();
        symlink(&kept, &link).unwrap();
        symlink(place.join("nowhere"), &dangling).unwrap();
        for path in [&kept, &link, &dangling] {
            assert!(check([path]).is_err(), "{path:?}");
            let error = write(path, |out| Ok(out.write_all(b"theirs")?)).unwrap_err();
            assert!(format!("{error:#}").contains("it exists: choose another name"), "{error:#}");
        }
        assert_eq!(fs::read_to_string(&kept).unwrap(), "mine");
        assert!(!place.join("nowhere").exists());

        let new = place.join("new");
        check([&new]).unwrap();
        write(&new, |_| anyhow::bail!("no room")).unwrap_err();
        assert!(!new.exists(), "the next try may have its name");
        write(&new, |out| Ok(out.write_all(b"all")?)).unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "all");
        fs::remove_dir_all(&place).unwrap();
    }
}
