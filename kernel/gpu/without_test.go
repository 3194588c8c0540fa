//go:build !gpu || !linux

package gpu

import (
	"strings"
	"testing"
)

func TestWithoutGPU(t *testing.T) {
	n, reason := Devices()
	if n != 0 || reason != "this build has no GPU support; build with make gpu" {
		t.Errorf("Devices: %d, %q", n, reason)
	}
	if _, err := DeviceProperties(0); err == nil || !strings.Contains(err.Error(), "make gpu") {
		t.Errorf("DeviceProperties: %v", err)
	}
	if Built || DriverVersion() != 0 || Libraries("") != nil {
		t.Error("a build without GPU support claims some")
	}
}
