//! Files that root gives to the owner of a data folder, and files that it leaves. Without root nothing is tested.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, chown, symlink};

use holdfast_types::owner::{adopt, adopt_folder, create};

const USER: u32 = 12_345;

#[test]
fn what_has_another_name_or_is_a_link_is_not_given_away() {
    let root = tempfile::tempdir().unwrap();
    let uid = |path: &_| fs::metadata::<&std::path::PathBuf>(path).unwrap().uid();
    let folder = root.path().join("data");
    fs::create_dir(&folder).unwrap();
    if uid(&folder) != 0 || chown(&folder, Some(USER), Some(USER)).is_err() {
        return;
    }
    let made = folder.join("made");
    adopt(&File::create(&made).unwrap(), &made).unwrap();
    assert_eq!(uid(&made), USER);
    let database = folder.join("database");
    create(&database).unwrap();
    fs::write(&database, b"x").unwrap();
    create(&database).unwrap();
    assert_eq!((uid(&database), fs::read(&database).unwrap()), (USER, b"x".to_vec()));
    // A crash came right after it was created; a file with content may be someone else's.
    let (unfinished, full) = (folder.join("unfinished"), folder.join("full"));
    fs::write(&unfinished, b"").unwrap();
    fs::write(&full, b"x").unwrap();
    create(&unfinished).unwrap();
    create(&full).unwrap();
    assert_eq!((uid(&unfinished), uid(&full)), (USER, 0));

    let (theirs, linked) = (root.path().join("theirs"), folder.join("linked"));
    fs::write(&theirs, b"x").unwrap();
    fs::hard_link(&theirs, &linked).unwrap();
    adopt(&File::open(&linked).unwrap(), &linked).unwrap();
    assert_eq!(uid(&theirs), 0);

    let (other, link, below) = (root.path().join("other"), folder.join("link"), folder.join("below"));
    fs::create_dir(&other).unwrap();
    fs::create_dir(&below).unwrap();
    symlink(&other, &link).unwrap();
    adopt_folder(&link).unwrap_err();
    adopt_folder(&below).unwrap();
    assert_eq!((uid(&other), uid(&below)), (0, USER));
}
