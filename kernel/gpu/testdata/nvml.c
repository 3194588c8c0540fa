// An NVML for tests: two cards whose readings come from the environment (FAKE_...), which goes for card 0; card 1 is
// plain. Structures are written as nvml.h 12.9 lays them out, apart from the program's own declarations.
// -DOLD: a driver before 510, without the newer functions. -DBROKEN: a library without nvmlInit_v2.
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNSUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7, TIMEOUT = 10, VERSION = 25 };
struct card { int index; };
static struct card cards[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}, parts[2] = {{100}, {101}};
static int sets;

static long long of(struct card *c, const char *name, long long otherwise) {
    const char *s = c->index % 100 ? 0 : getenv(name);
    return s ? atoll(s) : otherwise;
}
// A reading: below zero the card does not have it.
static int give(struct card *c, const char *name, unsigned *out, long long otherwise) {
    long long v = of(c, name, otherwise), lost = of(c, "FAKE_LOST", 0);
    if (lost) return (int)lost;
    if (v < 0) return UNSUPPORTED;
    *out = (unsigned)v;
    return OK;
}
static struct card host = {0};

#ifndef BROKEN
int nvmlInit_v2(void) { return (int)of(&host, "FAKE_NVML_INIT", 0); }
#endif
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.159.04", n); return OK; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned)of(&host, "FAKE_CARDS", 2); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct card **c) { *c = &cards[i]; return (int)of(&cards[i], "FAKE_HANDLE", 0); }
int nvmlDeviceGetName(struct card *c, char *s, unsigned n) { const char *name = getenv("FAKE_NAME"); strncpy(s, name && !c->index ? name : "Imaginary GPU", n); return OK; }
int nvmlDeviceGetUUID(struct card *c, char *s, unsigned n) {
    strncpy(s, c->index >= 100 ? (c->index == 100 ? "MIG-07070707-0707-0707-0707-070707070707" : "MIG-11111111-0707-0707-0707-070707070707")
        : c->index ? "GPU-00000000-0000-0000-0000-000000000001" : getenv("FAKE_UUID") ? getenv("FAKE_UUID") : "GPU-07070707-0707-0707-0707-070707070707", n);
    return OK;
}
int nvmlDeviceGetPciInfo_v3(struct card *c, void *info) {
    memset(info, 0, 68);
    memcpy((char *)info + 36, c->index ? "00000000:65:00.0" : "00000000:17:00.0", 17);
    return OK;
}
// FAKE_NVLINKS of each card, FAKE_NVLINKS_DOWN of card 0's not active, which lead to the other card, or to a switch (FAKE_SWITCH).
static int links(const char *name) { const char *s = getenv(name); return s ? atoi(s) : 0; }
int nvmlDeviceGetNvLinkState(struct card *c, unsigned i, int *active) {
    if ((int)i >= links("FAKE_NVLINKS")) return UNSUPPORTED;
    *active = c->index || (int)i >= links("FAKE_NVLINKS_DOWN");
    return OK;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(struct card *c, unsigned i, int *type) { (void)c; (void)i; *type = links("FAKE_SWITCH") ? 2 : 0; return OK; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct card *c, unsigned i, void *info) {
    (void)i;
    memset(info, 0, 68);
    memcpy((char *)info + 36, links("FAKE_SWITCH") ? "00000000:C1:00.0" : c->index ? "00000000:17:00.0" : "00000000:65:00.0", 17);
    return OK;
}
#ifndef OLD
int nvmlDeviceGetMaxPcieLinkGeneration(struct card *c, unsigned *v) { return give(c, "FAKE_PCIE", v, 4); }
int nvmlDeviceGetMaxPcieLinkWidth(struct card *c, unsigned *v) { return give(c, "FAKE_LANES", v, 16); }
int nvmlDeviceGetTopologyCommonAncestor(struct card *a, struct card *b, int *v) { (void)b; return give(a, "FAKE_PATH", (unsigned *)v, 30); }
int nvmlDeviceGetP2PStatus(struct card *a, struct card *b, int what, int *v) { (void)b; return give(a, what ? "FAKE_P2P_WRITE" : "FAKE_P2P_READ", (unsigned *)v, 0); }
#endif
#define MIB (1ull << 20)
static unsigned long long used(struct card *c) { return of(c, "FAKE_USED_MIB", 600) * MIB; }
static unsigned long long total(struct card *c) { return (c->index >= 100 ? 8192 : 24576) * MIB; }
int nvmlDeviceGetMemoryInfo(struct card *c, unsigned long long *m) {
    if (of(c, "FAKE_LOST", 0)) return (int)of(c, "FAKE_LOST", 0);
    m[0] = total(c); m[2] = used(c) + 400 * MIB; m[1] = m[0] - m[2];
    return OK;
}
int nvmlDeviceGetTemperature(struct card *c, int sensor, unsigned *v) { return sensor ? 2 : give(c, "FAKE_TEMPERATURE", v, 41); }
int nvmlDeviceGetTemperatureThreshold(struct card *c, int which, unsigned *v) { return give(c, which == 0 ? "FAKE_SHUTDOWN" : "FAKE_SLOWDOWN", v, which == 0 ? 95 : 90); }
int nvmlDeviceGetUtilizationRates(struct card *c, unsigned v[2]) { v[1] = 7; return give(c, "FAKE_UTILIZATION", v, 98); }
int nvmlDeviceGetPowerUsage(struct card *c, unsigned *v) { return give(c, "FAKE_POWER", v, 61000); }
int nvmlDeviceGetEnforcedPowerLimit(struct card *c, unsigned *v) { return give(c, "FAKE_LIMIT", v, 450000); }
int nvmlDeviceGetPowerManagementDefaultLimit(struct card *c, unsigned *v) { return give(c, "FAKE_LIMIT_DEFAULT", v, 450000); }
int nvmlDeviceGetClockInfo(struct card *c, int type, unsigned *v) { return give(c, type == 1 ? "FAKE_CLOCK" : "FAKE_MEM_CLOCK", v, type == 1 ? 210 : 405); }
int nvmlDeviceGetMaxClockInfo(struct card *c, int type, unsigned *v) { return give(c, "FAKE_MAX", v, type == 1 ? 3105 : 10501); }
int nvmlDeviceGetApplicationsClock(struct card *c, int type, unsigned *v) { return type == 1 ? give(c, "FAKE_APP_CLOCK", v, -1) : UNSUPPORTED; }
int nvmlDeviceGetDefaultApplicationsClock(struct card *c, int type, unsigned *v) { return type == 1 ? give(c, "FAKE_APP_DEFAULT", v, -1) : UNSUPPORTED; }
static int reasons(struct card *c, unsigned long long *v) { *v = (unsigned long long)of(c, "FAKE_REASONS", 1); return OK; }
int nvmlDeviceGetEccMode(struct card *c, int *now, int *pending) {
    long long v = of(c, "FAKE_ECC", -1);
    if (v < 0) return UNSUPPORTED;
    *now = (int)v; *pending = (int)of(c, "FAKE_ECC_PENDING", v);
    return OK;
}
int nvmlDeviceGetTotalEccErrors(struct card *c, int type, int counter, unsigned long long *v) {
    static const char *const names[2][2] = {{"FAKE_CORRECTED", "FAKE_CORRECTED_EVER"}, {"FAKE_UNCORRECTED", "FAKE_UNCORRECTED_EVER"}};
    if (of(c, "FAKE_ECC", -1) < 0) return UNSUPPORTED;
    *v = (unsigned long long)of(c, names[type][counter], 0);
    return OK;
}
int nvmlDeviceGetRetiredPages(struct card *c, int cause, unsigned *n, unsigned long long *at) {
    long long have = of(c, cause ? "FAKE_RETIRED_DOUBLE" : "FAKE_RETIRED_SINGLE", -1);
    if (have < 0) return UNSUPPORTED;
    if (have && (!at || *n < have)) { *n = (unsigned)have; return INSUFFICIENT; }
    *n = (unsigned)have;
    return OK;
}
int nvmlDeviceGetRetiredPagesPendingStatus(struct card *c, int *v) { return give(c, "FAKE_RETIRE_PENDING", (unsigned *)v, -1); }
int nvmlDeviceGetPersistenceMode(struct card *c, int *v) { return give(c, "FAKE_PERSISTENCE", (unsigned *)v, 1); }
int nvmlDeviceGetComputeMode(struct card *c, int *v) { return give(c, "FAKE_COMPUTE_MODE", (unsigned *)v, 0); }

struct process { unsigned pid; unsigned long long bytes; unsigned a, b; };
// FAKE_PROCESSES of them, with ids from FAKE_PID on and 1 GiB each; the graphics list repeats the first with less.
static int compute(struct card *c, unsigned *n, struct process *p) {
    unsigned have = (unsigned)of(c, "FAKE_PROCESSES", 0);
    if (*n < have) { *n = have; return INSUFFICIENT; }
    for (unsigned i = 0; i < have; i++) p[i] = (struct process){(unsigned)of(c, "FAKE_PID", 4000000) + i, of(c, "FAKE_BYTES", 1ll << 30), ~0u, ~0u};
    *n = have;
    return OK;
}
static int graphics(struct card *c, unsigned *n, struct process *p) {
    unsigned have = of(c, "FAKE_PROCESSES", 0) > 0;
    if (*n < have) { *n = have; return INSUFFICIENT; }
    if (have) p[0] = (struct process){(unsigned)of(c, "FAKE_PID", 4000000), 5, ~0u, ~0u};
    *n = have;
    return OK;
}
#ifdef OLD
int nvmlDeviceGetComputeRunningProcesses_v2(struct card *c, unsigned *n, struct process *p) { return compute(c, n, p); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(struct card *c, unsigned *n, struct process *p) { return graphics(c, n, p); }
int nvmlDeviceGetCurrentClocksThrottleReasons(struct card *c, unsigned long long *v) { return reasons(c, v); }
#else
int nvmlDeviceGetComputeRunningProcesses_v3(struct card *c, unsigned *n, struct process *p) { return compute(c, n, p); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(struct card *c, unsigned *n, struct process *p) { return graphics(c, n, p); }
int nvmlDeviceGetCurrentClocksEventReasons(struct card *c, unsigned long long *v) { return reasons(c, v); }
struct memory2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(struct card *c, struct memory2 *m) {
    if (m->version != 0x2000028) return VERSION;
    if (of(c, "FAKE_LOST", 0)) return (int)of(c, "FAKE_LOST", 0);
    m->total = total(c); m->reserved = 400 * MIB; m->used = used(c); m->free = m->total - m->reserved - m->used;
    return OK;
}
int nvmlDeviceGetRemappedRows(struct card *c, unsigned *fixed, unsigned *broken, unsigned *pending, unsigned *failed) {
    long long v = of(c, "FAKE_REMAPPED", -1);
    if (v < 0) return UNSUPPORTED;
    *fixed = (unsigned)v; *broken = (unsigned)of(c, "FAKE_REMAPPED_BROKEN", 0);
    *pending = (unsigned)of(c, "FAKE_REMAP_PENDING", 0); *failed = (unsigned)of(c, "FAKE_REMAP_FAILED", 0);
    return OK;
}
int nvmlDeviceGetMigMode(struct card *c, unsigned *now, unsigned *pending) { int r = give(c, "FAKE_MIG", now, -1); *pending = r ? 0 : *now; return r; }
int nvmlDeviceGetMaxMigDeviceCount(struct card *c, unsigned *n) { (void)c; *n = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(struct card *c, unsigned i, struct card **part) { (void)c; if (i > 1) return NOT_FOUND; *part = &parts[i]; return OK; }

struct event { struct card *card; unsigned long long type, data; unsigned a, b; };
int nvmlEventSetCreate(void **set) { *set = &sets; return OK; }
int nvmlDeviceRegisterEvents(struct card *c, unsigned long long types, void *set) { (void)c; return set == &sets && types == 8 ? OK : 2; }
int nvmlEventSetWait_v2(void *set, struct event *e, unsigned ms) { // FAKE_XID of card 0, once
    static long long told;
    long long xid = of(&cards[0], "FAKE_XID", 0);
    (void)ms;
    if (set != &sets || !xid || xid == told) return TIMEOUT;
    told = xid;
    *e = (struct event){&cards[0], 8, (unsigned long long)xid, ~0u, ~0u};
    return OK;
}
#endif
