package hardware

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// machine reads /proc. It keeps the counters of the reading before, from which rates follow.
type machine struct {
	root string // "/proc"
	dir  string // of the run
	at   time.Time
	busy, all,
	process, read1, written float64
}

func newMachine(dir string) *machine { return &machine{root: "/proc", dir: dir} }

// ticks is how many units of /proc/PID/stat make a second, on every Linux system.
const ticks = 100

// host adds what /proc says of the machine and of this process. Rates need two readings.
func (m *machine) host(r Reading) {
	now, before := time.Now(), m.at
	m.at = now
	elapsed := now.Sub(before).Seconds()
	rate := func(name string, was *float64, is float64, ok bool, scale float64) {
		if ok && !before.IsZero() && elapsed > 0 && is >= *was {
			r[name] = scale * (is - *was) / elapsed
		}
		if ok {
			*was = is
		}
	}
	if busy, all, ok := m.processor(); ok {
		if !before.IsZero() && all > m.all && busy >= m.busy {
			r["cpu_percent"] = 100 * (busy - m.busy) / (all - m.all)
		}
		m.busy, m.all = busy, all
	}
	own, ok := m.processTime()
	rate("process_cpu_percent", &m.process, own, ok, 100.0/ticks)
	memory := m.fields("meminfo", ":")
	if total, free := memory["MemTotal"], memory["MemAvailable"]; total > 0 && free <= total {
		r["memory_bytes"], r["memory_total_bytes"] = 1024*(total-free), 1024*total
	}
	if resident := m.fields("self/status", ":")["VmRSS"]; resident > 0 {
		r["process_memory_bytes"] = 1024 * resident
	}
	disk := m.fields("self/io", ":")
	read, ok := disk["read_bytes"]
	rate("process_disk_read_bytes_per_second", &m.read1, read, ok, 1)
	written, ok := disk["write_bytes"]
	rate("process_disk_written_bytes_per_second", &m.written, written, ok, 1)
	if free, ok := atomicfile.Free(m.dir); ok {
		r["disk_free_bytes"] = float64(free)
	}
}

// processor returns the time that all cores were busy, and all of their time, in ticks since the machine's start.
func (m *machine) processor() (busy, all float64, ok bool) {
	text, err := os.ReadFile(m.root + "/stat")
	if err != nil {
		return 0, 0, false
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	f := strings.Fields(string(line))
	if len(f) < 5 || f[0] != "cpu" {
		return 0, 0, false
	}
	for i, word := range f[1:min(len(f), 9)] { // the two behind these are part of the first two
		v, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return 0, 0, false
		}
		all += v
		if i != 3 && i != 4 { // idle, and idle while a disk is read
			busy += v
		}
	}
	return busy, all, true
}

// processTime returns the time of all cores that this process has used, in ticks.
func (m *machine) processTime() (float64, bool) {
	text, err := os.ReadFile(m.root + "/self/stat")
	if err != nil {
		return 0, false
	}
	end := bytes.LastIndexByte(text, ')') // the process's name may hold blanks
	f := strings.Fields(string(text[end+1:]))
	if end < 0 || len(f) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseFloat(f[11], 64)
	system, err2 := strconv.ParseFloat(f[12], 64)
	return user + system, err1 == nil && err2 == nil
}

// fields reads a file of lines such as "MemTotal:  5 kB".
func (m *machine) fields(name, between string) map[string]float64 {
	all := map[string]float64{}
	text, err := os.ReadFile(m.root + "/" + name)
	if err != nil {
		return all
	}
	for line := range strings.Lines(string(text)) {
		key, rest, ok := strings.Cut(line, between)
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(words[0], 64); err == nil {
			all[strings.TrimSpace(key)] = v
		}
	}
	return all
}
