package main

import (
	"strings"
	"testing"
)

// TestPromptsAreText: a prompt that is not UTF-8 is refused, and a mark at its beginning is no part of it.
func TestPromptsAreText(t *testing.T) {
	generate := func(in string, args ...string) (int, string, string) {
		return trainer(t, t.TempDir(), nil, in, append([]string{"generate", "--model", "embedded:stories260K",
			"--max-tokens", "3"}, args...)...)
	}
	for _, c := range []struct {
		in   string
		args []string
		want string
	}{
		{"ab\xffc", []string{"--prompt", "-"}, "trainer: the prompt is not UTF-8: byte 3 is 0xff"},
		{"\xff\xfeh\x00i\x00", []string{"--prompt", "-"}, "trainer: the prompt is not UTF-8: it begins as UTF-16 " +
			"does, which PowerShell and Notepad write; save it as UTF-8"},
		{"", []string{"--prompt", "a\x80"}, "trainer: the prompt is not UTF-8: byte 2 is 0x80"},
		{"", []string{"--instruction", "\x80"}, "trainer: --instruction is not UTF-8: byte 1 is 0x80"},
	} {
		if code, _, errOut := generate(c.in, c.args...); code != 2 || !strings.HasPrefix(errOut, c.want) {
			t.Errorf("%q %q: exit code %d, want 2 and %q\n%s", c.in, c.args, code, c.want, errOut)
		}
	}
	_, marked, _ := generate("\uFEFFOnce upon a time", "--prompt", "-")
	if _, plain, _ := generate("Once upon a time", "--prompt", "-"); plain != marked {
		t.Errorf("a mark changes the answer: %q, %q", plain, marked)
	}
}

// TestMeant: keys given as flags, settings given as words and texts without a flag are told how to be written.
func TestMeant(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a key as a flag": {args: []string{"train", "x.yaml", "--learning-rate", "1"},
			want: "unknown flag: --learning-rate; a key of the configuration is set by --set " +
				"training.learning_rate=VALUE"},
		"another's flag": {args: []string{"plan", "x.yaml", "--per_device_train_batch_size=2"},
			want: "unknown flag: --per_device_train_batch_size; a key of the configuration is set by --set " +
				"training.batch_size=VALUE"},
		"a key with dots": {args: []string{"x.yaml", "--training.max_steps", "2"},
			want: "is set by --set training.max_steps=VALUE"},
		"a setting as a word": {args: []string{"train", "x.yaml", "lr=1e-5"},
			want: "trainer train takes one configuration; write lr=1e-5 as --set training.learning_rate=1e-5"},
		"a setting, no train": {args: []string{"x.yaml", "training.max_steps=3"}, want: "takes one configuration; " +
			"write training.max_steps=3 as --set training.max_steps=3"},
		"two configurations": {args: []string{"plan", "x.yaml", "y.yaml"},
			want: "trainer plan takes one configuration, got x.yaml and y.yaml"},
		"a prompt as a word": {args: []string{"generate", "--model", "m", "--chat", "Hello?"},
			want: `trainer generate takes no argument, got "Hello?"; write a text as --prompt TEXT`},
		"a folder as a word": {args: []string{"merge", "runs/a"}, want: `trainer merge takes no argument, got ` +
			`"runs/a"; name an adapter by --adapter DIR, a model by --model DIR`},
		"a model as a word": {args: []string{"inspect", "template", "m"}, want: `got "m"; name a model by --model DIR`},
		"verify of nothing": {args: []string{"verify", "nothing"}, want: "no run: stat nothing: no such file or " +
			"directory; verify takes the output folder of a run"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, _, errOut := trainer(t, t.TempDir(), nil, "", c.args...); code != 2 ||
				!strings.Contains(errOut, c.want) {
				t.Errorf("exit code %d, want 2 and %q\n%s", code, c.want, errOut)
			}
		})
	}
}
