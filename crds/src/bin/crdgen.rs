//! Writes `crds/generated/*.yaml` from the types in `crds::api`.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
    fs::create_dir_all(&folder)?;
    for definition in crds::definition::all() {
        let path = folder.join(crds::definition::file_name(&definition));
        fs::write(&path, crds::definition::to_yaml(&definition))?;
        println!("{}", path.display());
    }
    Ok(())
}
