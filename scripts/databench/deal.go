package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/dataset"
)

// dealt is what making batches took.
type dealt struct {
	Batches    int     `json:"batches"`
	Tokens     int     `json:"tokens"` // without padding
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"` // of all threads; 0 where the system does not say
}

// deal makes batches as a run's loop does, and says what that took since a start.
func deal(loader *dataset.Loader, batches int, begin time.Time, used float64) (d dealt, err error) {
	for range batches {
		window, _, err := loader.NextWindow(1)
		if err != nil {
			return d, err
		}
		for _, b := range window {
			d.Tokens += b.Tokens
		}
		d.Batches++
	}
	d.Seconds, d.CPUSeconds = time.Since(begin).Seconds(), cpuSeconds()-used
	return d, nil
}

// cpuSeconds is the processor time of this process, as Linux counts it in hundredths; nothing elsewhere.
func cpuSeconds() float64 {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name of the program
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}
