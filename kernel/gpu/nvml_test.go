//go:build gpu && linux

package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// fakeNVML compiles testdata/nvml.c and makes it the process's NVML until the test ends.
func fakeNVML(t *testing.T, flags ...string) (file string) {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	file = filepath.Join(t.TempDir(), nvmlName)
	args := append(flags, "-shared", "-fPIC", "-Wall", "-Wno-unused-variable", "-Werror", "-o", file,
		filepath.Join("testdata", "nvml.c"))
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		if _, missing := exec.LookPath(cc); missing != nil {
			t.Skip("a test library needs a C compiler: ", missing)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	forgetNVML()
	t.Cleanup(forgetNVML)
	return file
}

func forgetNVML() {
	nvml.Lock()
	defer nvml.Unlock()
	nvml.tried, nvml.err, nvml.driver, nvml.handles, nvml.lost, nvml.set, nvml.watched, nvml.xids = false, nil, "", nil,
		nil, nil, false, nil
}

// openFake is what ReadCards does with the library's name.
func openFake(t *testing.T, file string) {
	t.Helper()
	nvml.Lock()
	defer nvml.Unlock()
	if err := openNVML(file); err != nil {
		t.Fatal(err)
	}
}

func mustCards(t *testing.T) []Card {
	t.Helper()
	cards, err := ReadCards()
	if err != nil || len(cards) != 2 {
		t.Fatalf("%d cards: %v", len(cards), err)
	}
	return cards
}

// field reads a Card's field by the name it has in JSON.
func field(t *testing.T, c Card, name string) any {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all[name]
}

// TestReadLoads: what changes while a card works arrives in its field; what the card does not have is below zero.
func TestReadLoads(t *testing.T) {
	file := fakeNVML(t)
	openFake(t, file)
	t.Setenv("FAKE_POWER", "301500")
	all := ReadLoads()
	if len(all) != 2 || all[0] != (CardLoad{0, 98, 600 << 20, 301.5, 41}) || all[1].Index != 1 {
		t.Errorf("%+v", all)
	}
	for _, name := range []string{"FAKE_POWER", "FAKE_TEMPERATURE", "FAKE_UTILIZATION"} {
		t.Setenv(name, "-1")
	}
	if all := ReadLoads(); all[0] != (CardLoad{0, -1, 600 << 20, -1, -1}) {
		t.Errorf("%+v", all)
	}
}

// TestCards: every reading arrives in its field, and one that the card does not have is left out.
func TestCards(t *testing.T) {
	file := fakeNVML(t)
	openFake(t, file)
	plain := mustCards(t)
	const mib = 1 << 20
	for name, want := range map[string]any{
		"index": 0.0, "name": "Imaginary GPU", "uuid": "GPU-07070707-0707-0707-0707-070707070707",
		"pci_bus_id": "00000000:17:00.0", "driver": "580.159.04", "problem": nil,
		"total_bytes": 24576.0 * mib, "reserved_bytes": 400.0 * mib, "used_bytes": 600.0 * mib,
		"free_bytes": 23576.0 * mib, "processes": nil,
		"temperature_c": 41.0, "slowdown_temperature_c": 90.0, "shutdown_temperature_c": 95.0, "power_mw": 61000.0,
		"power_limit_mw": 450000.0, "power_default_limit_mw": 450000.0,
		"sm_clock_mhz": 210.0, "sm_clock_max_mhz": 3105.0, "memory_clock_mhz": 405.0, "memory_clock_max_mhz": 10501.0,
		"sm_application_clock_mhz": nil, "throttled": nil,
		"ecc": nil, "ecc_pending": nil, "ecc_corrected_since_start": nil, "ecc_uncorrected_ever": nil,
		"retired_pages_single_bit": nil, "retired_pages_pending": nil,
		"remapped_rows_corrected": nil, "remapping_failed": nil, "mig": nil, "persistence_mode": true,
		"compute_mode": "default", "xids": nil,
	} {
		if got := field(t, plain[0], name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for _, c := range []struct {
		set, name string
		want      any
	}{
		{"FAKE_TEMPERATURE=93", "temperature_c", 93.0},
		{"FAKE_TEMPERATURE=-1", "temperature_c", nil},
		{"FAKE_TEMPERATURE=0", "temperature_c", 0.0},
		{"FAKE_SLOWDOWN=88", "slowdown_temperature_c", 88.0},
		{"FAKE_SHUTDOWN=97", "shutdown_temperature_c", 97.0},
		{"FAKE_POWER=449000", "power_mw", 449000.0},
		{"FAKE_LIMIT=300000", "power_limit_mw", 300000.0},
		{"FAKE_LIMIT_DEFAULT=700000", "power_default_limit_mw", 700000.0},
		{"FAKE_CLOCK=345", "sm_clock_mhz", 345.0},
		{"FAKE_MEM_CLOCK=2619", "memory_clock_mhz", 2619.0},
		{"FAKE_MAX=1980", "sm_clock_max_mhz", 1980.0},
		{"FAKE_APP_CLOCK=1200", "sm_application_clock_mhz", 1200.0},
		{"FAKE_APP_DEFAULT=1980", "sm_application_clock_default_mhz", 1980.0},
		{"FAKE_ECC=1", "ecc", "enabled"},
		{"FAKE_ECC=0", "ecc", "disabled"},
		{"FAKE_ECC=1 FAKE_ECC_PENDING=0", "ecc_pending", "disabled"},
		{"FAKE_ECC=1 FAKE_CORRECTED=11", "ecc_corrected_since_start", 11.0},
		{"FAKE_ECC=1 FAKE_CORRECTED_EVER=12", "ecc_corrected_ever", 12.0},
		{"FAKE_ECC=1 FAKE_UNCORRECTED=13", "ecc_uncorrected_since_start", 13.0},
		{"FAKE_ECC=1 FAKE_UNCORRECTED_EVER=14", "ecc_uncorrected_ever", 14.0},
		{"FAKE_RETIRED_SINGLE=0", "retired_pages_single_bit", 0.0},
		{"FAKE_RETIRED_SINGLE=5", "retired_pages_single_bit", 5.0},
		{"FAKE_RETIRED_DOUBLE=6", "retired_pages_double_bit", 6.0},
		{"FAKE_RETIRE_PENDING=1", "retired_pages_pending", true},
		{"FAKE_REMAPPED=3", "remapped_rows_corrected", 3.0},
		{"FAKE_REMAPPED=0 FAKE_REMAPPED_BROKEN=4", "remapped_rows_uncorrected", 4.0},
		{"FAKE_REMAPPED=0 FAKE_REMAP_PENDING=1", "remapping_pending", true},
		{"FAKE_REMAPPED=0 FAKE_REMAP_FAILED=1", "remapping_failed", true},
		{"FAKE_REMAPPED=0", "remapping_failed", false},
		{"FAKE_PERSISTENCE=0", "persistence_mode", false},
		{"FAKE_COMPUTE_MODE=2", "compute_mode", "prohibited"},
		{"FAKE_COMPUTE_MODE=3", "compute_mode", "exclusive_process"},
		{"FAKE_COMPUTE_MODE=9", "compute_mode", nil},
		{"FAKE_MIG=0", "mig", "disabled"},
		{"FAKE_NAME=a\x1b[31mb", "name", "a?[31mb"},
		{"FAKE_LOST=15", "problem", "NVML answers 15: the GPU has fallen off the bus or does not answer any more"},
		{"FAKE_LOST=16", "problem", "NVML answers 16: the GPU must be reset before it can be used again"},
	} {
		t.Run(strings.ReplaceAll(c.set, "=", " "), func(t *testing.T) {
			for _, s := range strings.Fields(c.set) {
				name, value, _ := strings.Cut(s, "=")
				t.Setenv(name, value)
			}
			cards := mustCards(t)
			if got := field(t, cards[0], c.name); got != c.want {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
			if !reflect.DeepEqual(cards[1], plain[1]) {
				t.Errorf("card 1 changed too: %+v", cards[1])
			}
		})
	}
}

func TestCardLists(t *testing.T) {
	openFake(t, fakeNVML(t))
	t.Setenv("FAKE_REASONS", "109") // 0x6d: idle, power, hardware, driver's and hardware's temperature
	t.Setenv("FAKE_MIG", "1")
	t.Setenv("FAKE_PROCESSES", "300") // more than the first call has room for
	c := mustCards(t)[0]
	if want := []string{"power limit", "hardware slowdown (temperature or power)", "temperature (driver)",
		"temperature (hardware)"}; !reflect.DeepEqual(c.Throttled, want) {
		t.Errorf("throttled %q, want %q", c.Throttled, want)
	}
	if len(c.Processes) != 300 || c.Processes[0] != (CardProcess{PID: 4000000, Bytes: 1 << 30}) ||
		c.Processes[299].PID != 4000299 {
		t.Errorf("%d processes, the first %+v", len(c.Processes), c.Processes[:min(1, len(c.Processes))])
	}
	want := []CardInstance{{"MIG-07070707-0707-0707-0707-070707070707", 8 << 30, 600 << 20, 7192 << 20},
		{"MIG-11111111-0707-0707-0707-070707070707", 8 << 30, 600 << 20, 7192 << 20}}
	if c.MIG != "enabled" || !reflect.DeepEqual(c.Instances, want) {
		t.Errorf("MIG %s: %+v", c.MIG, c.Instances)
	}
	t.Setenv("FAKE_PID", "1")
	t.Setenv("FAKE_PROCESSES", "1")
	t.Setenv("FAKE_BYTES", "-1") // NVML_VALUE_NOT_AVAILABLE
	if p := mustCards(t)[0].Processes; len(p) != 1 || p[0].PID != 1 || p[0].Bytes != 5 || p[0].Name == "" {
		t.Errorf("processes %+v", p)
	}
}

// TestOldNVML: a driver without the newer functions gives what it has.
func TestOldNVML(t *testing.T) {
	openFake(t, fakeNVML(t, "-DOLD"))
	t.Setenv("FAKE_PROCESSES", "1")
	t.Setenv("FAKE_REASONS", "4")
	c := mustCards(t)[0]
	if c.Total != 24<<30 || c.Used != 1000<<20 || c.Reserved != 0 || len(c.Processes) != 1 ||
		!reflect.DeepEqual(c.Throttled, []string{"power limit"}) || c.MIG != "" || c.RemapFailed != nil {
		t.Errorf("%+v", c)
	}
	if err := WatchCards(); err == nil {
		t.Error("events were watched that the library does not have")
	}
}

// TestLinks: what joins two cards, by wires, by a switch, and not at all.
func TestLinks(t *testing.T) {
	openFake(t, fakeNVML(t))
	for set, want := range map[string]string{
		"":                                    "PCIe 4.0 x16 (32 GB/s), 0 of 0 down, 0 to 1, one host bridge, ok",
		"FAKE_NVLINKS=4":                      "PCIe 4.0 x16 (32 GB/s), 0 of 4 down, 4 to 1, one host bridge, ok",
		"FAKE_NVLINKS=18 FAKE_SWITCH=1":       "PCIe 4.0 x16 (32 GB/s), 0 of 18 down, 18 to 1, one host bridge, ok",
		"FAKE_NVLINKS=18 FAKE_NVLINKS_DOWN=2": "PCIe 4.0 x16 (32 GB/s), 2 of 18 down, 16 to 1, one host bridge, ok",
		"FAKE_PCIE=5 FAKE_LANES=8":            "PCIe 5.0 x8 (32 GB/s), 0 of 0 down, 0 to 1, one host bridge, ok",
		"FAKE_PCIE=-1 FAKE_PATH=-1":           "PCIe, 0 of 0 down, 0 to 1, , ok",
		"FAKE_PATH=50 FAKE_P2P_READ=3": "PCIe 4.0 x16 (32 GB/s), 0 of 0 down, 0 to 1, two processors, the way " +
			"over two processors does not let them",
		"FAKE_P2P_WRITE=5": "PCIe 4.0 x16 (32 GB/s), 0 of 0 down, 0 to 1, one host bridge, the driver does not let them",
		"FAKE_P2P_READ=77": "PCIe 4.0 x16 (32 GB/s), 0 of 0 down, 0 to 1, one host bridge, the driver does not know",
		"FAKE_P2P_READ=-1": "PCIe 4.0 x16 (32 GB/s), 0 of 0 down, 0 to 1, one host bridge, ",
	} {
		t.Run(set, func(t *testing.T) {
			for _, s := range strings.Fields(set) {
				name, value, _ := strings.Cut(s, "=")
				t.Setenv(name, value)
			}
			cards := mustCards(t)
			c := cards[0]
			if len(c.Links) != 1 || cards[1].Links != nil {
				t.Fatalf("links %+v and %+v", c.Links, cards[1].Links)
			}
			l := c.Links[0]
			if got := fmt.Sprintf("%v, %d of %d down, %d to %d, %s, %s", c.PCIe, c.NVLinksDown, c.NVLinks, l.NVLinks,
				l.To, l.Path, l.Access); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

func TestNVMLProblems(t *testing.T) {
	for _, c := range []struct {
		flags []string
		env   string
		want  string
	}{
		{[]string{"-DBROKEN"}, "", "the NVML library found lacks nvmlInit_v2"},
		{nil, "FAKE_NVML_INIT=18",
			"nvmlInit answers 18: the driver's kernel module and its libraries are of different versions"},
		{nil, "FAKE_NVML_INIT=9", "nvmlInit answers 9: the NVIDIA driver is not loaded"},
		{nil, "FAKE_NVML_INIT=77", "nvmlInit answers 77"},
	} {
		file := fakeNVML(t, c.flags...)
		if name, value, ok := strings.Cut(c.env, "="); ok {
			t.Setenv(name, value)
		}
		nvml.Lock()
		openNVML(file) //nolint:errcheck // ReadCards tells it
		nvml.Unlock()
		if cards, err := ReadCards(); err == nil || !strings.HasPrefix(err.Error(), "NVML: "+c.want) || cards != nil {
			t.Errorf("%v %s: %v, want %s", c.flags, c.env, err, c.want)
		}
	}
	os.Unsetenv("FAKE_NVML_INIT")
	file := fakeNVML(t)
	t.Setenv("FAKE_HANDLE", "15")
	openFake(t, file)
	cards := mustCards(t)
	if cards[0].Problem != "nvmlDeviceGetHandleByIndex answers 15: the GPU has fallen off the bus or does not answer "+
		"any more" || cards[1].Problem != "" {
		t.Errorf("%+v", cards)
	}
	forgetNVML()
	nvml.Lock()
	err := openNVML("libnothing-at-all.so.1")
	nvml.Unlock()
	if err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("no library: %v", err)
	}
}

func TestXids(t *testing.T) {
	openFake(t, fakeNVML(t))
	if err := WatchCards(); err != nil {
		t.Fatal(err)
	}
	for i, xid := range []string{"79", "48", "48"} { // the third is told once only
		t.Setenv("FAKE_XID", xid)
		if c := mustCards(t); len(c[0].Xids) != min(i+1, 2) || c[1].Xids != nil {
			t.Errorf("after Xid %s: %v", xid, c[0].Xids)
		}
	}
	if c := mustCards(t); !reflect.DeepEqual(c[0].Xids, []int{79, 48}) {
		t.Errorf("Xids %v", c[0].Xids)
	}
}

// TestDiagnoseByNVML: an error of the driver brings the card's own words, whatever number CUDA gives it.
func TestDiagnoseByNVML(t *testing.T) {
	defer lastOpened.Store(lastOpened.Load())
	openFake(t, fakeNVML(t))
	if err := WatchCards(); err != nil {
		t.Fatal(err)
	}
	failed := &Error{What: "replay", Call: "cuGraphLaunch", Code: 719, Name: "CUDA_ERROR_LAUNCH_FAILED"}
	lastOpened.Store(&Properties{Index: 3, Name: "Imaginary GPU", PCI: "0000:17:00.0"})
	for _, c := range []struct{ env, want string }{
		{"FAKE_TEMPERATURE=94",
			"GPU 3 (Imaginary GPU, 0000:17:00.0) now: 94 C, too hot, 0.6 of 24.0 GiB used; the card overheats"},
		{"FAKE_ECC=1",
			"41 C, 0.6 of 24.0 GiB used, 0 uncorrected ECC errors since the driver started; the card looks sound"},
		{"FAKE_LOST=15", "GPU 3 (Imaginary GPU, 0000:17:00.0): NVML answers 15: the GPU has fallen off the bus"},
		{"FAKE_XID=79", "the driver reports Xid 79 (the GPU has fallen off the bus); the card lost its power"},
	} {
		t.Run(c.env, func(t *testing.T) {
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv(name, value)
			if got := Diagnose(failed).Error(); !strings.Contains(got, c.want) {
				t.Errorf("%q lacks %q", got, c.want)
			}
		})
	}
}
