//! Prints every definition, to see them.
fn main() {
    for crd in crds::definition::all() {
        println!("{}", serde_saphyr::to_string(&crd).expect("a definition is plain data"));
    }
}
