package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// entriesOf expands the macros that make one kernel a head size or a layout, then reads the kernels' names.
func entriesOf(t *testing.T, file string) []string {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(b), "\\\n", " ")
	kernel := regexp.MustCompile(`extern "C" __global__ void (?:__launch_bounds__\((?:[^()]|\([^()]*\))*\) )?(\w+(?:##\w+)?)\(`)
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

func TestEntriesMatchSources(t *testing.T) {
	files, err := filepath.Glob("*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("sources: %v %v", files, err)
	}
	listed := 0
	for _, f := range files {
		stem := strings.TrimSuffix(f, ".cu")
		got, want := entriesOf(t, f), slices.Clone(Entries[stem])
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the source has %v, Entries lists %v", f, got, want)
		}
		for _, n := range got {
			if prefix := strings.Split(stem, "_")[0]; !strings.HasPrefix(n, prefix+"_") {
				t.Errorf("%s: kernel %s does not begin with %s_", f, n, prefix)
			}
		}
		listed++
	}
	if listed != len(Entries) {
		t.Errorf("%d sources, %d stems listed", listed, len(Entries))
	}
}

func TestSourcesHaveContracts(t *testing.T) {
	files, _ := filepath.Glob("*.cu")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		head := strings.ToLower(text[:strings.Index(text, "#include")])
		for _, word := range []string{f + ": ", "layout", "goal"} {
			if !strings.Contains(head, word) {
				t.Errorf("%s: the header lacks %q", f, word)
			}
		}
		if strings.Contains(text, "atomicAdd") {
			t.Errorf("%s: atomicAdd: a sum's order must not depend on timing", f)
		}
		if n := strings.Count(text, "\n"); n > 500 {
			t.Errorf("%s: %d lines, at most 500", f, n)
		}
	}
}

// TestElementsMatchSources holds the table of compiled forms against the sources' headers.
func TestElementsMatchSources(t *testing.T) {
	files, err := filepath.Glob("*.cu")
	if err != nil || len(files) == 0 {
		t.Fatalf("sources: %v %v", files, err)
	}
	listed := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		header, body, _ := strings.Cut(string(b), "#include")
		var types []string
		if m := regexp.MustCompile(`(?m)^// Elements: (.*)\.$`).FindStringSubmatch(header); m != nil {
			types = strings.Split(m[1], ", ")
			listed++
		}
		stem := strings.TrimSuffix(f, ".cu")
		if !slices.Equal(types, Elements[stem]) {
			t.Errorf("%s: the header lists %v, Elements %v", f, types, Elements[stem])
		}
		if uses := regexp.MustCompile(`\belem\b`).MatchString(body); uses != (types != nil) {
			t.Errorf("%s: uses elem: %t; its header lists %v", f, uses, types)
		}
		for _, e := range []string{"bf16", "f16", "f32"} {
			form, err := Form(stem, e)
			if has := types == nil || slices.Contains(types, e); has != (err == nil) || has && types != nil && e != "bf16" && form != stem+"_"+e {
				t.Errorf("%s for %s: form %q, %v", f, e, form, err)
			}
		}
	}
	if listed != len(Elements) {
		t.Errorf("%d sources list element types, Elements %d", listed, len(Elements))
	}
}

// stale runs scripts/kernels.py --stale on a folder; it needs no compiler.
func stale(t *testing.T, folder string, more ...string) []string {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: the kernels' build script can't run")
	}
	args := append([]string{"../../scripts/kernels.py", "--stale", "--folder", folder}, more...)
	out, err := exec.Command(python, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kernels.py: %v\n%s", err, out)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

func TestStaleKernels(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.cu", "#include \"common.cuh\"\nA")
	write("b.cu", "// Elements: bf16, f32.\n#include \"b.cuh\"\n")
	write("b.cuh", "#include \"common.cuh\"\n")
	write("common.cuh", "C")
	if got := stale(t, dir); !slices.Equal(got, []string{"a.cu", "b.cu bf16", "b.cu f32"}) {
		t.Fatalf("nothing built: stale %v", got)
	}
	// Mark both as built with the key that the script itself computes.
	mark := func(name, elem, form string) {
		out, err := exec.Command("python3", "-c", `
import sys; sys.path.insert(0, "../../scripts"); import kernels as k
print(k.key((sys.argv[1], sys.argv[2] or None), k.TARGETS, False))`, filepath.Join(dir, name+".cu"), elem).CombinedOutput()
		if err != nil {
			t.Fatalf("key: %v\n%s", err, out)
		}
		write("build/"+form+".fatbin", "x")
		write("build/"+form+".json", `{"key": "`+strings.TrimSpace(string(out))+`"}`)
	}
	mark("a", "", "a")
	mark("b", "bf16", "b")
	if got := stale(t, dir); !slices.Equal(got, []string{"b.cu f32"}) {
		t.Fatalf("the form for f32 is not built: stale %v", got)
	}
	mark("b", "f32", "b_f32")
	if got := stale(t, dir); len(got) != 0 {
		t.Fatalf("all built: stale %v", got)
	}
	if got := stale(t, dir, "--targets", "sm_80"); len(got) != 3 {
		t.Fatalf("other targets: stale %v", got)
	}
	write("a.cu", "#include \"common.cuh\"\nA2")
	if got := stale(t, dir); !slices.Equal(got, []string{"a.cu"}) {
		t.Fatalf("a edited: stale %v", got)
	}
	write("a.cu", "#include \"common.cuh\"\nA") // the content decides, not the time
	if got := stale(t, dir); len(got) != 0 {
		t.Fatalf("a restored: stale %v", got)
	}
	write("b.cuh", "#include \"common.cuh\"\nB2")
	if got := stale(t, dir); !slices.Equal(got, []string{"b.cu bf16", "b.cu f32"}) {
		t.Fatalf("a header that a does not include was edited: stale %v", got)
	}
	write("common.cuh", "C2")
	if got := stale(t, dir); len(got) != 3 {
		t.Fatalf("header edited: stale %v", got)
	}
}

func TestBudget(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: the kernels' build script can't run")
	}
	out, err := exec.Command(python, "-c", `
import sys; sys.path.insert(0, "../../scripts"); import kernels as k
log = """ptxas info    : Compiling entry function 'x_forward' for 'sm_80'
ptxas info    : Function properties for x_forward
    0 bytes stack frame, 24 bytes spill stores, 32 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compile time = 1.000 ms
"""
r = {"sm_80": k.resources(log)}
print(r)
print(k.over_budget(r, {}))
print(k.over_budget(r, {"x_forward": {"spill": 56}}))
print(k.over_budget(r, {"x_forward sm_90a": {"spill": 56}}))`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `{'sm_80': {'x_forward': {'registers': 128, 'shared': 512, 'spill': 56}}}
['x_forward on sm_80: 56 spill, budget 0']
[]
['x_forward on sm_80: 56 spill, budget 0']
`
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

func TestAttentionGeometry(t *testing.T) {
	for D, want := range map[int]int{8: 32, 16: 32, 32: 32, 40: 64, 64: 64, 72: 80, 80: 80, 96: 96, 112: 128, 128: 128, 192: 256, 256: 256} {
		if got, err := HeadSize(D); err != nil || got != want {
			t.Errorf("head size %d: %d, %v; want %d", D, got, err, want)
		}
	}
	for _, D := range []int{0, 4, 12, 264} {
		if _, err := HeadSize(D); err == nil || !strings.Contains(err.Error(), "multiples of 8 up to 256") {
			t.Errorf("head size %d: %v", D, err)
		}
	}
	if _, err := NewAttention(MMA, 10, 5, 2, 64); err == nil {
		t.Error("5 query heads over 2 key heads were taken")
	}
	for D := range headTiles { // 99 KB is what compute capability 8.6, 8.9 and 12.0 give a block
		single, err := NewAttention(Single, 512, 8, 2, D)
		if err != nil {
			t.Fatal(err)
		}
		a, err := NewAttention(MMA, 512, 8, 2, D)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range []Geometry{a.Forward, a.KV, a.Query, single.Forward, single.KV, single.Query} {
			if g.Shared+1024 > 99<<10 {
				t.Errorf("%s: %d bytes of shared memory", g.Entry, g.Shared)
			}
		}
		if a.Splits > 1 && a.Part == 0 {
			t.Errorf("head size %d: %d splits and no memory for them", D, a.Splits)
		}
	}
}

func TestAttentionFamily(t *testing.T) {
	for _, c := range []struct {
		elem  string
		sm, D int
		want  Family
	}{{"bf16", 80, 128, MMA}, {"f16", 89, 64, MMA}, {"bf16", 90, 128, Hopper}, {"bf16", 90, 64, Hopper}, {"bf16", 90, 96, Hopper}, {"bf16", 90, 32, MMA}, {"bf16", 90, 8, MMA}, {"bf16", 90, 256, MMA}, {"f16", 100, 128, MMA}, {"bf16", 120, 64, MMA}, {"f16", 90, 64, Hopper}, {"f32", 90, 128, Single}, {"f32", 80, 256, Single}, {"f32", 120, 8, Single}} {
		f, err := AttentionFamily(c.elem, c.sm, c.D)
		if err != nil || f != c.want {
			t.Errorf("sm %d, head size %d: %v, %v; want %v", c.sm, c.D, f, err, c.want)
			continue
		}
		a, err := NewAttention(f, 1000, 8, 2, c.D)
		if err != nil {
			t.Errorf("sm %d, head size %d: %v", c.sm, c.D, err)
		}
		for _, g := range []Geometry{a.Forward, a.KV, a.Query} { // one table: no half of one family
			if strings.Contains(g.Entry, "hopper") != (f == Hopper) || strings.Contains(g.Entry, "single") != (f == Single) || !slices.Contains(Entries[g.Stem], g.Entry) {
				t.Errorf("sm %d, head size %d: %s of %s is not of the family %v", c.sm, c.D, g.Entry, g.Stem, f)
			}
		}
	}
	if _, err := AttentionFamily("f32", 75, 64); err == nil || !strings.Contains(err.Error(), "7.5") {
		t.Errorf("sm 75: %v", err)
	}
	if _, err := NewAttention(Hopper, 10, 2, 2, 256); err == nil {
		t.Error("head size 256 was given a wgmma kernel")
	}
}
