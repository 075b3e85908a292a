package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// document is a software bill of materials in SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/).
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	Name          string     `json:"name"`
	ID            string     `json:"SPDXID"`
	Version       string     `json:"versionInfo"`
	FileName      string     `json:"packageFileName,omitempty"`
	Location      string     `json:"downloadLocation"`
	FilesAnalyzed bool       `json:"filesAnalyzed"`
	License       string     `json:"licenseConcluded"`
	Declared      string     `json:"licenseDeclared"`
	Copyright     string     `json:"copyrightText"`
	Checksums     []checksum `json:"checksums,omitempty"`
	Refs          []ref      `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Of   string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	documentID   = "SPDXRef-DOCUMENT"
	ownLicense   = "Apache-2.0"
	notStated    = "NOASSERTION"
	standardName = "stdlib"
)

// bill returns the SPDX document of an archive: its programs, and the modules that the linker recorded in each. They are those that
// `go version -m` prints.
func (r *release) bill(archive string, content files) ([]byte, error) {
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: archive,
		Creation: creation{r.created.Format(time.RFC3339), []string{"Tool: petgate-dist-" + r.version}},
	}
	whole := sha256.New() // of all programs: two different archives have different namespaces
	for _, name := range programs {
		program := content["bin/"+name].content
		_, _ = whole.Write(program) // never fails
		info, err := buildinfo.Read(content.program(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		id := identifier("Program", name)
		d.Packages = append(d.Packages, spdxPackage{
			Name: name, ID: id, Version: r.version, FileName: "bin/" + name, Location: notStated, License: ownLicense,
			Declared: ownLicense, Copyright: "The Petgate Authors",
			Checksums: []checksum{{"SHA256", fmt.Sprintf("%x", sha256.Sum256(program))}},
		})
		d.Relationships = append(d.Relationships, relationship{documentID, "DESCRIBES", id})
		d.depend(id, standardName, strings.TrimPrefix(info.GoVersion, "go"))
		for _, module := range info.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			d.depend(id, module.Path, module.Version)
		}
	}
	d.Namespace = fmt.Sprintf("https://petgate.example/spdx/%s-%x", archive, whole.Sum(nil))
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// depend notes that a program contains a module.
func (d *document) depend(program, module, version string) {
	id := identifier("Module", module+"-"+version)
	if !slices.ContainsFunc(d.Packages, func(p spdxPackage) bool { return p.ID == id }) {
		d.Packages = append(d.Packages, spdxPackage{
			Name: module, ID: id, Version: version, Location: notStated, License: notStated, Declared: notStated, Copyright: notStated,
			Refs: []ref{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + module + "@" + version}},
		})
	}
	d.Relationships = append(d.Relationships, relationship{program, "DEPENDS_ON", id})
}

// notID matches what an SPDX identifier may not have.
var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func identifier(kind, name string) string {
	return "SPDXRef-" + kind + "-" + notID.ReplaceAllString(name, "-")
}
