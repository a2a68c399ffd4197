# A Rust workspace, built and run where it is built: a library, a procedural macro, a build script, and a program that uses
# all three. Cargo goes by times, so it also tells whether they are right after changes and after a remount.

run_rust() {
  open_pool
  local home=$mounted/rust number compiled
  mkdir "$home"
  rust_workspace "$home" "$(dose 10 100)"
  rust_cargo "$home" build
  same 'rust: the program' 'made by a macro, 1 build script, sum 55' "$("$home/target/debug/program")"
  rust_cargo "$home" test
  rust_cargo "$home" build
  same 'rust: built again without a change' '' "$compiled"
  cp -a "$home/target/debug/program" "$home/copy"
  same 'rust: a copy of the program' 'made by a macro, 1 build script, sum 55' "$("$home/copy")"
  sed -i 's/sum/total/' "$home/program/src/main.rs"
  rust_cargo "$home" build
  same 'rust: what a change leads to' 'program' "$compiled"
  same 'rust: the changed program' 'made by a macro, 1 build script, total 55' "$("$home/target/debug/program")"
  touch "$home/library/src/lib.rs"
  rust_cargo "$home" build
  same 'rust: what a new time leads to' 'library program' "$compiled"
  # A program that runs is not written to.
  "$home/copy" wait >/dev/null &
  number=$!
  while [ "$(readlink "/proc/$number/exe")" != "$home/copy" ]; do sleep 0.02; done
  (: >>"$home/copy") 2>/dev/null && finding 'rust: a running program was opened for writing'
  rm "$home/copy"
  kill -0 "$number" 2>/dev/null || finding 'rust: a program without a name has ended'
  kill "$number"
  wait "$number" 2>/dev/null || true

  reopen_pool
  rust_cargo "$home" build
  same 'rust: built again after a remount' '' "$compiled"
  same 'rust: the program after a remount' 'made by a macro, 1 build script, total 55' "$("$home/target/debug/program")"
  close_pool
}

# Runs cargo, and leaves in $compiled which crates it compiled.
rust_cargo() {
  local home=$1
  shift
  (cd "$home" && env -u CARGO_TARGET_DIR -u RUSTFLAGS CARGO_INCREMENTAL=1 cargo "$@" --offline) >"$LOGS/cargo.log" 2>&1 ||
    finding "cargo $*: $(tail -5 "$LOGS/cargo.log")"
  compiled=$(sed -n 's/^ *Compiling \([a-z]*\) .*/\1/p' "$LOGS/cargo.log" | sort | xargs)
}

# A workspace whose library has so many modules.
rust_workspace() {
  local home=$1 modules=$2 crate module
  printf '[workspace]\nresolver = "3"\nmembers = ["library", "macros", "program"]\n' >"$home/Cargo.toml"
  for crate in library macros program; do
    mkdir -p "$home/$crate/src"
    printf '[package]\nname = "%s"\nversion = "0.1.0"\nedition = "2024"\n' "$crate" >"$home/$crate/Cargo.toml"
  done
  printf '[lib]\nproc-macro = true\n' >>"$home/macros/Cargo.toml"
  printf '[dependencies]\nlibrary = { path = "../library" }\nmacros = { path = "../macros" }\n' >>"$home/program/Cargo.toml"
  for module in $(seq "$modules"); do
    echo "pub mod part_$module;" >>"$home/library/src/lib.rs"
    echo "pub fn number() -> u64 { if $module <= 10 { $module } else { 0 } }" >"$home/library/src/part_$module.rs"
  done
  {
    printf 'pub fn sum() -> u64 { [%s].iter().sum() }\n' "$(seq -f 'part_%.0f::number()' -s, "$modules")"
    echo '#[test] fn adds_up() { assert_eq!(sum(), 55); }'
  } >>"$home/library/src/lib.rs"
  cat >"$home/macros/src/lib.rs" <<-'RUST'
	use proc_macro::TokenStream;
	#[proc_macro]
	pub fn text(_: TokenStream) -> TokenStream { "\"made by a macro\"".parse().unwrap() }
	RUST
  cat >"$home/program/build.rs" <<-'RUST'
	fn main() {
	    println!("cargo::rerun-if-changed=build.rs");
	    let made = std::path::Path::new(&std::env::var_os("OUT_DIR").unwrap()).join("made.rs");
	    std::fs::write(made, "const SCRIPTS: u64 = 1;").unwrap();
	}
	RUST
  cat >"$home/program/src/main.rs" <<-'RUST'
	include!(concat!(env!("OUT_DIR"), "/made.rs"));
	fn main() {
	    println!("{}, {SCRIPTS} build script, sum {}", macros::text!(), library::sum());
	    if std::env::args().nth(1).is_some() {
	        std::thread::sleep(std::time::Duration::from_secs(600));
	    }
	}
	RUST
}
