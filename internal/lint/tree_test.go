package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// The repository's files hold at most treeLimit bytes together.
const treeLimit = 24 << 20

// plainLimits are the bytes from which on a reference file is packed, by its ending: LEAST of internal/golden/pack.py.
var plainLimits = map[string]int64{".safetensors": 4096, ".json": 16384}

// tracked lists the repository's files. Without git, as in an unpacked archive, the test is skipped.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = golden.Root(t)
	out, err := cmd.Output()
	if err != nil || len(out) == 0 {
		t.Skipf("git does not list this folder's files: %v", err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// tooLarge are the files that are over the limits, as sentences.
func tooLarge(sizes map[string]int64, limit int64) (bad []string) {
	var sum int64
	for path, n := range sizes {
		sum += n
		if least, ok := plainLimits[filepath.Ext(path)]; ok && n >= least && strings.HasPrefix(path, "internal/golden/testdata/") {
			bad = append(bad, path+" is not packed: run python3 internal/golden/pack.py")
		}
	}
	if sum > limit {
		bad = append(bad, "the repository's files are too large together: see git ls-files -z | xargs -0 du -cb | sort -rn")
	}
	slices.Sort(bad)
	return bad
}

func TestTreeIsSmall(t *testing.T) {
	sizes := map[string]int64{}
	for _, path := range tracked(t) {
		if info, err := os.Lstat(filepath.Join(golden.Root(t), path)); err == nil { // else it is removed and not yet committed
			sizes[path] = info.Size()
		}
	}
	for _, problem := range tooLarge(sizes, treeLimit) {
		t.Error(problem)
	}
}

func TestTreeRefuses(t *testing.T) {
	sizes := map[string]int64{"a.go": 60, "internal/golden/testdata/x/y.safetensors": 4096, "internal/golden/testdata/x/z.safetensors.gz": 5000}
	if bad := tooLarge(sizes, 9155); len(bad) != 2 {
		t.Errorf("one file is not packed and the sum is over: %q", bad)
	}
	sizes["internal/golden/testdata/x/y.safetensors"]--
	if bad := tooLarge(sizes, 9155); len(bad) != 0 {
		t.Errorf("nothing is over its limit: %q", bad)
	}
}
