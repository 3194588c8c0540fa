//go:build gpu && linux

package gpu

// NVML (libnvidia-ml.so.1) through dlopen: own declarations of the functions used, no NVIDIA header. Structures and
// versions are those of nvml.h 12.9; nvml_test.go runs all of it on a library of its own.

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>

typedef void *nv_device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } nv_pci;
typedef struct { unsigned long long total, free, used; } nv_memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nv_memory2;
typedef struct { unsigned gpu, memory; } nv_utilization;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } nv_process;
typedef struct { nv_device device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } nv_event;
_Static_assert(sizeof(nv_pci) == 68 && sizeof(nv_memory) == 24 && sizeof(nv_memory2) == 40 &&
	sizeof(nv_process) == 24 && sizeof(nv_event) == 32, "as in nvml.h");
enum { MEMORY2 = sizeof(nv_memory2) | 2 << 24, XID_EVENT = 8, NOT_FOUND = 13 };

static struct {
	int (*init)(void), (*driver)(char *, unsigned), (*count)(unsigned *), (*handle)(unsigned, nv_device *);
	int (*name)(nv_device, char *, unsigned), (*uuid)(nv_device, char *, unsigned), (*pci)(nv_device, nv_pci *);
	int (*memory)(nv_device, nv_memory *), (*memory2)(nv_device, nv_memory2 *);
	int (*compute)(nv_device, unsigned *, nv_process *), (*graphics)(nv_device, unsigned *, nv_process *);
	int (*temperature)(nv_device, int, unsigned *), (*threshold)(nv_device, int, unsigned *);
	int (*power)(nv_device, unsigned *), (*power_limit)(nv_device, unsigned *), (*power_default)(nv_device, unsigned *);
	int (*clock)(nv_device, int, unsigned *), (*clock_max)(nv_device, int, unsigned *),
		(*clock_app)(nv_device, int, unsigned *), (*clock_app_default)(nv_device, int, unsigned *);
	int (*reasons)(nv_device, unsigned long long *), (*utilization)(nv_device, nv_utilization *);
	int (*ecc)(nv_device, int *, int *), (*ecc_errors)(nv_device, int, int, unsigned long long *);
	int (*retired)(nv_device, int, unsigned *, unsigned long long *), (*retired_pending)(nv_device, int *);
	int (*remapped)(nv_device, unsigned *, unsigned *, unsigned *, unsigned *);
	int (*mig)(nv_device, unsigned *, unsigned *), (*mig_count)(nv_device, unsigned *),
		(*mig_handle)(nv_device, unsigned, nv_device *);
	int (*persistence)(nv_device, int *), (*compute_mode)(nv_device, int *);
	int (*event_set)(void **), (*register_events)(nv_device, unsigned long long, void *),
		(*event_wait)(void *, nv_event *, unsigned);
} nv;

// Returns a symbol that no driver lacks, where it is missing.
static const char *nv_load(void *lib) {
#define MAY(field, sym) *(void **)&nv.field = dlsym(lib, #sym);
#define MUST(field, sym) if (!(*(void **)&nv.field = dlsym(lib, #sym))) return #sym;
	MUST(init, nvmlInit_v2) MUST(driver, nvmlSystemGetDriverVersion) MUST(count, nvmlDeviceGetCount_v2) MUST(handle,
		nvmlDeviceGetHandleByIndex_v2)
	MUST(name, nvmlDeviceGetName) MUST(uuid, nvmlDeviceGetUUID) MUST(memory, nvmlDeviceGetMemoryInfo)
	MAY(pci, nvmlDeviceGetPciInfo_v3) MAY(memory2, nvmlDeviceGetMemoryInfo_v2)
	MAY(compute, nvmlDeviceGetComputeRunningProcesses_v3) MAY(graphics, nvmlDeviceGetGraphicsRunningProcesses_v3)
	// the same structure
	if (!nv.compute) { MAY(compute, nvmlDeviceGetComputeRunningProcesses_v2) MAY(graphics,
		nvmlDeviceGetGraphicsRunningProcesses_v2) }
	MAY(temperature, nvmlDeviceGetTemperature) MAY(threshold, nvmlDeviceGetTemperatureThreshold)
	MAY(power, nvmlDeviceGetPowerUsage) MAY(power_limit, nvmlDeviceGetEnforcedPowerLimit) MAY(power_default,
		nvmlDeviceGetPowerManagementDefaultLimit)
	MAY(clock, nvmlDeviceGetClockInfo) MAY(clock_max, nvmlDeviceGetMaxClockInfo)
	MAY(clock_app, nvmlDeviceGetApplicationsClock) MAY(clock_app_default, nvmlDeviceGetDefaultApplicationsClock)
	MAY(reasons, nvmlDeviceGetCurrentClocksEventReasons)
	if (!nv.reasons) { MAY(reasons, nvmlDeviceGetCurrentClocksThrottleReasons) } // its name before driver 535
	MAY(utilization, nvmlDeviceGetUtilizationRates)
	MAY(ecc, nvmlDeviceGetEccMode) MAY(ecc_errors, nvmlDeviceGetTotalEccErrors)
	MAY(retired, nvmlDeviceGetRetiredPages) MAY(retired_pending, nvmlDeviceGetRetiredPagesPendingStatus) MAY(remapped,
		nvmlDeviceGetRemappedRows)
	MAY(mig, nvmlDeviceGetMigMode) MAY(mig_count, nvmlDeviceGetMaxMigDeviceCount) MAY(mig_handle,
		nvmlDeviceGetMigDeviceHandleByIndex)
	MAY(persistence, nvmlDeviceGetPersistenceMode) MAY(compute_mode, nvmlDeviceGetComputeMode)
	MAY(event_set, nvmlEventSetCreate) MAY(register_events, nvmlDeviceRegisterEvents) MAY(event_wait,
		nvmlEventSetWait_v2)
	return 0;
}

enum {
	TEMPERATURE, SLOWDOWN, SHUTDOWN, POWER, POWER_LIMIT, POWER_DEFAULT, CLOCK, CLOCK_MAX, CLOCK_APP, CLOCK_APP_DEFAULT,
		MEM_CLOCK, MEM_CLOCK_MAX, REASONS,
	ECC, ECC_PENDING, CORRECTED, UNCORRECTED, CORRECTED_EVER, UNCORRECTED_EVER,
	RETIRED_SINGLE, RETIRED_DOUBLE, RETIRED_PENDING, REMAPPED_FIXED, REMAPPED_BROKEN, REMAP_PENDING, REMAP_FAILED,
	MIG, MIG_PENDING, PERSISTENCE, COMPUTE_MODE, READINGS
};
typedef struct {
	char name[96], uuid[96], pci[33];
	int problem; // the answer of a card that is lost or has to be reset
	int memory;  // answer of the memory's reading
	unsigned long long total, reserved, used, free;
	long long value[READINGS]; // -1: not told
} nv_card;

static void nv_read_memory(nv_device d, nv_card *c) {
	nv_memory2 m2 = {.version = MEMORY2};
	nv_memory m = {0};
	if (nv.memory2 && !nv.memory2(d, &m2)) { c->total = m2.total; c->reserved = m2.reserved; c->used = m2.used; c->free = m2.free; c->memory = 0; return; }
	if (!(c->memory = nv.memory(d, &m))) { c->total = m.total; c->used = m.used; c->free = m.free; }
}

static int nv_handle(unsigned i, nv_device *d) { return nv.handle(i, d); }

static void nv_read(nv_device d, nv_card *c) {
	memset(c, 0, sizeof *c);
	for (int i = 0; i < READINGS; i++) c->value[i] = -1;
#define NOTE(r) ((r) == 15 || (r) == 16 ? (c->problem = (r)) : (r))
	int r;
	unsigned u, v, w, x;
	unsigned long long l;
	int a, b;
	nv_pci pci;
	memset(&pci, 0, sizeof pci);
	r = nv.name(d, c->name, sizeof c->name - 1); NOTE(r);
	r = nv.uuid(d, c->uuid, sizeof c->uuid - 1); NOTE(r);
	if (nv.pci && !nv.pci(d, &pci)) memcpy(c->pci, pci.bus_id, 32);
	nv_read_memory(d, c); NOTE(c->memory);
#define ONE(slot, call) if ((r = (call)) == 0) c->value[slot] = u; else NOTE(r);
	if (nv.temperature) ONE(TEMPERATURE, nv.temperature(d, 0, &u))
	if (nv.threshold) { ONE(SHUTDOWN, nv.threshold(d, 0, &u)) ONE(SLOWDOWN, nv.threshold(d, 1, &u)) }
	if (nv.power) ONE(POWER, nv.power(d, &u))
	if (nv.power_limit) ONE(POWER_LIMIT, nv.power_limit(d, &u))
	if (nv.power_default) ONE(POWER_DEFAULT, nv.power_default(d, &u))
	if (nv.clock) { ONE(CLOCK, nv.clock(d, 1, &u)) ONE(MEM_CLOCK, nv.clock(d, 2, &u)) }
	if (nv.clock_max) { ONE(CLOCK_MAX, nv.clock_max(d, 1, &u)) ONE(MEM_CLOCK_MAX, nv.clock_max(d, 2, &u)) }
	if (nv.clock_app) ONE(CLOCK_APP, nv.clock_app(d, 1, &u))
	if (nv.clock_app_default) ONE(CLOCK_APP_DEFAULT, nv.clock_app_default(d, 1, &u))
	if (nv.reasons && !nv.reasons(d, &l)) c->value[REASONS] = l & 0x7fffffffffffffff;
	if (nv.ecc && !nv.ecc(d, &a, &b)) { c->value[ECC] = a; c->value[ECC_PENDING] = b; }
	if (nv.ecc_errors)
		for (int k = 0; k < 4; k++) // corrected and uncorrected, since the driver's start, then ever
			if (!nv.ecc_errors(d, k & 1, k >> 1, &l)) c->value[CORRECTED + k] = l & 0x7fffffffffffffff;
	if (nv.retired)
		for (int k = 0; k < 2; k++) {
			u = 0;
			r = nv.retired(d, k, &u, 0); // 7: there are so many, and no room was given
			if (r == 0 || r == 7) c->value[RETIRED_SINGLE + k] = u;
		}
	if (nv.retired_pending && !nv.retired_pending(d, &a)) c->value[RETIRED_PENDING] = a;
	if (nv.remapped && !nv.remapped(d, &u, &v, &w, &x)) { c->value[REMAPPED_FIXED] = u; c->value[REMAPPED_BROKEN] = v; c->value[REMAP_PENDING] = w; c->value[REMAP_FAILED] = x; }
	if (nv.mig && !nv.mig(d, &u, &v)) { c->value[MIG] = u; c->value[MIG_PENDING] = v; }
	if (nv.persistence && !nv.persistence(d, &a)) c->value[PERSISTENCE] = a;
	if (nv.compute_mode && !nv.compute_mode(d, &a)) c->value[COMPUTE_MODE] = a;
}

// nv_load_now reads what changes while a card works: utilisation in per cent, memory in bytes, milliwatts and degrees
// Celsius. -1: not told.
static void nv_load_now(nv_device d, long long out[4]) {
	nv_utilization u = {0};
	nv_card c;
	unsigned v;
	for (int i = 0; i < 4; i++) out[i] = -1;
	if (nv.utilization && !nv.utilization(d, &u)) out[0] = u.gpu;
	memset(&c, 0, sizeof c);
	nv_read_memory(d, &c);
	if (!c.memory) out[1] = c.used;
	if (nv.power && !nv.power(d, &v)) out[2] = v;
	if (nv.temperature && !nv.temperature(d, 0, &v)) out[3] = v;
}

static int nv_init(void) { return nv.init(); }
static int nv_driver(char *s, unsigned n) { return nv.driver(s, n); }
static int nv_count(unsigned *n) { return nv.count(n); }
static int nv_processes(nv_device d, int graphics, unsigned *n, nv_process *p) {
	int (*get)(nv_device, unsigned *, nv_process *) = graphics ? nv.graphics : nv.compute;
	return get ? get(d, n, p) : NOT_FOUND;
}
static unsigned nv_instances(nv_device d) { unsigned n = 0; return nv.mig_count && nv.mig_handle &&
	!nv.mig_count(d, &n) ? n : 0; }
static int nv_instance(nv_device d, unsigned i, nv_card *c) {
	nv_device part;
	int r = nv.mig_handle(d, i, &part);
	if (r) return r;
	memset(c, 0, sizeof *c);
	if ((r = nv.uuid(part, c->uuid, sizeof c->uuid - 1))) return r;
	nv_read_memory(part, c);
	return c->memory;
}
static int nv_watch(void **set) { return nv.event_set && nv.register_events &&
	nv.event_wait ? nv.event_set(set) : NOT_FOUND; }
static int nv_register(nv_device d, void *set) { return nv.register_events(d, XID_EVENT, set); }
static int nv_wait(void *set, nv_event *e, unsigned ms) { return nv.event_wait(set, e, ms); }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"
)

// nvmlName is the library of the driver; it is there wherever nvidia-smi is.
const nvmlName = "libnvidia-ml.so.1"

const keptXids = 16

var nvml struct { // the function table is the process's, so the first library found serves
	sync.Mutex
	tried   bool
	err     error
	driver  string
	handles []C.nv_device // by index; nil where the card does not answer
	lost    []int         // the answer then
	set     unsafe.Pointer
	watched bool
	xids    map[int][]int
}

// openNVML opens and starts the library once; the lock is held.
func openNVML(names ...string) error {
	if nvml.tried {
		return nvml.err
	}
	nvml.tried = true
	nvml.err = func() error {
		lib, err := openLibrary("", names...)
		if err != nil {
			return err
		}
		if missing := C.nv_load(lib); missing != nil {
			return fmt.Errorf("the NVML library found lacks %s", C.GoString(missing))
		}
		loadLinks(lib)
		if r := C.nv_init(); r != 0 {
			return nvmlError{"nvmlInit", int(r)}
		}
		var text [96]C.char
		if C.nv_driver(&text[0], C.uint(len(text)-1)) == 0 {
			nvml.driver = C.GoString(&text[0])
		}
		var n C.uint
		if r := C.nv_count(&n); r != 0 {
			return nvmlError{"nvmlDeviceGetCount", int(r)}
		}
		for i := range min(int(n), 1024) {
			var d C.nv_device
			r := C.nv_handle(C.uint(i), &d)
			if r != 0 {
				d = nil
			}
			nvml.handles, nvml.lost = append(nvml.handles, d), append(nvml.lost, int(r))
		}
		return nil
	}()
	return nvml.err
}

// ReadCards asks NVML for all cards of this computer, whatever CUDA_VISIBLE_DEVICES says. A card that does not answer
// has its Problem set. The error is why NVML itself cannot be asked; no program needs it to train.
func ReadCards() ([]Card, error) {
	nvml.Lock()
	defer nvml.Unlock()
	if err := openNVML(nvmlName); err != nil {
		return nil, fmt.Errorf("NVML: %w", err)
	}
	drainXids(0)
	cards := make([]Card, len(nvml.handles))
	for i, h := range nvml.handles {
		cards[i] = Card{Index: i, Driver: nvml.driver, Xids: slices.Clone(nvml.xids[i])}
		if h == nil {
			cards[i].Problem = nvmlError{"nvmlDeviceGetHandleByIndex", nvml.lost[i]}.Error()
			continue
		}
		readCard(h, &cards[i])
	}
	readLinks(cards)
	return cards, nil
}

// ReadLoads asks NVML for what changes while cards work, of all cards of this computer. It is short enough to be called
// every few seconds. No program needs it to train, so a card that does not answer, or a missing NVML, is left out.
func ReadLoads() []CardLoad {
	nvml.Lock()
	defer nvml.Unlock()
	if openNVML(nvmlName) != nil {
		return nil
	}
	var all []CardLoad
	for i, h := range nvml.handles {
		if h == nil {
			continue
		}
		var v [4]C.longlong
		C.nv_load_now(h, &v[0])
		l := CardLoad{Index: i, Utilisation: float64(v[0]), Memory: float64(v[1]), Power: float64(v[2]),
			Temperature: float64(v[3])}
		if v[2] >= 0 {
			l.Power /= 1000
		}
		all = append(all, l)
	}
	return all
}

func readCard(h C.nv_device, c *Card) {
	var raw C.nv_card
	C.nv_read(h, &raw)
	c.Name, c.UUID, c.PCI = printable(C.GoString(&raw.name[0])), printable(C.GoString(&raw.uuid[0])),
		printable(C.GoString(&raw.pci[0]))
	c.Total, c.Reserved, c.Used, c.Free = int64(raw.total), int64(raw.reserved), int64(raw.used), int64(raw.free)
	switch {
	case raw.problem != 0:
		c.Problem = nvmlError{"NVML", int(raw.problem)}.Error()
	case raw.memory != 0:
		c.Problem = nvmlError{"nvmlDeviceGetMemoryInfo", int(raw.memory)}.Error()
	}
	number := func(slot int) *int64 {
		if v := int64(raw.value[slot]); v >= 0 {
			return &v
		}
		return nil
	}
	truth := func(slot int) *bool {
		if v := number(slot); v != nil {
			yes := *v != 0
			return &yes
		}
		return nil
	}
	word := func(slot int, words ...string) string {
		if v := number(slot); v != nil && *v < int64(len(words)) {
			return words[*v]
		}
		return ""
	}
	c.Temperature, c.SlowdownAt, c.ShutdownAt = number(C.TEMPERATURE), number(C.SLOWDOWN), number(C.SHUTDOWN)
	c.Power, c.PowerLimit, c.PowerDefault = number(C.POWER), number(C.POWER_LIMIT), number(C.POWER_DEFAULT)
	c.Clock, c.ClockMax, c.ClockApp, c.ClockAppUsual = number(C.CLOCK), number(C.CLOCK_MAX), number(C.CLOCK_APP),
		number(C.CLOCK_APP_DEFAULT)
	c.MemoryClock, c.MemoryMax = number(C.MEM_CLOCK), number(C.MEM_CLOCK_MAX)
	if v := number(C.REASONS); v != nil {
		c.Throttled = throttleWords(*v)
	}
	c.ECC, c.ECCPending = word(C.ECC, "disabled", "enabled"), word(C.ECC_PENDING, "disabled", "enabled")
	c.Corrected, c.Uncorrected, c.CorrectedEver, c.UncorrectEver = number(C.CORRECTED), number(C.UNCORRECTED),
		number(C.CORRECTED_EVER), number(C.UNCORRECTED_EVER)
	c.RetiredSingle, c.RetiredDouble, c.RetirePending = number(C.RETIRED_SINGLE), number(C.RETIRED_DOUBLE),
		truth(C.RETIRED_PENDING)
	c.RemappedFixed, c.RemappedBroken = number(C.REMAPPED_FIXED), number(C.REMAPPED_BROKEN)
	c.RemapPending, c.RemapFailed = truth(C.REMAP_PENDING), truth(C.REMAP_FAILED)
	c.MIG, c.MIGPending = word(C.MIG, "disabled", "enabled"), word(C.MIG_PENDING, "disabled", "enabled")
	c.Persistence, c.ComputeMode = truth(C.PERSISTENCE),
		word(C.COMPUTE_MODE, "default", "exclusive_thread", "prohibited", "exclusive_process")
	if c.MIG == "enabled" {
		for i := range min(int(C.nv_instances(h)), 64) {
			var part C.nv_card
			if C.nv_instance(h, C.uint(i), &part) == 0 {
				c.Instances = append(c.Instances, CardInstance{printable(C.GoString(&part.uuid[0])), int64(part.total),
					int64(part.used), int64(part.free)})
			}
		}
	}
	c.Processes = processesOn(h)
}

// processesOn lists compute and graphics processes by id; one that is both is named once.
func processesOn(h C.nv_device) (all []CardProcess) {
	const insufficient = 7
	for graphics := range 2 {
		list := make([]C.nv_process, 64)
		for range 3 { // the list may grow between two calls
			n := C.uint(len(list))
			r := C.nv_processes(h, C.int(graphics), &n, &list[0])
			if r == insufficient && int(n) < 1<<16 {
				list = make([]C.nv_process, max(int(n), len(list))+64)
				continue
			}
			if r != 0 {
				n = 0
			}
			for _, p := range list[:min(int(n), len(list))] {
				bytes := int64(p.bytes)
				if bytes < 0 { // NVML_VALUE_NOT_AVAILABLE
					bytes = 0
				}
				at := slices.IndexFunc(all, func(q CardProcess) bool { return q.PID == int(p.pid) })
				if at < 0 {
					all = append(all, CardProcess{PID: int(p.pid), Name: processName(int(p.pid))})
					at = len(all) - 1
				}
				all[at].Bytes = max(all[at].Bytes, bytes)
			}
			break
		}
	}
	slices.SortFunc(all, func(a, b CardProcess) int { return a.PID - b.PID })
	return all
}

func processName(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return printable(string(b[:max(0, len(b)-1)]))
}

// WatchCards begins to note the driver's critical errors (Xid) of all cards. Absence of NVML, or of the right to
// watch, is an error that nobody has to act on.
func WatchCards() error {
	nvml.Lock()
	defer nvml.Unlock()
	return watch(nvmlName)
}

func watch(names ...string) error {
	if err := openNVML(names...); err != nil || nvml.watched {
		return err
	}
	nvml.watched, nvml.xids = true, map[int][]int{}
	if r := C.nv_watch(&nvml.set); r != 0 {
		nvml.set = nil
		return nvmlError{"nvmlEventSetCreate", int(r)}
	}
	var problems []error
	for _, h := range nvml.handles {
		if h == nil {
			continue
		}
		if r := C.nv_register(h, nvml.set); r != 0 {
			problems = append(problems, nvmlError{"nvmlDeviceRegisterEvents", int(r)})
		}
	}
	return errors.Join(problems...)
}

// drainXids takes the events that wait, the first of them for at most so many milliseconds; the lock is held.
func drainXids(milliseconds int) {
	if nvml.set == nil {
		return
	}
	for range 1024 {
		var e C.nv_event
		if C.nv_wait(nvml.set, &e, C.uint(milliseconds)) != 0 {
			return // none waits
		}
		milliseconds = 0
		if i := slices.Index(nvml.handles, e.device); i >= 0 && e._type == C.XID_EVENT && len(nvml.xids[i]) < keptXids {
			nvml.xids[i] = append(nvml.xids[i], int(e.data))
		}
	}
}

// waitXids gives an event of the failure at hand a moment to arrive.
func waitXids() {
	nvml.Lock()
	defer nvml.Unlock()
	drainXids(200)
}
