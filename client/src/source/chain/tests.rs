use std::os::unix::fs::symlink;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// The first cluster of a qcow2 image.
#[derive(Default)]
struct Qcow2<'a> {
    backing: &'a str,
    backing_format: &'a str,
    data: Option<&'a str>,
    encryption: u32,
}

impl Qcow2<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, b"QFI\xfb\0\0\0\x03");
        put(20, &16u32.to_be_bytes());
        put(32, &self.encryption.to_be_bytes());
        put(100, &104u32.to_be_bytes());
        if self.data.is_some() {
            put(72, &4u64.to_be_bytes());
        }
        let mut at = 104;
        for (kind, text) in
            [(0xE279_2ACAu32, self.backing_format), (0x4441_5441, self.data.unwrap_or_default())]
        {
            if !text.is_empty() {
                put(at, &kind.to_be_bytes());
                put(at + 4, &u32::try_from(text.len()).unwrap().to_be_bytes());
                put(at + 8, text.as_bytes());
                at += 8 + text.len().next_multiple_of(8);
            }
        }
        if !self.backing.is_empty() {
            put(8, &4096u64.to_be_bytes());
            put(16, &u32::try_from(self.backing.len()).unwrap().to_be_bytes());
            put(4096, self.backing.as_bytes());
        }
        bytes
    }
}

/// A folder for images, and a file beside it, which they must not reach.
struct Host {
    root: TempDir,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("vm")).unwrap();
        std::fs::write(root.path().join("secret"), [1; 512]).unwrap();
        Self { root }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.root.path().join("vm").join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn open(&self, path: &Path, format: Format, allow_backing: bool) -> Result<Chain, String> {
        let file = RawDisk::open("d", path).unwrap();
        Chain::open(path, file, format, allow_backing).map_err(|error| error.to_string())
    }

    /// Why an image of these bytes is not opened.
    fn refusal(&self, format: Format, bytes: &[u8]) -> String {
        let path = self.put("image", bytes);
        self.open(&path, format, false).unwrap_err()
    }
}

#[test]
fn qemu_is_told_every_file_of_a_chain_by_its_path() {
    let host = Host::new();
    host.put("base.raw", &[7; 4096]);
    let middle = Qcow2 { backing: "base.raw", backing_format: "raw", data: Some("data"), ..Qcow2::default() };
    host.put("middle.qcow2", &middle.bytes());
    host.put("data", &[9; 4096]);
    let top = host.put("top.qcow2", &Qcow2 { backing: "middle.qcow2", ..Qcow2::default() }.bytes());
    let chain = host.open(&top, Format::Qcow2, false).unwrap();
    let file = |name: &str| json!({ "driver": "file", "filename": host.root.path().join("vm").join(name) });
    let base = json!({ "driver": "raw", "file": file("base.raw") });
    let middle = json!({ "driver": "qcow2", "file": file("middle.qcow2"), "data-file": file("data"), "backing": base });
    assert_eq!(chain.node, json!({ "driver": "qcow2", "file": file("top.qcow2"), "backing": middle }));
    assert_eq!(chain.files.len(), 4);
    let alone = host.put("alone.qcow2", &Qcow2::default().bytes());
    let node = host.open(&alone, Format::Qcow2, false).unwrap().node;
    assert_eq!(node["backing"], Value::Null, "QEMU must not look for one: {node}");
    assert_eq!(host.open(&alone, Format::Vdi, false).unwrap().node.get("backing"), None);
}

/// Bytes of an image that names a file.
type Image<'a> = &'a dyn Fn(&str) -> Vec<u8>;

#[test]
fn files_outside_the_images_folder_need_leave_and_what_is_no_file_is_never_opened() {
    let host = Host::new();
    let secret = host.root.path().join("secret").to_str().unwrap().to_owned();
    symlink(&secret, host.root.path().join("vm/link")).unwrap();
    host.put("inside", &[1; 512]);
    let based = |backing: &str| Qcow2 { backing, backing_format: "raw", ..Qcow2::default() }.bytes();
    let with_data = |data: &str| Qcow2 { data: Some(data), ..Qcow2::default() }.bytes();
    let split = |part: &str| format!("# Disk DescriptorFile\nRW 1 FLAT \"{part}\" 0\n").into_bytes();
    let child = |hint: &str| format!("# Disk DescriptorFile\nparentFileNameHint=\"{hint}\"\n").into_bytes();
    let kinds: [(Format, Image<'_>); 4] = [
        (Format::Qcow2, &based),
        (Format::Qcow2, &with_data),
        (Format::Vmdk, &split),
        (Format::Vmdk, &child),
    ];
    for (format, image) in kinds {
        for outside in [secret.as_str(), "../secret", "link", "../vm/../secret"] {
            let path = host.put("image", &image(outside));
            let refused = host.open(&path, format, false).unwrap_err();
            assert!(
                refused.contains("outside the image's folder") && refused.contains("--allow-backing"),
                "{refused}"
            );
            assert_eq!(host.open(&path, format, true).unwrap().files.len(), 2, "{outside}");
        }
        let path = host.put("image", &image("../vm/inside"));
        assert_eq!(host.open(&path, format, false).unwrap().files.len(), 2);
        for elsewhere in
            ["nbd://host/x", "json:{}", "https://host/x", "file:inside", "fat:/etc", "rbd:pool/x"]
        {
            let path = host.put("image", &image(elsewhere));
            let refused = host.open(&path, format, true).unwrap_err();
            assert!(refused.contains("not the path of a file"), "{refused}");
        }
        assert!(host.refusal(format, &image("missing")).contains("cannot open"));
    }
}

#[test]
fn images_that_would_be_misread_are_refused() {
    let host = Host::new();
    host.put("guest.img", &Qcow2::default().bytes());
    let qcow2 = |image: Qcow2<'_>| host.refusal(Format::Qcow2, &image.bytes());
    assert!(qcow2(Qcow2 { encryption: 2, ..Qcow2::default() }).contains("encrypted"));
    assert!(qcow2(Qcow2 { data: Some(""), ..Qcow2::default() }).contains("does not say in which"));
    // A guest could have written what its raw disk begins with.
    assert!(qcow2(Qcow2 { backing: "guest.img", ..Qcow2::default() }).contains("--format qcow2"));
    let odd = Qcow2 { backing: "guest.img", backing_format: "vvfat", ..Qcow2::default() };
    assert!(qcow2(odd).contains("of format vvfat"));
    host.put("circle", &Qcow2 { backing: "circle", backing_format: "qcow2", ..Qcow2::default() }.bytes());
    let circle = Qcow2 { backing: "circle", backing_format: "qcow2", ..Qcow2::default() };
    assert!(qcow2(circle).contains("the 64th of a chain"));
    for cut in [0, 50, 103, 4000] {
        let bytes = Qcow2 { backing: "guest.img", ..Qcow2::default() }.bytes();
        assert!(host.refusal(Format::Qcow2, &bytes[..cut]).contains("damaged"), "{cut}");
    }
    let vmdk = |text: &str| host.refusal(Format::Vmdk, format!("# Disk DescriptorFile\n{text}").as_bytes());
    assert!(vmdk("parentCID=01234567\n").contains("does not say to which"));
    let parts = "RW 1 FLAT \"guest.img\" 0\n".repeat(257);
    assert!(vmdk(&parts).contains("257 parts"));
    host.put("again", &[&b"KDMV"[..], &[0; 600]].concat());
    assert!(vmdk("RW 1 SPARSE \"again\"\n").contains("has parts again"));
    assert!(vmdk(&" ".repeat(1 << 20)).contains("descriptor is"));
    host.put("short", &[1; 512]);
    let mut whole = Qcow2 { data: Some("short"), ..Qcow2::default() }.bytes();
    whole[24..32].copy_from_slice(&513u64.to_be_bytes());
    whole[88..96].copy_from_slice(&2u64.to_be_bytes());
    assert!(host.refusal(Format::Qcow2, &whole).contains("cut off"));
    assert!(vmdk("RW 2 FLAT \"short\" 0\n").contains("cut off"));
    assert!(vmdk("RW 1 FLAT \"short\" 1\n").contains("cut off"));
    for left_out in ["RW 2 ZERO\n", "RDONLY 1 FLAT \"short\" 0\n", "RW\n1\nVMFSRDM \"short\"\n"] {
        assert!(vmdk(left_out).contains("cannot be read"), "{left_out}");
    }
    assert!(vmdk(&format!("RW 1 FLAT \"{}\" 0\n", "/".repeat(512))).contains("too long"));
    let odd = host.refusal(Format::Vmdk, b"# Disk DescriptorFile\nRW 1 FLAT \"\xff\" 0\n");
    assert!(odd.contains("not valid UTF-8"), "{odd}");
    // QEMU reads on where the header says that the descriptor ends.
    let mut far = [&b"KDMV"[..], &[0; 508]].concat();
    far[28..36].copy_from_slice(&1u64.to_le_bytes());
    far[36..44].copy_from_slice(&20u64.to_le_bytes());
    far.extend(format!("# Disk DescriptorFile\n{}RW 1 FLAT \"../secret\" 0\n", "#\n".repeat(20_000)).bytes());
    assert!(host.refusal(Format::Vmdk, &far).contains("outside the image's folder"));
    let mut vdi = vec![0; 512];
    vdi[376..380].copy_from_slice(&(1u32 << 20).to_le_bytes());
    vdi[388..392].copy_from_slice(&1u32.to_le_bytes());
    assert!(host.refusal(Format::Vdi, &vdi).contains("cut off"));
    let mut fixed = vec![0; 1024];
    fixed[512..520].copy_from_slice(b"conectix");
    fixed[560..568].copy_from_slice(&4096u64.to_be_bytes());
    fixed[572..576].copy_from_slice(&2u32.to_be_bytes());
    assert!(host.refusal(Format::Vpc, &fixed).contains("cut off"));
    let mut differences = vec![0; 512];
    differences[..8].copy_from_slice(b"conectix");
    differences[60..64].copy_from_slice(&4u32.to_be_bytes());
    assert!(host.refusal(Format::Vpc, &differences).contains("only the differences"));
}

#[test]
fn parts_of_a_vmdk_are_found_however_they_are_written() {
    let found = |text: &str| -> Vec<String> {
        vmdk_names(text, true).unwrap().extents.into_iter().map(|part| part.name).collect()
    };
    assert_eq!(found("RW 63 FLAT \"a b.vmdk\" 0\nRW 4 VMFSSPARSE \"c\"\n"), ["a b.vmdk", "c"]);
    assert_eq!(found("RW\n63\r\nFLAT\n\"a\r"), ["a"], "as scanf reads it");
    assert_eq!(found("version=\"1\"\nddb.x = \"lsilogic\"\nRW 1 VMFSSPARSE\"a\""), ["a"]);
    assert_eq!(found("RW +1FLAT \"a\" 0 RW 1 FLAT \"not at a line's beginning\" 0\n"), ["a"]);
    assert_eq!(found("# RW 1 FLAT \"a comment\" 0\nrw 1 FLAT \"no word of QEMU's\" 0\n"), [""; 0]);
    let flat = vmdk_names("RW 3FLAT \"a\"\n5\n", true).unwrap().extents;
    assert_eq!(flat, [Part { name: "a".into(), len: 8 * 512 }]);
    for twice in ["\nRW 1 FLAT \"a\" 0\n", "x\n \n\tRW 1 SPARSE \"a\"\n"] {
        assert!(matches!(vmdk_names(twice, true), Err(Why::Refused(why)) if why.contains("empty line")));
    }
    assert_eq!(vmdk_names("RW 63 SPARSE \"as it was called once\"\n", false).unwrap().extents, []);
}

proptest! {
    #[test]
    fn headers_of_any_bytes_do_no_harm(bytes: Vec<u8>, at in 0usize..200, text: String) {
        let mut cluster = Qcow2 { backing: "b", backing_format: "raw", data: Some("d"), ..Qcow2::default() }.bytes();
        cluster.truncate(512);
        let end = (at + bytes.len()).min(512);
        cluster[at..end].copy_from_slice(&bytes[..end - at]);
        drop(qcow2_names(&cluster));
        drop(qcow2_names(&bytes));
        drop(vmdk_names(&text, true));
    }
}
