//! Says how mimalloc was built: `.cargo/config.toml` asks for blocks of any number of words up to eight, which a CFLAGS of one's own
//! takes away. `alloc::good_size` has to know.

fn main() {
    println!("cargo:rerun-if-env-changed=CFLAGS");
    println!("cargo:rustc-check-cfg=cfg(blocks_of_two_words)");
    let flags = std::env::var("CFLAGS").unwrap_or_default();
    if !flags.contains("-DMI_MAX_ALIGN_SIZE=8") {
        println!("cargo:rustc-cfg=blocks_of_two_words");
    }
}
