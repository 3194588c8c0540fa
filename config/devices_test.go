package config

import (
	"strings"
	"testing"
)

// TestDevicesKey: a number, a word or a list, in the file, by --set, --devices and the environment; written out it is
// the same.
func TestDevicesKey(t *testing.T) {
	for text, want := range map[string]string{"2": "2", "'2'": "2", "all": "all", "[0, 2]": "[0,2]", "[1]": "[1]",
		"\n  - 0\n  - 1\n": "[0,1]"} {
		s := merged(t, least+"devices: "+text+"\n", nil, nil)
		if s.Devices != want {
			t.Errorf("devices: %s is %q, want %q", text, s.Devices, want)
		}
		if again := merged(t, string(Render(s)), nil, nil); again.Devices != want {
			t.Errorf("devices: %s is %q once it was written out", text, again.Devices)
		}
	}
	if s := merged(t, least, nil, nil); s.Devices != "1" {
		t.Errorf("by default it is %q", s.Devices)
	}
	if s := merged(t, least, []string{"TRAINER_DEVICES=all", "TRAINER_NCCL=/opt/nccl/lib"}, nil); s.Devices != "all" {
		t.Errorf("the environment gives %q", s.Devices)
	}
	for set, want := range map[string]string{"devices=4": "4", "devices=[0,3]": "[0,3]"} {
		if s := merged(t, least, nil, []string{set}); s.Devices != want {
			t.Errorf("--set %s gives %q", set, s.Devices)
		}
	}
	for text, want := range map[string]string{"0": "is not all", "two": "is not all",
		"[0, 0]": "stands in the list twice", "{}": "devices", "[[0]]": "devices", "1.5": "devices"} {
		_, problems := Merge("run.yaml", []byte(least+"devices: "+text+"\n"), nil, nil)
		if len(problems) != 1 || !strings.Contains(problems[0].Error(), want) ||
			!strings.Contains(problems[0].Error(), "devices: ") {
			t.Errorf("devices: %s: %v, want %s", text, problems, want)
		}
	}
	two := least + "devices: 2\ntraining: {batch_size: 2, global_batch_size: 3}\n"
	if _, problems := Merge("run.yaml", []byte(two), nil, nil); len(problems) != 1 ||
		!strings.Contains(problems[0].Error(), "3 rows are not whole batches of batch_size 2") {
		t.Error(problems)
	}
}
