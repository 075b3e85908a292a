package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
)

// object is an object of an SPDX 2.3 document (https://spdx.github.io/spdx-spec/v2.3/). Its members
// are written in the order of their names.
type object map[string]any

const (
	documentID   = "SPDXRef-DOCUMENT"
	productID    = "SPDXRef-Petgate"
	ownLicense   = "Apache-2.0"
	notStated    = "NOASSERTION"
	standardName = "stdlib"
)

// bill returns the software bill of materials of an archive: the product and the modules that its
// programs are made of.
func (r *release) bill(archive string, sum string, modules map[string]module) ([]byte, error) {
	product := object{
		"SPDXID": productID, "name": "petgate", "versionInfo": r.version, "downloadLocation": notStated,
		"filesAnalyzed":    false,
		"licenseConcluded": ownLicense, "licenseDeclared": ownLicense, "copyrightText": "The Petgate Authors",
		"packageFileName": archive + ".tar.gz",
		"checksums":       []object{{"algorithm": "SHA256", "checksumValue": sum}},
	}
	packages, relationships := []object{product}, []object{relation(documentID, "DESCRIBES", productID)}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		id := "SPDXRef-Module-" + notID.ReplaceAllString(path, "-")
		packages = append(packages, object{
			"SPDXID": id, "name": path, "versionInfo": m.version, "downloadLocation": notStated, "filesAnalyzed": false,
			"licenseConcluded": m.license, "licenseDeclared": m.license, "copyrightText": notStated,
			"externalRefs": []object{
				{
					"referenceCategory": "PACKAGE-MANAGER",
					"referenceType":     "purl",
					"referenceLocator":  "pkg:golang/" + path + "@" + m.version,
				},
			},
		})
		relationships = append(relationships, relation(productID, "DEPENDS_ON", id))
	}
	text, err := json.MarshalIndent(object{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": documentID, "name": archive,
		"documentNamespace": fmt.Sprintf("https://petgate.example/spdx/%s-%s", archive, sum),
		"creationInfo": object{
			"created":  r.created.Format(time.RFC3339),
			"creators": []string{"Tool: petgate-dist-" + r.version},
		},
		"packages": packages, "relationships": relationships,
	}, "", "  ")
	return append(text, '\n'), err
}

func relation(of, how, to string) object {
	return object{"spdxElementId": of, "relationshipType": how, "relatedSpdxElement": to}
}

// notID matches what an SPDX identifier may not have.
var notID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)
