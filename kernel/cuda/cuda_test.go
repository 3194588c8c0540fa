package cuda

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stems returns the sources by name.
func stems(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.cu")
	if err != nil || len(files) < 20 {
		t.Fatalf("sources: %v %v", files, err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".cu")
	}
	return files
}

// TestEntriesAreWhatIsCompiled: the kernels read from a source are those that the compiler found in it.
func TestEntriesAreWhatIsCompiled(t *testing.T) {
	compiled := 0
	for _, stem := range stems(t) {
		s, err := SourceOf(stem)
		if err != nil || len(s.Entries) == 0 {
			t.Errorf("%s: %+v, %v", stem, s, err)
		}
		for _, n := range s.Entries {
			if prefix := strings.Split(stem, "_")[0]; !strings.HasPrefix(n, prefix+"_") {
				t.Errorf("%s: kernel %s does not begin with %s_", stem, n, prefix)
			}
		}
		b, err := os.ReadFile("build/" + stem + ".json")
		if err != nil {
			continue
		}
		var report struct{ Kernels map[string]map[string]any }
		if err := json.Unmarshal(b, &report); err != nil {
			t.Fatalf("%s: %v", stem, err)
		}
		compiled++
		got := slices.Sorted(slices.Values(s.Entries))
		if want := slices.Sorted(maps.Keys(report.Kernels["sm_80"])); !slices.Equal(got, want) {
			t.Errorf("%s: the source has %v, compiled are %v", stem, got, want)
		}
	}
	if compiled == 0 {
		t.Skip("nothing is compiled here: make kernels")
	}
}

// TestEntriesOfMacros: a source as they come, with a kernel written out, one of a macro, and one in a comment's words.
func TestEntriesOfMacros(t *testing.T) {
	text := `// x.cu: extern "C" is said here.
// Elements: bf16, f32.
#include "common.cuh"
extern "C" __global__ void __launch_bounds__(256, (1 + 1)) x_one(int n) {}
extern "C" __global__ void x_two(int n) {}
#define SIZED(D, T) \\
    extern "C" __global__ void __launch_bounds__(T) x_sized_##D(int n) { one<D>(n); } \\
    extern "C" __global__ void x_other_##D(int n) {}
SIZED(32, 64)
SIZED(64, 128)
`
	got := slices.Sorted(slices.Values(entriesIn(strings.ReplaceAll(text, `\\`, `\`))))
	if want := []string{"x_one", "x_other_32", "x_other_64", "x_sized_32", "x_sized_64", "x_two"}; !slices.Equal(got,
		want) {
		t.Errorf("%v, want %v", got, want)
	}
	if e := elementsIn(text); !slices.Equal(e, []string{"bf16", "f32"}) {
		t.Errorf("elements %v", e)
	}
	if e := elementsIn("// y.cu: none.\n#include \"common.cuh\"\n// Elements: bf16.\n"); e != nil {
		t.Errorf("elements %v from behind the header", e)
	}
	if _, err := SourceOf("none"); err == nil || !strings.Contains(err.Error(), "none.cu") {
		t.Errorf("a source that is not there: %v", err)
	}
}

// TestForms: a source that uses elem says for which types it is compiled, and has a form for those alone.
func TestForms(t *testing.T) {
	for _, stem := range stems(t) {
		b, err := os.ReadFile(stem + ".cu")
		if err != nil {
			t.Fatal(err)
		}
		s, err := SourceOf(stem)
		if err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(string(b), "#include")
		if uses := regexp.MustCompile(`\belem\b`).MatchString(body); uses != (s.Elements != nil) {
			t.Errorf("%s: uses elem: %t; its header lists %v", stem, uses, s.Elements)
		}
		for _, e := range []string{"bf16", "f16", "f32"} {
			form, err := Form(stem, e)
			if has := s.Elements == nil || slices.Contains(s.Elements, e); has != (err == nil) || has &&
				s.Elements != nil && e != "bf16" && form != stem+"_"+e {
				t.Errorf("%s for %s: form %q, %v", stem, e, form, err)
			}
		}
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
		for _, sum := range regexp.MustCompile(`atomicAdd\(&?(\w*)`).FindAllStringSubmatch(text, -1) {
			// Sums of integers in shared memory are the same in every order.
			whole := regexp.MustCompile(`__shared__ uint32_t [^;]*\b` + sum[1] + `\b`)
			if sum[1] == "" || !whole.MatchString(text) {
				t.Errorf("%s: %s: a sum's order must not depend on timing", f, sum[0])
			}
		}
		if n := strings.Count(text, "\n"); n > 500 {
			t.Errorf("%s: %d lines, at most 500", f, n)
		}
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

// Targets of a generation share NVRTC's pass over a source, unless it tests for more than that.
func TestPasses(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: the kernels' build script can't run")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"plain.cu": "#if __CUDA_ARCH__ >= 900\n#elif __CUDA_ARCH__ >= 800\n#endif",
		"ada.cu":   "#include \"ada.cuh\"\n",
		"ada.cuh":  "#if __CUDA_ARCH__ >= 890\n",
		"rtx.cu":   "#if __CUDA_ARCH__ == 1200\n",
		"wgmma.cu": "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(python, "-c", `
import sys; sys.path.insert(0, "../../scripts"); import kernels as k
for name in ["plain", "ada", "rtx", "wgmma"]:
    print(name, *[a + ":" + "+".join(t) for a, t in k.passes(sys.argv[1] + "/" + name + ".cu", k.TARGETS)])
print(*[a for a, _ in k.passes(sys.argv[1] + "/plain.cu", ["sm_89", "sm_86", "sm_103a"])])`, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `plain compute_80:sm_80+sm_89 compute_90:sm_90a+compute_90 compute_100:sm_100a+sm_120+compute_120
ada compute_80:sm_80 compute_89:sm_89 compute_90:sm_90a+compute_90 compute_100:sm_100a+sm_120+compute_120
rtx compute_80:sm_80+sm_89 compute_90:sm_90a+compute_90 compute_100:sm_100a compute_120:sm_120+compute_120
wgmma compute_80:sm_80+sm_89 compute_90a:sm_90a compute_100a:sm_100a compute_100:sm_120+compute_120 compute_90:compute_90
compute_80 compute_86 compute_103a
`
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
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

func entries(t *testing.T, stem string) []string {
	t.Helper()
	s, err := SourceOf(stem)
	if err != nil {
		t.Fatal(err)
	}
	return s.Entries
}

func TestAttentionGeometry(t *testing.T) {
	for D, want := range map[int]int{8: 32, 16: 32, 32: 32, 40: 64, 64: 64, 72: 80, 80: 80, 96: 96, 112: 128, 128: 128,
		192: 256, 256: 256, 264: 512, 320: 512, 512: 512} {
		if got, err := HeadSize(D); err != nil || got != want {
			t.Errorf("head size %d: %d, %v; want %d", D, got, err, want)
		}
	}
	for _, D := range []int{0, 4, 12, 260, 520} {
		if _, err := HeadSize(D); err == nil || !strings.Contains(err.Error(), "multiples of 8 up to 512") {
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
	}{{"bf16", 80, 128, MMA}, {"f16", 89, 64, MMA}, {"bf16", 90, 128, Hopper}, {"bf16", 90, 64, Hopper},
		{"bf16", 90, 96, Hopper}, {"bf16", 90, 32, MMA}, {"bf16", 90, 8, MMA}, {"bf16", 90, 256, MMA},
		{"bf16", 90, 512, MMA}, {"f16", 120, 512, MMA}, {"f32", 90, 512, Single}, {"f16", 100, 128, MMA},
		{"bf16", 120, 64, MMA}, {"f16", 90, 64, Hopper}, {"f32", 90, 128, Single}, {"f32", 80, 256, Single},
		{"f32", 120, 8, Single}} {
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
			if strings.Contains(g.Entry, "hopper") != (f == Hopper) ||
				strings.Contains(g.Entry, "single") != (f == Single) || !slices.Contains(entries(t, g.Stem), g.Entry) {
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
