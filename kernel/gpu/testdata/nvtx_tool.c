// A tool as NVTX knows them: it prints the ranges that a program opens and closes.
#include <stdio.h>
#include <nvtx3/nvToolsExt.h>

static int push(const char *name) { fprintf(stderr, "push %s\n", name); return 0; }
static int pop(void) { fprintf(stderr, "pop\n"); return 0; }

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t tables) {
	const NvtxExportTableCallbacks *callbacks = tables(NVTX_ETID_CALLBACKS);
	NvtxFunctionTable core;
	unsigned size = 0;
	if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &size) || size <= NVTX_CBID_CORE_RangePop) return 0;
	*core[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
	*core[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
	return 1;
}
