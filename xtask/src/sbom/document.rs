//! A document of SPDX 2.3: packages, and what contains what. Pure; gives out JSON, with each package and each
//! relation on a line.

use std::fmt;

/// A package of the document. Texts that are empty are left out.
pub struct Package<'a> {
    /// Unique in the document.
    pub id: String,
    pub name: &'a str,
    pub version: &'a str,
    pub licence: &'a str,
    /// SHA-256, in hexadecimal.
    pub checksum: &'a str,
    /// A package URL.
    pub locator: String,
    /// The source package that it was built from.
    pub source: &'a str,
}

pub struct Document {
    version: String,
    revision: String,
    created: String,
    packages: Vec<String>,
    relations: Vec<String>,
}

impl Document {
    /// A document about the image of that version, which contains nothing yet.
    pub fn new(version: &str, revision: &str, created: &str) -> Self {
        let mut document = Self {
            version: version.to_owned(),
            revision: revision.to_owned(),
            created: created.to_owned(),
            packages: Vec::new(),
            relations: Vec::new(),
        };
        let image = Package {
            id: "image".to_owned(),
            name: "localpool.dev/localpool",
            version,
            licence: "NOASSERTION",
            checksum: "",
            locator: String::new(),
            source: "",
        };
        document.add("DOCUMENT", "DESCRIBES", image);
        document
    }

    /// Adds a package, and how another one of that id relates to it.
    pub fn add(&mut self, of: &str, relation: &str, package: Package<'_>) {
        self.relations.push(format!(
            "    {{\"spdxElementId\": {}, \"relationshipType\": {}, \"relatedSpdxElement\": {}}}",
            quoted(&reference(of)),
            quoted(relation),
            quoted(&reference(&package.id)),
        ));
        self.packages.push(package.json());
    }
}

impl Package<'_> {
    fn json(&self) -> String {
        let Self { id, name, version, licence, checksum, locator, source } = self;
        let mut line = format!(
            "    {{\"SPDXID\": {}, \"name\": {}, \"versionInfo\": {}, \"downloadLocation\": \"NOASSERTION\", \
             \"filesAnalyzed\": false, \"copyrightText\": \"NOASSERTION\", \"licenseConcluded\": \"NOASSERTION\", \
             \"licenseDeclared\": {}",
            quoted(&reference(id)),
            quoted(name),
            quoted(version),
            quoted(licence),
        );
        if !checksum.is_empty() {
            let checksum = quoted(checksum);
            line += &format!(", \"checksums\": [{{\"algorithm\": \"SHA256\", \"checksumValue\": {checksum}}}]");
        }
        if !source.is_empty() {
            line += &format!(", \"sourceInfo\": {}", quoted(&format!("built from the source package {source}")));
        }
        if !locator.is_empty() {
            line += &format!(
                ", \"externalRefs\": [{{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \
                 \"referenceLocator\": {}}}]",
                quoted(locator)
            );
        }
        line + "}"
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, revision, created, packages, relations } = self;
        writeln!(f, "{{\n  \"spdxVersion\": \"SPDX-2.3\",\n  \"dataLicense\": \"CC0-1.0\",")?;
        writeln!(f, "  \"SPDXID\": \"SPDXRef-DOCUMENT\",\n  \"name\": {},", quoted(&format!("localpool-{version}")))?;
        let space = format!("https://localpool.dev/spdx/{version}/{revision}");
        writeln!(f, "  \"documentNamespace\": {},", quoted(&space))?;
        let created = quoted(created);
        let creators = "[\"Tool: localpool-scripts-sbom\"]";
        writeln!(f, "  \"creationInfo\": {{\"created\": {created}, \"creators\": {creators}}},")?;
        writeln!(f, "  \"packages\": [\n{}\n  ],", packages.join(",\n"))?;
        writeln!(f, "  \"relationships\": [\n{}\n  ]\n}}", relations.join(",\n"))
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Identifiers have letters, digits, dots and hyphens.
fn reference(id: &str) -> String {
    let id = id.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' });
    format!("SPDXRef-{}", id.collect::<String>())
}

/// A part of a package URL.
pub fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('+', "%2B").replace(':', "%3A").replace('~', "%7E")
}
