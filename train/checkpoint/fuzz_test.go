package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// FuzzLoad: a folder from anywhere is loaded as it was summed, or is an error; it never panics and never leaves the folder.
func FuzzLoad(f *testing.F) {
	sum := sha256.Sum256([]byte(`{"global_step": 3}`))
	good := fmt.Sprintf(`{"format": %d, "step": 3, "files": [{"name": "trainer_state.json", "bytes": 18, "sha256": "%x"}]}`, format, sum)
	for _, text := range []string{good, strings.Replace(good, "18", "1099511627776", 1), strings.Replace(good, "18", "-1", 1),
		strings.Replace(good, "trainer_state.json", "../trainer_state.json", 1), strings.Replace(good, "trainer_state.json", ".", 1), `{"files": null}`, "[]", ""} {
		f.Add([]byte(text), []byte(`{"global_step": 3}`))
	}
	f.Add([]byte(good), []byte(`{"global_step": 4}`))
	f.Fuzz(func(t *testing.T, sums, state []byte) {
		dir := t.TempDir()
		for name, data := range map[string][]byte{SumFile: sums, StateFile: state} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files, got, err := Load(dir)
		if err != nil {
			return
		}
		var want State
		if err := json.Unmarshal(state, &want); err != nil || want.GlobalStep != got.GlobalStep {
			t.Errorf("step %d of %s", got.GlobalStep, state)
		}
		for name, data := range files {
			if sum := sha256.Sum256(data); !strings.Contains(string(sums), hex.EncodeToString(sum[:])) {
				t.Errorf("%s is not what was summed", name)
			}
		}
	})
}

// TestClaimedSizes: a file with a hole, whose size the summary has right, is refused without its memory.
func TestClaimedSizes(t *testing.T) {
	dir := t.TempDir()
	const size = 128 << 20
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("optimizer.bin", nil)
	if err := os.Truncate(filepath.Join(dir, "optimizer.bin"), size); err != nil {
		t.Skip("no sparse files here: ", err)
	}
	write(SumFile, fmt.Appendf(nil, `{"format": %d, "step": 3, "files": [{"name": "optimizer.bin", "bytes": %d, "sha256": "%064d"}]}`, format, int64(size), 0))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "its SHA-256 is") {
		t.Errorf("it ends with %v", err)
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 8<<20 {
		t.Errorf("%d bytes were allocated for it", after.TotalAlloc-before.TotalAlloc)
	}
	for _, files := range []string{
		`{"name": "a", "bytes": 1, "sha256": ""}, {"name": "a", "bytes": 1, "sha256": ""}`, `{"name": "a", "bytes": -1, "sha256": ""}`, `{"name": "a", "bytes": 2199023255552, "sha256": ""}`,
	} {
		write(SumFile, fmt.Appendf(nil, `{"format": %d, "step": 3, "files": [%s]}`, format, files))
		if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), SumFile+" is damaged") {
			t.Errorf("%s: %v", files, err)
		}
	}
}
