//! Printer of Candid: types in the order of their use, and comments.

use crate::methods::Method;
use crate::sources::{Content, Field, Types};
use anyhow::{Context, bail};
use std::collections::BTreeSet;
use std::fmt::Write;
use syn::{GenericArgument, PathArguments, Type};

/// Most characters of a line.
const WIDTH: usize = 130;
/// Words of Candid, which as names stand in quotes.
const KEYWORDS: [&str; 9] = ["principal", "text", "blob", "record", "variant", "service", "func", "query", "type"];

/// Titles of the areas in which methods are declared.
const TITLES: [(&str, &str); 8] = [
    ("blocks", "Blocks"),
    ("export", "Export"),
    ("utxo", "UTXO records"),
    ("records", "Pruning of UTXO records"),
    ("deletion", "Deletion of external blobs"),
    ("prune", "Pruning of blocks"),
    ("operation", "Settings, roles, health"),
    ("http", "HTTP"),
];

/// Names of records with a parameter, by the argument for which each stands.
const INSTANCES: [(&str, &str); 2] =
    [("BySegment < ByteBuf >", "SegmentDigests"), ("BySegment < u64 >", "SegmentLengths")];

/// Writes the types that the methods of a file use, each once.
pub struct Printer<'a> {
    types: &'a Types,
    printed: BTreeSet<String>,
    out: String,
}

impl<'a> Printer<'a> {
    /// Returns a printer that has printed nothing.
    pub fn new(types: &'a Types) -> Self {
        Self { types, printed: BTreeSet::new(), out: String::new() }
    }

    /// Returns a file: head, service, types. `argument` names the type of the argument of installation.
    ///
    /// # Errors
    /// A type has a shape that Candid does not have.
    pub fn file(mut self, head: &str, methods: &[&Method], argument: Option<&str>) -> anyhow::Result<String> {
        let mut service = String::new();
        let mut types = String::new();
        let mut area = "";
        for method in methods {
            if method.area != area {
                area = method.area;
                let title = TITLES.iter().find(|(name, _)| *name == area).context(area)?.1;
                write!(service, "\n  // ==== {title} ====\n\n")?;
                write!(types, "\n// ==== {title} ====\n\n")?;
            }
            let line = self.method(method).with_context(|| method.name.to_string())?;
            service += &comment(&method.comment, "  ");
            service += &line;
            types += &std::mem::take(&mut self.out);
        }
        if let Some(argument) = argument {
            types += "\n// ==== Installation ====\n\n";
            self.named(argument)?;
            types += &std::mem::take(&mut self.out);
        }
        let mut text = String::new();
        for paragraph in head.split("\n\n") {
            text += &comment(paragraph, "");
            text += "//\n";
        }
        let text = text.trim_end_matches("//\n");
        let argument = argument.map(|argument| format!("(arg : opt {argument}) -> ")).unwrap_or_default();
        Ok(format!(
            "{text}\n// The methods.\ntype Coppice = service {{{}}};\n{types}\nservice : {argument}Coppice\n",
            service.trim_end_matches('\n').to_string() + "\n",
        ))
    }

    /// Returns the line of a method, and prints the types that the method uses.
    fn method(&mut self, method: &Method) -> anyhow::Result<String> {
        let mut args = Vec::new();
        for (name, of) in &method.args {
            args.push(format!("{} : {}", quoted(name), self.candid(of)?));
        }
        let answer = self.answer(method)?;
        let kind = if method.is_query { " query" } else { "" };
        Ok(format!("  {} : ({}) -> ({answer}){kind};\n", method.name, args.join(", ")))
    }

    /// Returns the answer of a method: a result is named after the method, as Candid has no generic types.
    fn answer(&mut self, method: &Method) -> anyhow::Result<String> {
        let camel = camel(method.name);
        if let Some(item) = argument_of(&method.answer, "Batch") {
            let name = format!("{camel}BatchResult");
            let batch = self.types.get("Batch").context("Batch")?;
            let Content::Record(fields) = &batch.content else { bail!("Batch is a record") };
            let item_name = format!("{camel}Result");
            let about = format!("The answer of `{}`. {}", method.name, batch.comment);
            self.out += &comment(&about, "");
            writeln!(self.out, "type {name} = record {{")?;
            for field in fields {
                self.out += &comment(&field.comment, "  ");
                let content = if field.name == "results" { format!("vec {item_name}") } else { "nat32".into() };
                writeln!(self.out, "  {} : {content};", field.name)?;
            }
            self.out += "};\n";
            let of = arguments(item, "Result").context("an item is a result")?;
            let [answer, error] = of[..] else { bail!("a result has two arguments") };
            self.result(&item_name, &format!("The answer of an item of `{}`.", method.name), answer, error)?;
            return Ok(name);
        }
        if let Some(error) = &method.error {
            let name = format!("{camel}Result");
            self.result(&name, &format!("The answer of `{}`.", method.name), &method.answer, error)?;
            return Ok(name);
        }
        if matches!(&method.answer, Type::Tuple(unit) if unit.elems.is_empty()) {
            return Ok(String::new());
        }
        self.candid(&method.answer)
    }

    /// Prints a result under a name, and then the types that it uses.
    fn result(&mut self, name: &str, about: &str, answer: &Type, error: &Type) -> anyhow::Result<()> {
        let (before, mut used) = (std::mem::take(&mut self.out), String::new());
        let ok = match answer {
            Type::Tuple(unit) if unit.elems.is_empty() => "Ok".to_string(),
            answer => format!("Ok : {}", self.candid(answer)?),
        };
        used += &std::mem::take(&mut self.out);
        let error = self.candid(error)?;
        used += &std::mem::take(&mut self.out);
        self.out =
            before + &comment(about, "") + &format!("type {name} = variant {{ {ok}; Err : {error} }};\n") + &used;
        Ok(())
    }

    /// Returns a type as Candid, and prints the types that it names.
    fn candid(&mut self, of: &Type) -> anyhow::Result<String> {
        if let Type::Tuple(tuple) = of {
            let items = tuple.elems.iter().map(|item| self.candid(item)).collect::<anyhow::Result<Vec<_>>>()?;
            return Ok(format!("record {{ {} }}", items.join("; ")));
        }
        let text = quote::quote!(#of).to_string();
        if let Some((_, name)) = INSTANCES.iter().find(|(instance, _)| *instance == text) {
            self.instance(name, of)?;
            return Ok((*name).into());
        }
        if let Some(of) = argument_of(of, "Option") {
            return Ok(format!("opt {}", self.candid(of)?));
        }
        if let Some(of) = argument_of(of, "Vec") {
            return Ok(format!("vec {}", self.candid(of)?));
        }
        if let Some(of) = argument_of(of, "Box") {
            return self.candid(of);
        }
        Ok(match text.as_str() {
            "u8" => "nat8",
            "u16" => "nat16",
            "u32" => "nat32",
            "u64" => "nat64",
            "u128" => "nat",
            "f64" => "float64",
            "bool" => "bool",
            "String" => "text",
            "Principal" => "principal",
            "ByteBuf" => "blob",
            name => return self.named(name),
        }
        .into())
    }

    /// Prints a declared type, unless it is printed already, and returns its name; a type that is another one, as a hash is a blob, has
    /// no name in Candid.
    fn named(&mut self, name: &str) -> anyhow::Result<String> {
        let types = self.types;
        let declared = types.get(name).with_context(|| format!("{name} is not declared"))?;
        match &declared.content {
            Content::Type(of) => return self.candid(of),
            Content::Nothing => return Ok("null".into()),
            Content::Record(_) | Content::Variant(_) => {}
        }
        if self.printed.insert(name.into()) {
            self.declare(name, &declared.comment, &declared.content)?;
        }
        Ok(name.into())
    }

    /// Prints a record with a parameter, under the name of an instance.
    fn instance(&mut self, name: &str, of: &Type) -> anyhow::Result<()> {
        if !self.printed.insert(name.into()) {
            return Ok(());
        }
        let types = self.types;
        let argument = argument_of(of, "BySegment").context("BySegment")?;
        let declared = types.get("BySegment").context("BySegment")?;
        let Content::Record(fields) = &declared.content else { bail!("BySegment is a record") };
        let about =
            if name == "SegmentDigests" { "The SHA-256 of each segment." } else { "The bytes of each segment." };
        let field = |field: &Field| Field {
            name: field.name.clone(),
            comment: field.comment.clone(),
            content: Content::Type(argument.clone()),
        };
        self.declare(name, about, &Content::Record(fields.iter().map(field).collect()))
    }

    /// Prints a type, and then the types that it uses.
    fn declare(&mut self, name: &str, about: &str, content: &Content) -> anyhow::Result<()> {
        let before = std::mem::take(&mut self.out);
        let body = self.content(content, "")?;
        let used = std::mem::replace(&mut self.out, before);
        self.out += &comment(about, "");
        writeln!(self.out, "type {name} = {body};")?;
        self.out += &used;
        Ok(())
    }

    fn content(&mut self, content: &Content, indent: &str) -> anyhow::Result<String> {
        let (word, fields) = match content {
            Content::Nothing => return Ok(String::new()),
            Content::Type(of) => return self.candid(of),
            Content::Record(fields) => ("record", fields),
            Content::Variant(fields) => ("variant", fields),
        };
        let inner = format!("{indent}  ");
        let mut text = format!("{word} {{\n");
        for field in fields {
            text += &comment(&field.comment, &inner);
            text += &format!("{inner}{}", quoted(&field.name));
            if !matches!(field.content, Content::Nothing) {
                text += &format!(" : {}", self.content(&field.content, &inner)?);
            }
            text += ";\n";
        }
        Ok(text + indent + "}")
    }
}

/// Returns a name as Candid writes it.
fn quoted(name: &str) -> String {
    if KEYWORDS.contains(&name) { format!("\"{name}\"") } else { name.into() }
}

/// Returns `AppendBlock` for `append_block`.
pub fn camel(method: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    method.split('_').map(word).collect()
}

/// Returns the arguments of a generic type of this name.
fn arguments<'t>(of: &'t Type, name: &str) -> Option<Vec<&'t Type>> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    let of = |argument: &'t GenericArgument| match argument {
        GenericArgument::Type(of) => Some(of),
        _ => None,
    };
    arguments.args.iter().map(of).collect()
}

/// Returns the only argument of a generic type of this name.
fn argument_of<'t>(of: &'t Type, name: &str) -> Option<&'t Type> {
    arguments(of, name)?.first().copied()
}

/// Returns a comment in lines of at most [`WIDTH`] characters.
fn comment(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = format!("{indent}//");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &line;
            lines.push('\n');
            line = format!("{indent}//");
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}
