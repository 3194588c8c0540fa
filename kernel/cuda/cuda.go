// Package cuda holds the CUDA C++ sources of the GPU kernels, one file an operation, and under the tag gpu their
// compiled form. scripts/kernels.py compiles them; each file's header states its contract. What kernels there are and
// for which element types they are compiled is read from the sources.
package cuda

import (
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed *.cu
var sources embed.FS

// Source is what the text of a source file says.
type Source struct {
	Entries []string // its kernels
	// the element types that it is compiled for (what elem.cuh calls elem); nil where its kernels use none
	Elements []string
}

var (
	mu    sync.Mutex
	known = map[string]Source{}
)

// SourceOf reads a source file by its stem.
func SourceOf(stem string) (Source, error) {
	mu.Lock()
	defer mu.Unlock()
	if s, ok := known[stem]; ok {
		return s, nil
	}
	b, err := sources.ReadFile(stem + ".cu")
	if err != nil {
		return Source{}, fmt.Errorf("kernels of %s.cu: there is no such source", stem)
	}
	s := Source{entriesIn(string(b)), elementsIn(string(b))}
	known[stem] = s
	return s, nil
}

// Has tells whether a source has a kernel.
func Has(stem, entry string) bool {
	s, err := SourceOf(stem)
	return err == nil && slices.Contains(s.Entries, entry)
}

// Form returns the name of the compiled form of a source for an element type, or an error naming the types it has.
func Form(stem, elem string) (string, error) {
	s, err := SourceOf(stem)
	switch {
	case err != nil:
		return "", err
	case s.Elements == nil || elem == "bf16" && slices.Contains(s.Elements, elem):
		return stem, nil
	case slices.Contains(s.Elements, elem):
		return stem + "_" + elem, nil
	}
	return "", fmt.Errorf("kernels of %s.cu: there is no form for %s, only for %s", stem, elem,
		strings.Join(s.Elements, " and "))
}

// elementsIn reads the header's line "// Elements: bf16, f16, f32.", which scripts/kernels.py reads too.
func elementsIn(text string) []string {
	header, _, _ := strings.Cut(text, "#include")
	m := regexp.MustCompile(`(?m)^// Elements: (.*)\.$`).FindStringSubmatch(header)
	if m == nil {
		return nil
	}
	return strings.Split(m[1], ", ")
}

// entriesIn finds the kernels of a source: those written out, and those of macros that make one for each size or
// layout, whose first argument ends the name.
func entriesIn(text string) []string {
	text = strings.ReplaceAll(text, "\\\n", " ")
	kernel := regexp.MustCompile(`extern "C" __global__ void (?:__launch_bounds__\((?:[^()]|\([^()]*\))*\) )?` +
		`(?:CLUSTERED )?(\w+(?:##\w+)?)\(`)
	macro := regexp.MustCompile(`(?m)^#define (\w+)\((\w+)[^)]*\)(.*)$`)
	var names []string
	for _, m := range macro.FindAllStringSubmatch(text, -1) {
		for _, use := range regexp.MustCompile(`(?m)^`+m[1]+`\((\w+)`).FindAllStringSubmatch(text, -1) {
			for _, k := range kernel.FindAllStringSubmatch(m[3], -1) {
				names = append(names, strings.TrimSuffix(k[1], "##"+m[2])+use[1])
			}
		}
	}
	for _, k := range kernel.FindAllStringSubmatch(macro.ReplaceAllString(text, ""), -1) {
		names = append(names, k[1])
	}
	return names
}
