package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/words"
)

// block is a fenced block of a page.
type block struct {
	line   int
	kind   string // sh or text
	reason string // why it is not run, by a comment above it
	with   string // the command that it needs, by a comment above it
	text   string
}

var (
	notRun  = regexp.MustCompile(`^<!-- not run: (.{8,}) -->$`)
	runWith = regexp.MustCompile(`^<!-- run with: ([a-z]+) -->$`)
)

// blocksOf finds the fenced blocks of a page.
func blocksOf(t *testing.T, page string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var b *block
	before := ""
	for i, line := range strings.Split(string(text), "\n") {
		if kind, fence := strings.CutPrefix(line, "```"); fence {
			if b != nil {
				all, b = append(all, *b), nil
			} else {
				b = &block{line: i + 1, kind: kind}
				if m := notRun.FindStringSubmatch(before); m != nil {
					b.reason = m[1]
				} else if m := runWith.FindStringSubmatch(before); m != nil {
					b.with = m[1]
				} else if strings.HasPrefix(before, "<!--") {
					t.Errorf("%s:%d: a comment above a block is \"not run: WHY\" or \"run with: COMMAND\": %s",
						page, i, before)
				}
			}
		} else if b != nil {
			b.text += line + "\n"
		}
		if strings.TrimSpace(line) != "" {
			before = line
		}
	}
	if b != nil {
		t.Errorf("%s:%d: a block has no end", page, b.line)
	}
	return all
}

// The cookbook's commands do what its pages say: each page's blocks are run in a folder of their own, in their order.
func TestCookbook(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the pages are written for a POSIX shell")
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here")
	}
	bin := t.TempDir()
	script := "#!/bin/sh\nexec " + words.ShellQuote(os.Args[0]) + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "trainer"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	images := golden.Idefics3(t)
	commands := map[string]bool{}
	for _, cmd := range newRoot(&console{}).Commands() {
		commands[cmd.Name()] = true
	}
	pages, err := filepath.Glob("../../docs/cookbook/*.md")
	if err != nil || len(pages) < 9 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	contents, err := os.ReadFile("../../docs/cookbook/README.md")
	if err != nil {
		t.Fatal(err)
	}
	ran, left := 0, 0
	for _, page := range pages {
		name := filepath.Base(page)
		if name == "README.md" {
			continue
		}
		if !strings.Contains(string(contents), "]("+name+")") {
			t.Errorf("README.md does not list %s", name)
		}
		t.Run(name, func(t *testing.T) {
			dir, out, here := t.TempDir(), "", 0
			for _, b := range blocksOf(t, page) {
				switch {
				case b.kind == "text":
					for line := range strings.Lines(b.text) {
						if want := strings.TrimSpace(line); !strings.Contains(out, want) {
							t.Errorf("%s:%d: %q is not in the output\n%s", page, b.line, want, out)
						}
					}
				case b.kind != "sh":
					t.Errorf("%s:%d: a block of %q: sh is run, text is looked for in what it printed", page,
						b.line, b.kind)
				case b.reason != "":
					t.Logf("not run: %s:%d: %s", name, b.line, b.reason)
					left++
				case b.with != "" && !commands[b.with]:
					t.Logf("not run: %s:%d: this program has no command %s", name, b.line, b.with)
					left++
				default:
					cmd := program(dir, "-eu", "-c", b.text)
					cmd.Path = shell
					cmd.Args[0] = shell
					cmd.Env = append(cmd.Env, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
						"CUDA_VISIBLE_DEVICES=", "IMAGE_MODEL="+images)
					said, err := cmd.CombinedOutput()
					if err != nil {
						t.Fatalf("%s:%d: %v\n%s", page, b.line, err, said)
					}
					out = string(said)
					ran, here = ran+1, here+1
				}
			}
			if here == 0 {
				t.Errorf("no block of %s is run", name)
			}
		})
	}
	t.Logf("%d blocks run, %d not", ran, left)
	if ran < 17 || left > 12 {
		t.Errorf("%d blocks run, %d not: that is too few, or too many", ran, left)
	}
}
