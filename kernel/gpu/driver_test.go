package gpu

import (
	"os"
	"strings"
	"testing"
)

func TestDriverVersion(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: gcc " +
			"version 11.4.0": "535.104.05",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22)": "580.159.04",
		"libcuda.so.570.26": "570.26",
		"libcuda.so.1":      "",
		"":                  "",
	} {
		if got := driverVersion(text); got != want {
			t.Errorf("driver version of %q is %q, want %q", text, got, want)
		}
	}
	if driver, cuda := OldestDriver(90); driver != "525.60" || cuda != "12.0" {
		t.Errorf("sm_90 needs driver %s for CUDA %s", driver, cuda)
	}
}

func TestNotStarted(t *testing.T) {
	for _, c := range []struct {
		code    int
		visible string
		want    string
	}{
		{100, "unset", "the NVIDIA driver shows no device"},
		{100, "-1", `the NVIDIA driver shows no device; CUDA_VISIBLE_DEVICES is "-1"`},
		{100, "", `the NVIDIA driver shows no device; CUDA_VISIBLE_DEVICES is ""`},
		{803, "unset",
			"the NVIDIA driver did not start: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): the kernel module and"},
		{77, "0", `the NVIDIA driver did not start: cuInit answers 77; CUDA_VISIBLE_DEVICES is "0"`},
	} {
		t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
		if c.visible == "unset" {
			os.Unsetenv("CUDA_VISIBLE_DEVICES")
		}
		if got := notStarted(c.code); !strings.HasPrefix(got, c.want) {
			t.Errorf("%d: %q, want %q", c.code, got, c.want)
		}
	}
}
