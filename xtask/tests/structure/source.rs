//! The workspace's source as modules: one a file, with the paths its code names. Test items are skipped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// A path as code names it: `["crate", "ingest", "commit"]`.
pub(crate) type Names = Vec<String>;

/// One module: a file, or the inline modules of one counted with it.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// The path of its file below the workspace.
    pub(crate) file: PathBuf,
    /// Every path its code names, with the module that names it (inline modules add to it).
    pub(crate) named: Vec<Names>,
    /// Its re-exports: the name, and the path it stands for.
    pub(crate) reexports: Vec<(String, Names)>,
}

/// The modules of one crate by path; the empty path is `lib.rs` or `main.rs`.
pub(crate) type Modules = BTreeMap<Vec<String>, Module>;

/// The workspace's folder.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Every module below `folder` (a crate's `src`) that is compiled outside tests.
pub(crate) fn modules(folder: &Path) -> Modules {
    let mut found = Modules::new();
    let root = ["lib.rs", "main.rs"].map(|name| folder.join(name)).into_iter().find(|path| path.exists());
    add(&root.unwrap_or_else(|| panic!("no crate root in {}", folder.display())), folder, &[], &mut found);
    found
}

/// Adds the module in `file`, whose children are below `folder`.
fn add(file: &Path, folder: &Path, path: &[String], found: &mut Modules) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut reader =
        Reader { path: path.to_vec(), depth: 0, module: Module::default(), children: Vec::new() };
    reader.module.file = file.strip_prefix(workspace()).unwrap().to_owned();
    reader.items(&parsed.items);
    let children = std::mem::take(&mut reader.children);
    found.insert(path.to_vec(), reader.module);
    for child in children {
        let below = folder.join(&child);
        let beside = folder.join(format!("{child}.rs"));
        let own = if beside.exists() { beside } else { below.join("mod.rs") };
        let mut child_path = path.to_vec();
        child_path.push(child);
        add(&own, &below, &child_path, found);
    }
}

/// Returns true if an item exists only for tests: `#[cfg(test)]`, or a module behind the feature `testing`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let text = attribute.meta.require_list().unwrap().tokens.to_string();
        text == "test" || text.contains("feature = \"testing\"") && !text.contains("not")
    }) || attributes.iter().any(|attribute| attribute.path().is_ident("test"))
}

struct Reader {
    path: Vec<String>,
    /// Depth of the inline modules entered.
    depth: usize,
    module: Module,
    children: Vec<String>,
}

impl Reader {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            if is_for_tests(attributes_of(item)) {
                continue;
            }
            match item {
                Item::Mod(module) => match &module.content {
                    None => self.children.push(module.ident.to_string()),
                    Some((_, inner)) => {
                        self.depth += 1;
                        self.items(inner);
                        self.depth -= 1;
                    }
                },
                Item::Use(item) => {
                    let handed_on = !matches!(item.vis, Visibility::Inherited);
                    self.uses(&item.tree, &mut Vec::new(), handed_on);
                }
                other => self.visit_item(other),
            }
        }
    }

    fn uses(&mut self, tree: &UseTree, prefix: &mut Names, handed_on: bool) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.uses(&path.tree, prefix, handed_on);
                prefix.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.uses(tree, prefix, handed_on)),
            UseTree::Name(name) => self.used(prefix, &name.ident.to_string(), None, handed_on),
            UseTree::Rename(name) => {
                self.used(prefix, &name.ident.to_string(), Some(name.rename.to_string()), handed_on);
            }
            UseTree::Glob(_) => self.used(prefix, "*", None, handed_on),
        }
    }

    fn used(&mut self, prefix: &[String], name: &str, renamed: Option<String>, handed_on: bool) {
        let mut path = prefix.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        let absolute = self.absolute(path);
        let alias = renamed.unwrap_or_else(|| absolute.last().cloned().unwrap_or_default());
        if handed_on && self.depth == 0 {
            self.module.reexports.push((alias, absolute));
        } else {
            self.module.named.push(absolute);
        }
    }

    /// Makes `super` and `self` absolute; other paths are unchanged.
    fn absolute(&self, mut path: Names) -> Names {
        let relative = path.first().is_some_and(|first| first == "super" || first == "self");
        if !relative {
            return path;
        }
        let mut base = self.path.clone();
        let mut inline = self.depth;
        while path.first().is_some_and(|first| first == "super" || first == "self") {
            if path.remove(0) == "super" {
                if inline > 0 {
                    inline -= 1;
                } else {
                    base.pop();
                }
            }
        }
        let mut full = vec!["crate".to_owned()];
        full.extend(base);
        full.extend(path);
        full
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Names = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.name(std::mem::take(&mut path));
                    }
                    colons = 0;
                    path.push(ident.to_string());
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.name(std::mem::take(&mut path));
                    colons = 0;
                    self.tokens(group.stream());
                }
                _ => {
                    self.name(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.name(path);
    }

    fn name(&mut self, path: Names) {
        if path.len() > 1 {
            let absolute = self.absolute(path);
            self.module.named.push(absolute);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[Attribute] = match item {
            syn::ImplItem::Fn(function) => &function.attrs,
            syn::ImplItem::Const(constant) => &constant.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.uses(&item.tree, &mut Vec::new(), false);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}
