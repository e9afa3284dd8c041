//! Prints the import graph of each given crate: files, imports, and each cycle with its imports.

fn main() -> Result<(), String> {
    for directory in std::env::args().skip(1) {
        let graph = coppice_source::read(directory.as_ref())?;
        let cycles = graph.cycles();
        let sizes: Vec<String> = cycles.iter().map(|cycle| cycle.len().to_string()).collect();
        let sizes = if sizes.is_empty() { "none".to_owned() } else { sizes.join(", ") };
        println!("{directory}: {} files, {} imports, cycles of {sizes} files", graph.files.len(), graph.imports.len());
        for cycle in cycles {
            println!("  {}", cycle.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" "));
            for ((from, to), name) in
                graph.imports.iter().filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to))
            {
                println!("    {} imports {name} of {}", from.display(), to.display());
            }
        }
    }
    Ok(())
}
