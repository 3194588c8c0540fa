//go:build gpu && linux

package gpu

// What joins the cards, by NVML: NVLinks, PCIe, and whether one reads the other's memory.

/*
#include <string.h>
#include <dlfcn.h>

typedef void *nv_device;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } nv_pci;

static struct {
	int (*state)(nv_device, unsigned, int *), (*remote)(nv_device, unsigned, nv_pci *),
		(*remote_type)(nv_device, unsigned, int *);
	int (*generation)(nv_device, unsigned *), (*width)(nv_device, unsigned *);
	int (*ancestor)(nv_device, nv_device, int *), (*p2p)(nv_device, nv_device, int, int *);
} nvl;

static void nvl_load(void *lib) {
#define MAY(field, sym) *(void **)&nvl.field = dlsym(lib, #sym);
	MAY(state, nvmlDeviceGetNvLinkState) MAY(remote, nvmlDeviceGetNvLinkRemotePciInfo_v2) MAY(remote_type,
		nvmlDeviceGetNvLinkRemoteDeviceType)
	MAY(generation, nvmlDeviceGetMaxPcieLinkGeneration) MAY(width, nvmlDeviceGetMaxPcieLinkWidth)
	MAY(ancestor, nvmlDeviceGetTopologyCommonAncestor) MAY(p2p, nvmlDeviceGetP2PStatus)
}
// Whether NVLink i of a card is there (else below 0) and active, what it leads to (0 a card, 2 a switch, -1 not told),
// and where.
static int nvl_link(nv_device d, unsigned i, int *active, int *type, char *bus_id) {
	nv_pci pci;
	memset(&pci, 0, sizeof pci);
	*active = 0;
	*type = -1;
	bus_id[0] = 0;
	if (!nvl.state || nvl.state(d, i, active)) return -1;
	if (*active && nvl.remote_type && nvl.remote_type(d, i, type)) *type = -1;
	if (*active && nvl.remote && !nvl.remote(d, i, &pci)) memcpy(bus_id, pci.bus_id, 32);
	return 0;
}
static int nvl_generation(nv_device d) { unsigned v = 0; return nvl.generation && !nvl.generation(d, &v) ? (int)v : 0; }
static int nvl_width(nv_device d) { unsigned v = 0; return nvl.width && !nvl.width(d, &v) ? (int)v : 0; }
static int nvl_ancestor(nv_device a, nv_device b) { int v = -1; return nvl.ancestor &&
	!nvl.ancestor(a, b, &v) ? v : -1; }
static int nvl_p2p(nv_device a, nv_device b, int what) { int v = -1; return nvl.p2p &&
	!nvl.p2p(a, b, what, &v) ? v : -1; }
*/
import "C"

import "unsafe"

// maxNVLinks is how many a card may have, by nvml.h 13.
const maxNVLinks = 36

// NVLinks lead to another card, or to a switch that joins all.
const linkToSwitch = 2

func loadLinks(lib unsafe.Pointer) { C.nvl_load(lib) }

// readLinks adds to the cards what joins each to those behind it; the lock is held.
func readLinks(cards []Card) {
	toSwitch, direct := make([]int, len(cards)), make([]map[[3]uint64]int, len(cards))
	for i := range cards {
		h, c := nvml.handles[i], &cards[i]
		if h == nil || c.Problem != "" {
			continue
		}
		c.PCIe = PCIe{int(C.nvl_generation(C.nv_device(h))), int(C.nvl_width(C.nv_device(h)))}
		direct[i] = map[[3]uint64]int{}
		for link := range maxNVLinks {
			var active, kind C.int
			var at [33]C.char
			if C.nvl_link(C.nv_device(h), C.uint(link), &active, &kind, &at[0]) != 0 {
				continue
			}
			c.NVLinks++
			if active == 0 {
				c.NVLinksDown++
			} else if kind == linkToSwitch {
				toSwitch[i]++
			} else if where, ok := pciNumbers(C.GoString(&at[0])); ok {
				direct[i][where]++
			}
		}
	}
	for i := range cards {
		for j := i + 1; j < len(cards); j++ {
			if direct[i] == nil || direct[j] == nil {
				continue
			}
			l := CardLink{To: cards[j].Index, NVLinks: min(toSwitch[i], toSwitch[j])}
			if there, ok := pciNumbers(cards[j].PCI); ok {
				l.NVLinks += direct[i][there]
			}
			a, b := C.nv_device(nvml.handles[i]), C.nv_device(nvml.handles[j])
			l.Path = linkPaths[int(C.nvl_ancestor(a, b))]
			const read, write = 0, 1
			l.Access = accessWord(int(C.nvl_p2p(a, b, read)), int(C.nvl_p2p(a, b, write)))
			cards[i].Links = append(cards[i].Links, l)
		}
	}
}
