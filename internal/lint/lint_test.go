// Package lint holds the rules of the house as tests: who may import whom, how long a file may be, what the
// documents say of the tree.
package lint

import (
	"bufio"
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

const module = "github.com/tierlora/tierlora/"

// imports is who may import whom among our own packages. A key that ends in /* covers its subfolders. Test
// files are free.
var imports = map[string][]string{
	"quant":         {},
	"model/weights": {"internal/atomicfile", "internal/jsonerr", "internal/regular", "internal/rescue"},
	"model/hub":     {"internal/words", "internal/atomicfile", "internal/jsonerr", "internal/regular", "model/weights", "internal/safetext", "internal/rescue"},
	"text/tokenizer": {"internal/atomicfile", "internal/jsonedit", "internal/jsonerr", "internal/keys",
		"internal/regular"},
	"kernel/gemm":       {"kernel/simd", "internal/rescue"},
	"kernel/simd":       {},
	"kernel/cuda":       {},
	"kernel/gpu":        {"kernel/gpu/*", "kernel/cuda", "internal/rescue"},
	"kernel/gpu/*":      {},
	"kernel":            {"quant", "kernel/gemm", "kernel/simd", "kernel/gpu", "kernel/cuda"},
	"kernel/kerneltest": {"kernel"},
	"graph":             {"kernel", "kernel/gpu", "internal/cgroup", "internal/rescue"},
	"model":             {"internal/jsonerr", "internal/regular"},
	"model/nn":          {"graph", "kernel", "quant", "internal/rescue"},
	"model/*":           {"model", "model/nn", "kernel"},                  // the families
	"model/afmoe":       {"model", "model/mixtral", "model/nn"},           // with its mixtures
	"model/lfm2":        {"model", "model/mixtral", "model/nn"},           // with its mixtures
	"model/granite":     {"model", "model/mixtral", "model/nn", "kernel"}, // with its mixtures
	"model/nemotron":    {"model", "model/mixtral", "model/nn", "kernel"}, // with its mixtures
	"model/quantised":   {"internal/jsonerr", "model", "model/weights", "quant"},
	"model/families":    {"model", "model/*", "internal/regular"},
	"adapter":           {"internal/words", "internal/keys", "graph", "kernel", "model/nn", "model/weights", "internal/jsonerr", "internal/regular"},
	"text/jinja":        {},
	"text/sugarme":      {"internal/atomicfile", "text/tokenizer"},
	"dataset/source":    {"internal/words", "internal/jsonerr", "internal/regular"},
	"vision":            {},
	"vision/tower":      {"kernel/gemm", "model/weights", "vision"},
	"text/chat":         {"internal/words", "text/jinja", "text/tokenizer", "internal/jsonedit", "internal/jsonerr", "internal/regular"},
	"dataset/logprobs":  {"dataset", "model/weights", "internal/atomicfile", "internal/jsonerr", "internal/regular"},
	"dataset":           {"internal/keys", "internal/words", "text/chat", "dataset/source", "text/tokenizer", "internal/atomicfile", "internal/jsonerr", "internal/regular", "internal/rescue"},
	"session": {"adapter", "dataset", "dataset/logprobs", "text/chat", "dataset/source", "text/tokenizer", "graph", "kernel", "model", "model/nn", "model/families",
		"model/quantised", "model/weights", "model/hub", "quant", "internal/atomicfile", "internal/jsonedit",
		"internal/regular", "internal/safetext", "internal/rescue", "internal/words", "vision", "vision/tower"},
	"importer":       {"internal/jsonerr", "internal/safetext"},
	"infer/jsonform": {},
	"infer":          {"infer/jsonform", "adapter", "session", "train/objective", "dataset", "dataset/logprobs", "internal/regular", "text/chat", "text/tokenizer", "graph", "kernel", "model/nn", "internal/safetext", "internal/rescue"},
	"infer/tasks":    {"infer", "dataset", "text/chat", "internal/regular"},
	"serve":          {"adapter", "dataset", "infer", "infer/jsonform", "text/chat", "text/tokenizer", "internal/chatpage", "internal/jsonerr", "internal/listen", "internal/safetext", "internal/rescue"},
	"export": {"session", "adapter", "dataset", "infer", "model", "text/chat", "export/*", "graph", "kernel", "model/weights", "quant", "train/checkpoint", "internal/atomicfile",
		"internal/jsonedit", "internal/regular", "internal/safetext", "internal/rescue", "vision"},
	"export/gguf":      {"internal/atomicfile"},
	"export/llamacpp":  {"text/chat", "text/jinja", "text/tokenizer", "export/gguf", "model"},
	"doctor":           {"session", "graph", "model/hub", "internal/atomicfile", "internal/cgroup", "internal/jsonerr", "internal/regular", "internal/safetext"},
	"selfcheck":        {"session", "graph", "kernel", "model/nn", "model/weights", "quant", "internal/rescue"},
	"bench":            {"session", "train", "train/objective", "train/step", "infer", "adapter", "dataset", "graph", "kernel", "model", "model/families", "quant"},
	"report":           {"session", "internal/safetext"},
	"tier":             {"internal/words", "adapter", "model/weights", "quant", "report", "session", "train", "train/checkpoint", "train/replay", "internal/atomicfile", "internal/regular", "internal/safetext", "internal/rescue"},
	"report/runs":      {"adapter", "report", "session", "dataset", "train", "train/objective", "train/checkpoint", "train/replay", "train/hardware", "train/journal", "internal/atomicfile", "internal/regular", "internal/safetext"},
	"report/queue":     {"report/runs", "train/checkpoint", "internal/atomicfile", "internal/regular", "internal/safetext", "internal/rescue"},
	"report/live":      {"report", "report/queue", "report/runs", "session", "train", "train/checkpoint", "train/journal", "internal/chatpage", "internal/listen", "internal/regular", "internal/safetext", "internal/rescue"},
	"train/gradcheck":  {"session", "train/step", "dataset", "graph", "kernel", "model/nn", "adapter"},
	"train/lrfind":     {},
	"train/journal":    {"internal/atomicfile", "internal/regular", "internal/safetext"},
	"train/hardware":   {"internal/atomicfile", "internal/rescue"},
	"train/checkpoint": {"internal/atomicfile", "internal/jsonerr", "internal/regular", "internal/rescue"},
	"train/fit":        {"session", "dataset", "graph"},
	"train/objective": {"internal/keys", "adapter", "session", "train/reward", "dataset", "dataset/logprobs", "graph",
		"kernel", "model/nn", "quant"},
	"train/optimizer": {"graph", "kernel", "model/nn"},
	"train/replay":    {"adapter", "dataset", "graph", "internal/atomicfile", "internal/jsonerr", "internal/regular"},
	"train/ranks":     {"internal/words", "internal/rescue"},
	"train/reward":    {"infer/jsonform", "internal/rescue", "internal/words"},
	"train/step":      {"session", "train/objective", "train/optimizer", "adapter", "dataset", "graph", "kernel", "model/nn"},
	"train/track":     {"internal/atomicfile", "internal/regular", "internal/safetext", "internal/rescue"},
	"train": {"internal/keys", "internal/words", "session", "infer", "infer/tasks", "train/*", "adapter", "dataset", "text/chat", "text/tokenizer", "graph", "kernel", "model/nn", "model/weights", "quant",
		"internal/atomicfile", "internal/jsonerr", "internal/regular", "internal/safetext", "internal/rescue"},
	"internal/atomicfile":  {},
	"internal/browsertest": {},
	"internal/cgroup":      {},
	"internal/cputime":     {},
	"internal/filename":    {"internal/words"},
	"internal/fulldisk":    nil,
	"internal/gputest":     {"graph"},
	"internal/jsonedit":    {},
	"internal/jsonerr":     {},
	"internal/keys":        {"internal/words"},
	"internal/lineedit":    {},
	"internal/listen":      {},
	"internal/regular":     {},
	"internal/rescue":      {},
	"internal/chatpage":    {},
	"internal/safetext":    {},
	"internal/words":       {},
	"configs":              {},
	"config": {"internal/keys", "adapter", "configs", "dataset", "text/chat", "dataset/source", "graph", "importer", "quant", "session", "train", "train/objective", "train/optimizer",
		"internal/filename", "internal/regular", "internal/safetext", "internal/words"},
	"cmd/trainer":     {"*"},
	"internal/golden": {"model/weights"},
	"internal/lint":   {},
	"tests":           {"*"},
	"scripts/*":       {"*"},
}

// fences are packages, outside ones and the GPU's driver, that only the packages listed may import.
var fences = map[string][]string{
	"github.com/dlclark/regexp2":       {"adapter"},
	module + "kernel/gpu":              {"kernel", "kernel/gpu", "graph"},
	"gorgonia.org/gorgonia":            {"graph"},
	"gorgonia.org/tensor":              {"graph"},
	"gorgonia.org/cu":                  {"kernel/gpu"},
	"C":                                {"kernel/gpu", "kernel/gpu/libcuda"},
	"github.com/spf13/viper":           {"config"},
	"github.com/go-viper/mapstructure": {"config"},
	"github.com/spf13/cobra":           {"cmd/trainer"},
	"github.com/spf13/pflag":           {"cmd/trainer"},
	"go.yaml.in/yaml/v3":               {"cmd/trainer", "config", "dataset/source", "importer", "infer/tasks"},
	"github.com/sugarme/tokenizer":     {"text/sugarme"},
	"github.com/klauspost/compress":    {"dataset/source", "internal/golden"},
	"golang.org/x/image/webp":          {"vision"},
	"github.com/rivo/uniseg":           {"text/tokenizer", "internal/lineedit"},

	"github.com/santhosh-tekuri/jsonschema/v6": {}, // in tests alone
}

type pkg struct {
	path    string
	imports []string
}

// packages lists our packages under both build tags.
func packages(t *testing.T) []pkg {
	t.Helper()
	byPath := map[string][]string{}
	for _, tags := range []string{"", "gpu"} {
		cmd := exec.Command("go", "list", "-e", "-tags", tags, "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
		cmd.Dir = golden.Root(t)
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false")
		if tags == "gpu" {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v: %s", err, stderr.String())
		}
		for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
			f := strings.Fields(s.Text())
			byPath[f[0]] = append(byPath[f[0]], f[1:]...)
		}
	}
	var all []pkg
	for p, i := range byPath {
		sort.Strings(i)
		all = append(all, pkg{p, slices.Compact(i)})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].path < all[j].path })
	if len(all) < 10 {
		t.Fatalf("go list found %d packages only", len(all))
	}
	return all
}

func rule(path string) ([]string, bool) {
	if r, ok := imports[path]; ok {
		return r, true
	}
	for dir := path; dir != "."; dir = filepath.Dir(dir) {
		if r, ok := imports[filepath.Dir(dir)+"/*"]; ok {
			return r, true
		}
	}
	return nil, false
}

func allowed(rule []string, path string) bool {
	for _, r := range rule {
		if base, ok := strings.CutSuffix(r, "*"); r == path || ok && strings.HasPrefix(path, base) {
			return true
		}
	}
	return false
}

func TestWhoImportsWhom(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.path, module)
		r, ok := rule(from)
		if !ok {
			t.Errorf("package %s has no line in the import table", from)
			continue
		}
		for _, i := range p.imports {
			if to, ours := strings.CutPrefix(i, module); ours && !allowed(r, to) {
				t.Errorf("%s imports %s, which it may not", from, to)
			}
			for fence, inside := range fences {
				if (i == fence || strings.HasPrefix(i, fence+"/")) && !allowed(inside, from) {
					t.Errorf("%s imports %s, which only %v may", from, i, inside)
				}
			}
		}
	}
}

// The table itself is seen to fail.
func TestTableRefuses(t *testing.T) {
	r, _ := rule("model/llama")
	if allowed(r, "adapter") || allowed(r, "model/mixtral") || !allowed(r, "model/nn") {
		t.Error("the rule of model/llama does not hold")
	}
	if _, ok := rule("utils"); ok {
		t.Error("a package without a line passes")
	}
}

// long are files above the limit, each with its reason.
var long = map[string]string{}

func TestFilesAreShort(t *testing.T) {
	seen := map[string]bool{}
	eachFile(t, func(path string, data []byte) {
		limit := 0
		switch filepath.Ext(path) {
		case ".go":
			limit = 800
		case ".cu", ".cuh":
			limit = 800
		default:
			return
		}
		n := bytes.Count(data, []byte("\n"))
		if n <= limit || bytes.Contains(data[:min(len(data), 400)], []byte("Code generated")) {
			return
		}
		if long[path] == "" {
			t.Errorf("%s has %d lines, more than %d: split it, or list it with a reason", path, n, limit)
		}
		seen[path] = true
	})
	for path := range long {
		if !seen[path] {
			t.Errorf("%s is listed as long and is not", path)
		}
	}
}

// eachFile visits every file that git tracks or would track.
func eachFile(t *testing.T, see func(path string, data []byte)) {
	t.Helper()
	root := golden.Root(t)
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") && name != ".ci" || rel == "build" || rel == "runs" || rel == filepath.Join("kernel", "cuda", "build")) {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.Contains(rel, "testdata") || !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		see(filepath.ToSlash(rel), data)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Fatalf("only %d files seen", n)
	}
}

func TestNoVagueFolders(t *testing.T) {
	for _, p := range packages(t) {
		for _, part := range strings.Split(strings.TrimPrefix(p.path, module), "/") {
			switch part {
			case "pkg", "utils", "util", "common", "types", "core", "helpers":
				t.Errorf("%s: a folder named %q says nothing", p.path, part)
			}
		}
	}
}

// TestTree compares the tree in ARCHITECTURE.md with the folders on disk: first level, both ways.
func TestTree(t *testing.T) {
	root := golden.Root(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "internals", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, tree, ok := strings.Cut(string(page), "```tree\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no block that starts with ```tree")
	}
	tree, _, _ = strings.Cut(tree, "```")
	said := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(tree), "\n") {
		name := strings.Fields(line)[0]
		said[strings.TrimSuffix(name, "/")] = true
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("ARCHITECTURE.md names %s, which is not there", name)
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "runs" && e.Name() != "build" && !said[e.Name()] {
			t.Errorf("ARCHITECTURE.md's tree does not name the folder %s", e.Name())
		}
	}
}

// TestPackageTable looks for every package of the module in the table of ARCHITECTURE.md. `model/<family>` stands for
// the families.
func TestPackageTable(t *testing.T) {
	root := golden.Root(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "internals", "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Packages\n")
	table, _, _ = strings.Cut(table, "\n## ")
	families := strings.Contains(table, "`model/<family>`")
	seen := map[string]bool{}
	eachFile(t, func(path string, _ []byte) {
		dir := filepath.ToSlash(filepath.Dir(path))
		if filepath.Ext(path) != ".go" || seen[dir] {
			return
		}
		seen[dir] = true
		if !strings.Contains(table, "`"+dir+"`") && !(families && filepath.Dir(dir) == "model") {
			t.Errorf("ARCHITECTURE.md's table of packages does not name %s", dir)
		}
	})
	if len(seen) < 60 {
		t.Errorf("only %d packages were found", len(seen))
	}
}

// TestKernelSymbols holds every CUDA entry point to the stem of its file.
func TestKernelSymbols(t *testing.T) {
	n := 0
	eachFile(t, func(path string, data []byte) {
		if filepath.Ext(path) != ".cu" {
			return
		}
		stem := strings.TrimSuffix(filepath.Base(path), ".cu")
		first, _, _ := strings.Cut(stem, "_")
		for _, line := range strings.Split(string(data), "\n") {
			_, rest, ok := strings.Cut(line, "__global__")
			if !ok || !strings.Contains(line, `extern "C"`) {
				continue
			}
			open := strings.IndexByte(rest, '(')
			if i := strings.LastIndexByte(rest, ')'); open < 0 && i < 0 {
				continue
			}
			words := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '(' || r == ')' || r == ',' })
			found := false
			for _, w := range words {
				found = found || strings.HasPrefix(w, first)
			}
			n++
			if !found {
				t.Errorf("%s: the entry point in %q does not begin with %s", path, strings.TrimSpace(line), first)
			}
		}
	})
	t.Logf("%d entry points", n)
}
