package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// object is an object of an SPDX 2.3 document (https://spdx.github.io/spdx-spec/v2.3/). Its members are written in the order of their names.
type object map[string]any

// document is a software bill of materials.
type document struct {
	packages, relationships []object
	licenses                map[string]string // of modules
}

const (
	documentID   = "SPDXRef-DOCUMENT"
	ownLicense   = "Apache-2.0"
	notStated    = "NOASSERTION"
	standardName = "stdlib"
)

// bill returns the SPDX document of an archive: its programs, and the modules that the linker recorded in each. They are those that
// `go version -m` prints.
func (r *release) bill(archive string, content files, licenses map[string]string) ([]byte, error) {
	d := document{licenses: licenses}
	whole := sha256.New() // of all programs: two different archives have different namespaces
	for _, name := range programs {
		program := content["bin/"+name].content
		_, _ = whole.Write(program) // never fails
		info, err := buildinfo.Read(content.program(name))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		id := identifier("Program", name)
		d.contain(id, name, r.version, ownLicense, "The Petgate Authors", object{
			"packageFileName": "bin/" + name,
			"checksums":       []object{{"algorithm": "SHA256", "checksumValue": fmt.Sprintf("%x", sha256.Sum256(program))}},
		})
		d.relate(documentID, "DESCRIBES", id)
		d.depend(id, standardName, strings.TrimPrefix(info.GoVersion, "go"))
		for _, module := range info.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			d.depend(id, module.Path, module.Version)
		}
	}
	text, err := json.MarshalIndent(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": documentID, "name": archive,
		"documentNamespace": fmt.Sprintf("https://petgate.example/spdx/%s-%x", archive, whole.Sum(nil)),
		"creationInfo":      object{"created": r.created.Format(time.RFC3339), "creators": []string{"Tool: petgate-dist-" + r.version}},
		"packages":          d.packages, "relationships": d.relationships,
	}, "", "  ")
	return append(text, '\n'), err
}

// contain adds a package: a program or a module. more are members that only some packages have.
func (d *document) contain(id, name, version, license, copyright string, more object) {
	p := object{
		"SPDXID": id, "name": name, "versionInfo": version, "downloadLocation": notStated, "filesAnalyzed": false,
		"licenseConcluded": license, "licenseDeclared": license, "copyrightText": copyright,
	}
	maps.Copy(p, more)
	d.packages = append(d.packages, p)
}

func (d *document) relate(of, how, to string) {
	d.relationships = append(d.relationships, object{"spdxElementId": of, "relationshipType": how, "relatedSpdxElement": to})
}

// depend notes that a program contains a module.
func (d *document) depend(program, module, version string) {
	id := identifier("Module", module+"-"+version)
	if !slices.ContainsFunc(d.packages, func(p object) bool { return p["SPDXID"] == id }) {
		d.contain(id, module, version, cmp.Or(d.licenses[module], notStated), notStated, object{"externalRefs": []object{{
			"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": "pkg:golang/" + module + "@" + version,
		}}})
	}
	d.relate(program, "DEPENDS_ON", id)
}

// notID matches what an SPDX identifier may not have.
var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func identifier(kind, name string) string {
	return "SPDXRef-" + kind + "-" + notID.ReplaceAllString(name, "-")
}
