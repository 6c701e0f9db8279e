//! Compiles the `.proto` files without needing `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["backup", "restore", "queue"].map(|name| format!("proto/holdfast/v1/{name}.proto"));
    for file in &files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(&files, ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
