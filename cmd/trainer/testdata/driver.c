// A driver for tests of what doctor says: as many functions of libcuda.so.1 as looking at a device takes, with answers from the environment.
#include <stdlib.h>
#include <string.h>

static int of(const char *name, int otherwise) {
    const char *s = getenv(name);
    return s ? atoi(s) : otherwise;
}
int cuInit(unsigned flags) { (void)flags; return of("FAKE_INIT", 0); }
int cuDriverGetVersion(int *v) { *v = of("FAKE_CUDA", 13000); return 0; }
int cuDeviceGetCount(int *n) { *n = of("FAKE_DEVICES", 1); return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *name, int n, int d) { (void)d; strncpy(name, "Imaginary GPU", n); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int d) { (void)d; *bytes = (size_t)24 << 30; return 0; }
int cuDeviceGetUuid(void *uuid, int d) { (void)d; memset(uuid, 7, 16); return 0; }
int cuDeviceGetAttribute(int *v, int attribute, int d) {
    (void)d;
    switch (attribute) {
    case 75: *v = of("FAKE_MAJOR", 8); break; // compute capability
    case 76: *v = of("FAKE_MINOR", 9); break;
    case 16: *v = 128; break; // multiprocessors
    default: *v = 65536;
    }
    return 0;
}
int cuGetErrorName(int code, const char **s) { (void)code; *s = "CUDA_ERROR_IMAGINARY"; return 0; }
