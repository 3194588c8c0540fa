//go:build !gpu || !linux

package gpu

import "errors"

const noSupport = "this build has no GPU support; build with make gpu"

// Built reports whether GPU support is compiled in.
const Built = false

// Devices returns the number of devices, and when there is none the reason.
func Devices() (n int, reason string) { return 0, noSupport }

// Shares returns how many devices each GPU stands for.
func Shares() int { return 1 }

// DriverVersion returns the newest CUDA version the driver serves, 0 without one.
func DriverVersion() int { return 0 }

// Driver returns the driver's own version and the file of its library, "" without one.
func Driver() (version, file string) { return "", "" }

// DeviceProperties describes device i.
func DeviceProperties(i int) (Properties, error) { return Properties{}, errors.New(noSupport) }

// Libraries lists the vendor libraries that would be used; dir is searched first when not empty.
func Libraries(dir string) []Library { return nil }

// ReadCards asks NVML for all cards of this computer.
func ReadCards() ([]Card, error) { return nil, errors.New(noSupport) }

// ReadLoads returns nothing: this build reads no cards.
func ReadLoads() []CardLoad { return nil }

// WatchCards begins to note the driver's critical errors.
func WatchCards() error { return errors.New(noSupport) }

func waitXids() {}
