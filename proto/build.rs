//! Compiles `protos/` without `protoc`.

use std::error::Error;

const FILES: [&str; 3] =
    ["protos/deviceplugin.proto", "protos/podresources.proto", "protos/pluginregistration.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["protos"])?;
    // BTreeMaps, so that equal messages are equal bytes.
    tonic_prost_build::configure().build_transport(false).btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
