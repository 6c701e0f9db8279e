//! Puts the web UI into the program: `web/dist` when `npm run build` made it, else a page that says how to.
//!
//! Writes `$OUT_DIR/ui.rs`, a table of files sorted by path, each plain and, where it helps, compressed once here
//! instead of for every request. Cargo runs this again when `web/dist` changes or appears.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Files of a build at most: more than this is not our `web/dist`.
const FILES_MAX: usize = 500;

/// What is served when the UI was not built.
const PLACEHOLDER: &str = include_str!("src/http/ui/placeholder.html");

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../web");
    let dist = web.join("dist");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/http/ui/placeholder.html");
    // A path that is not there would make cargo run this every time; the folder around it shows when it comes.
    if let Some(watched) = [&dist, &web].into_iter().find(|folder| folder.exists()) {
        println!("cargo:rerun-if-changed={}", watched.display());
    }

    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        collect(&dist, "", &mut files)?;
    } else {
        files.push(("index.html".to_owned(), PLACEHOLDER.as_bytes().to_vec()));
    }
    if files.len() > FILES_MAX {
        return Err(format!("{} holds {} files; build the web UI afresh", dist.display(), files.len()).into());
    }
    files.sort();
    fs::write(out.join("ui.rs"), table(&files, &out)?)?;
    Ok(())
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8"))?;
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else {
            files.push((path, fs::read(entry.path())?));
        }
    }
    Ok(())
}

fn table(files: &[(String, Vec<u8>)], out: &Path) -> Result<String, Box<dyn Error>> {
    let mut text = "static FILES: &[File] = &[\n".to_owned();
    for (number, (path, bytes)) in files.iter().enumerate() {
        let plain = out.join(format!("ui-{number}"));
        fs::write(&plain, bytes)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes)?;
        let compressed = encoder.finish()?;
        let gzip = if compressed.len() < bytes.len() / 10 * 9 {
            let place = out.join(format!("ui-{number}.gz"));
            fs::write(&place, compressed)?;
            format!("Some(include_bytes!({:?}))", place.display().to_string())
        } else {
            "None".to_owned()
        };
        // Names a version of a file among others, nothing more.
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        writeln!(
            text,
            "    File {{ path: {path:?}, plain: include_bytes!({:?}), gzip: {gzip}, tag: \"{:016x}\" }},",
            plain.display().to_string(),
            hasher.finish()
        )?;
    }
    text.push_str("];\n");
    Ok(text)
}
