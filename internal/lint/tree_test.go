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

// The repository's files hold at most treeLimit bytes together, and a reference file that is not packed at most plainLimit
// (LEAST of internal/golden/pack.py).
const (
	treeLimit  = 20_000_000
	plainLimit = 16384
)

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
func tooLarge(sizes map[string]int64, limit, plain int64) (bad []string) {
	var sum int64
	for path, n := range sizes {
		sum += n
		ending := filepath.Ext(path)
		if strings.HasPrefix(path, "internal/golden/testdata/") && (ending == ".safetensors" || ending == ".json") && n >= plain {
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
	for _, problem := range tooLarge(sizes, treeLimit, plainLimit) {
		t.Error(problem)
	}
}

func TestTreeRefuses(t *testing.T) {
	sizes := map[string]int64{"a.go": 60, "internal/golden/testdata/x/y.safetensors": 41, "internal/golden/testdata/x/z.safetensors.gz": 50}
	if bad := tooLarge(sizes, 150, 40); len(bad) != 2 {
		t.Errorf("one file is not packed and the sum is over: %q", bad)
	}
	if bad := tooLarge(sizes, 151, 42); len(bad) != 0 {
		t.Errorf("nothing is over its limit: %q", bad)
	}
}
