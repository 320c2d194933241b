//! Turns proto/*.proto into Rust, without protoc.
//!
//! Messages that carry a field marked `csi_secret` get no derived `Debug`: this writes one for each, which leaves
//! those fields out. The list comes from the descriptor, so a secret added to the proto is covered by being marked.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost_reflect::{DescriptorPool, ExtensionDescriptor, FieldDescriptor, MessageDescriptor, Value};

const FILES: [&str; 3] = ["csi.proto", "agent.proto", "pluginregistration.proto"];
const SECRET_OPTION: &str = "csi.v1.csi_secret";

/// A message that carries secrets, and those of its fields that may be shown.
struct Secretive {
    message: MessageDescriptor,
    open: Vec<FieldDescriptor>,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build.rs");

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;

    let secretive = secretive_messages(&compiler.descriptor_pool())?;
    let skipped: Vec<String> = secretive.iter().map(|s| format!(".{}", s.message.full_name())).collect();
    tonic_prost_build::configure()
        .generate_default_stubs(true)
        .skip_debug(skipped)
        .compile_fds(compiler.file_descriptor_set())?;

    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    write_debug_impls(&out_dir.join("csi.v1.debug.rs"), &secretive)?;
    Ok(())
}

fn secretive_messages(pool: &DescriptorPool) -> Result<Vec<Secretive>, Box<dyn Error>> {
    let option =
        pool.get_extension_by_name(SECRET_OPTION).ok_or_else(|| format!("proto: no option {SECRET_OPTION}"))?;
    let mut found = Vec::new();
    for message in pool.all_messages() {
        let (secret, open): (Vec<_>, Vec<_>) = message.fields().partition(|field| is_secret(field, &option));
        if secret.is_empty() {
            continue;
        }
        // The Debug written below names Rust fields one by one; a nested message or a oneof is named otherwise.
        if message.parent_message().is_some() || message.oneofs().next().is_some() {
            return Err(format!("proto: {} has a secret, and is nested or has a oneof", message.full_name()).into());
        }
        found.push(Secretive { message, open });
    }
    if found.is_empty() {
        return Err(format!("proto: no field is marked {SECRET_OPTION}").into());
    }
    Ok(found)
}

fn is_secret(field: &FieldDescriptor, option: &ExtensionDescriptor) -> bool {
    field.options().get_extension(option).as_ref() == &Value::Bool(true)
}

fn write_debug_impls(path: &Path, secretive: &[Secretive]) -> Result<(), Box<dyn Error>> {
    let mut code = String::new();
    for Secretive { message, open } in secretive {
        let name = message.name();
        writeln!(code, "impl ::core::fmt::Debug for {name} {{")?;
        writeln!(code, "    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{")?;
        writeln!(code, "        f.debug_struct({name:?})")?;
        for field in open {
            let field = field.name();
            writeln!(code, "            .field({field:?}, &self.{field})")?;
        }
        writeln!(code, "            .finish_non_exhaustive()\n    }}\n}}")?;
    }
    let names: Vec<&str> = secretive.iter().map(|s| s.message.name()).collect();
    writeln!(code, "#[cfg(test)]\npub(in crate::rpc::proto) const MESSAGES_WITH_SECRETS: &[&str] = &{names:?};")?;
    fs::write(path, code)?;
    Ok(())
}
