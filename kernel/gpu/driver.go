package gpu

import (
	"fmt"
	"os"
	"regexp"
)

// OldestDriver says which driver the embedded kernels need on a device of compute capability sm, and the CUDA
// version that it serves.
func OldestDriver(sm int) (driver, cuda string) {
	for _, o := range oldest {
		if sm >= o.sm {
			return o.driver, VersionText(o.version)
		}
	}
	return "", ""
}

var driverPattern = regexp.MustCompile(`\b[0-9]{3}\.[0-9]+(\.[0-9]+)?\b`)

// driverVersion finds a driver's version in what its module or its library's name says.
func driverVersion(text string) string { return driverPattern.FindString(text) }

// starts are the answers of cuInit that have a known cause. Its names can't be asked for then.
var starts = map[int]struct{ name, cause string }{
	3: {"CUDA_ERROR_NOT_INITIALIZED", "its kernel module is not loaded"},
	34: {"CUDA_ERROR_STUB_LIBRARY",
		"the libcuda.so.1 found is a toolkit's stub; take its folder out of LD_LIBRARY_PATH"},
	46:  {"CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is in use by a process that shares it with none"},
	101: {"CUDA_ERROR_INVALID_DEVICE", "CUDA_VISIBLE_DEVICES names a device that is not there"},
	802: {"CUDA_ERROR_SYSTEM_NOT_READY", "the fabric manager of the NVSwitch has not started"},
	803: {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
		"the kernel module and libcuda.so.1 are of different versions; restart after an update of the driver"},
	804: {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
		"a forward-compatibility libcuda.so.1 was found that this GPU or driver does not take"},
	999: {"CUDA_ERROR_UNKNOWN", "nvidia-smi may say more; restarting the machine often helps"},
}

// notStarted returns the reason that a driver that is there gives no device.
func notStarted(code int) string {
	s := "the NVIDIA driver shows no device"
	if code != codeNoDevice {
		s = fmt.Sprintf("the NVIDIA driver did not start: cuInit answers %d", code)
		if known, ok := starts[code]; ok {
			s = fmt.Sprintf("the NVIDIA driver did not start: cuInit: %s (%d): %s", known.name, code, known.cause)
		}
	}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		s += fmt.Sprintf("; CUDA_VISIBLE_DEVICES is %q", visible)
	}
	return s
}
