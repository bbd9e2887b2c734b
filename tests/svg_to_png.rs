//! Redraws the PNGs of the golden screens that have one: `cargo run --release -p xpu-tests --example
//! svg_to_png`. With names it draws these alone, whether or not they have a PNG: `-- steps-132x40 help`.

use std::{env, fs, path::Path, sync::Arc};

use anyhow::{Context as _, Result};
use resvg::{
    tiny_skia::{Pixmap, Transform},
    usvg::{Options, Tree, fontdb::Database},
};

/// Screenshots are viewed on high-density displays.
const SCALE: f32 = 2.0;

fn main() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../screenshots");
    let asked: Vec<_> = env::args().skip(1).collect();
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    fonts.set_monospace_family("DejaVu Sans Mono");
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let is_wanted =
            if asked.is_empty() { path.with_extension("png").exists() } else { asked.contains(&name) };
        if path.extension().is_some_and(|extension| extension == "svg") && is_wanted {
            draw(&path, &options).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn draw(path: &Path, options: &Options) -> Result<()> {
    let tree = Tree::from_str(&fs::read_to_string(path)?, options)?;
    let size = tree.size().to_int_size().scale_by(SCALE).context("too large")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).context("too large")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    let png = path.with_extension("png");
    pixels.save_png(&png)?;
    println!("{}", png.file_name().unwrap_or_default().to_string_lossy());
    Ok(())
}
