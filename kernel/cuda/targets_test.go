package cuda

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTargetsAreTheScripts: Targets are what the script compiles for.
func TestTargetsAreTheScripts(t *testing.T) {
	script, err := os.ReadFile("../../scripts/kernels.py")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range Targets {
		names = append(names, fmt.Sprintf("%q", c.String()))
	}
	want := "TARGETS = [" + strings.Join(names, ", ") + "]"
	if got := regexp.MustCompile(`(?m)^TARGETS = .*$`).FindString(string(script)); got != want {
		t.Errorf("scripts/kernels.py has %s, want %s", got, want)
	}
	for sm, want := range map[int]string{80: "sm_80", 86: "sm_80", 89: "sm_89", 90: "sm_90a", 100: "sm_100a",
		103: "compute_90", 120: "sm_120", 121: "sm_120"} {
		if c, ok := ReleasedFor(sm); !ok || c.String() != want {
			t.Errorf("a device of compute capability %d runs %v, want %s", sm, c, want)
		}
	}
	if c, ok := ReleasedFor(75); ok {
		t.Errorf("a device of compute capability 7.5 runs %v", c)
	}
}
