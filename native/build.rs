//! Tells the crate which compiler, profile and target built it.

use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "unknown".to_owned(), |text| text.trim().to_owned());
    println!("cargo::rustc-env=CEPHEID_RUSTC={version}");
    for name in ["PROFILE", "TARGET"] {
        let value = env::var(name).unwrap_or_else(|_| "unknown".into());
        println!("cargo::rustc-env=CEPHEID_{name}={value}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
