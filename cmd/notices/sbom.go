package main

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// product is the name of the whole, and ownLicence its licence.
const (
	product    = "streams-sidecar"
	ownLicence = "Apache-2.0"
)

// components are those of all programs and of the library, each once, by name.
func components(programs []*program, lib *library) []*component {
	var out []*component
	seen := map[string]bool{}
	add := func(list []*component) {
		for _, c := range list {
			if !seen[c.key()] {
				seen[c.key()] = true
				out = append(out, c)
			}
		}
	}
	for _, p := range programs {
		add(p.linked)
	}
	add(lib.parts)
	slices.SortFunc(out, func(a, b *component) int { return cmp.Compare(a.key(), b.key()) })
	return out
}

// writeSBOM gives the document: the product, its three files with their
// checksums, and all components with who needs them.
func writeSBOM(version string, now time.Time, programs []*program, lib *library) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: now.Format(time.RFC3339),
		Component: &cdx.Component{BOMRef: product, Type: cdx.ComponentTypeApplication, Name: product, Version: version, Licenses: licenceOf(ownLicence)},
	}
	var list []cdx.Component
	var needs []cdx.Dependency
	need := func(ref string, on ...string) {
		needs = append(needs, cdx.Dependency{Ref: ref, Dependencies: &on})
	}
	refs := func(components []*component) []string {
		var out []string
		for _, c := range components {
			out = append(out, c.purl)
		}
		return out
	}

	var names []string
	for _, p := range programs {
		names = append(names, p.name)
		list = append(list, file(p.name, version, p.sha256, cdx.ComponentTypeApplication, ownLicence))
	}
	need(product, names...)
	for _, p := range programs {
		on := refs(p.linked)
		if p.name == "sidecar-engine" {
			on = append(on, lib.name)
		}
		need(p.name, on...)
	}
	list = append(list, file(lib.name, lib.parts[0].version, lib.sha256, cdx.ComponentTypeLibrary, lib.parts[0].licence))
	need(lib.name, refs(lib.parts)...)
	for _, c := range components(programs, lib) {
		list = append(list, cdx.Component{BOMRef: c.purl, Type: cdx.ComponentTypeLibrary, Name: c.name, Version: c.version,
			Licenses: licenceOf(c.licence), PackageURL: c.purl, CPE: c.cpe})
	}
	bom.Components, bom.Dependencies = &list, &needs

	var out bytes.Buffer
	if err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func file(name, version, sum string, kind cdx.ComponentType, licence string) cdx.Component {
	return cdx.Component{BOMRef: name, Type: kind, Name: name, Version: version, Licenses: licenceOf(licence),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}}}
}

func licenceOf(expression string) *cdx.Licenses {
	return &cdx.Licenses{{Expression: expression}}
}
