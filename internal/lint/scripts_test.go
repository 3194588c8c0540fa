package lint

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestScriptsParse: bash reads every script of the repository, the ones that need a GPU or a network too.
func TestScriptsParse(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	list := exec.Command("git", "ls-files", "*.sh", ".ci/run", "*.sbatch")
	list.Dir = golden.Root(t)
	files, err := list.Output()
	if err != nil {
		t.Skip("the folder is no git repository: ", err)
	}
	for _, f := range strings.Fields(string(files)) {
		check := exec.Command(bash, "-n", f)
		check.Dir = golden.Root(t)
		if said, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", f, err, said)
		}
	}
}
