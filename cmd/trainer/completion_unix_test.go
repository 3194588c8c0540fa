//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/words"
)

// TestCompletionInShells: the scripts in the shells that are here.
func TestCompletionInShells(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "trainer"), []byte("#!/bin/sh\n"+asProgram+"=1 exec "+
		words.ShellQuote(os.Args[0])+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for shell, c := range map[string]struct {
		args []string
		want string
	}{
		"bash": {[]string{"--norc", "-c",
			`[ -r /usr/share/bash-completion/bash_completion ] || exit 77; . /usr/share/bash-completion/bash_completion
source <(trainer completion bash); COMP_WORDS=(trainer tier qu); COMP_CWORD=2 COMP_LINE="trainer tier qu" COMP_POINT=15 COMP_TYPE=9; __start_trainer; echo "${COMPREPLY[@]}"`}, "quick"},
		"zsh": {[]string{"-f", "-c", `autoload -Uz compinit; compinit -u -D; source <(trainer completion zsh); echo ` +
			`$_comps[trainer]; whence -w _trainer`}, "_trainer\n_trainer: function"},
		"fish": {[]string{"--no-config", "-c", `trainer completion fish | source; complete -C "trainer tier qu"; ` +
			`complete -C "trainer --config cpu_stories"`}, "quick\ncpu_stories_quick"},
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("no %s here", shell)
			}
			cmd := exec.Command(path, c.args...)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
			out, err := cmd.Output()
			if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 77 {
				t.Skip("the package bash-completion is not here")
			}
			if strings.TrimSpace(string(out)) != c.want {
				t.Errorf("%q, want %q (%v)", out, c.want, err)
			}
		})
	}
}
