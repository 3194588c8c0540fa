package replay

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestManifest(t *testing.T) {
	dir := t.TempDir()
	m := NewManifest("v1.2.3", []byte("seed: 7\n"), 7)
	m.Device, m.Data, m.Base = "cpu", "d", "b"
	m.SetLosses([]float64{1, 0.5})
	if err := m.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifest(dir)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("read back %+v (%v), want %+v", got, err, m)
	}
	// printf 'seed: 7\n' | sha256sum; printf '\0\0\0\0\0\0\360\77\0\0\0\0\0\0\340\77' | sha256sum
	if want := "d9681d39bb2fa92577a01cb9bb51fceaef4376a9d9b2893ac2da0468b9c30a3e"; m.Config != want {
		t.Errorf("config hash %s, want %s", m.Config, want)
	}
	if want := "7ded32179961d3df64ab9071d95eed3a7b5efc1750a16bdc02db400678278fab"; m.Losses != want || m.Steps != 2 {
		t.Errorf("loss hash %s of %d steps, want %s of 2", m.Losses, m.Steps, want)
	}
	other := m
	other.SetLosses([]float64{1, math.Nextafter(0.5, 1)})
	if other.Losses == m.Losses {
		t.Error("the last bit of a loss does not reach its hash")
	}
	if err := os.WriteFile(filepath.Join(dir, ManifestFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(dir); err == nil || !strings.HasPrefix(err.Error(), "read run_manifest.json: line 1, column 2: ") {
		t.Errorf("a damaged manifest: %v", err)
	}
}
