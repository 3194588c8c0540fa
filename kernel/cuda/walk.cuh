// walk.cuh: how a grid goes through a matrix in units of some neighbours, without a division for each.
#pragma once
#include "common.cuh"

// walk goes through rows of width units, a thread of the grid at a time.
struct walk {
    unsigned width, row, at, rows_a_step, units_a_step;
    __device__ explicit walk(unsigned width) : width(width) {
        unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
        row = thread / width, at = thread % width;
        rows_a_step = step / width, units_a_step = step % width;
    }
    __device__ void next() {
        row += rows_a_step, at += units_a_step;
        if (at >= width) at -= width, row++;
    }
};
