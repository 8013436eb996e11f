import { describe, expect, it } from "@effect/vitest"
import * as RequestMemory from "../src/internal/codec/RequestBuffers.js"

const megabyte = 1024 * 1024

describe("memory for requests", () => {
  it("that was given back is taken again, the smallest that is big enough", () => {
    const [small, big] = [RequestMemory.take(3 * megabyte), RequestMemory.take(5 * megabyte)]
    RequestMemory.giveBack(big)
    RequestMemory.giveBack(small)
    expect(RequestMemory.take(3 * megabyte - 1).buffer).toBe(small.buffer)
    expect(RequestMemory.take(3 * megabyte).buffer).toBe(big.buffer)
  })

  it("is never in two hands", () => {
    const first = RequestMemory.take(2 * megabyte)
    RequestMemory.giveBack(first.subarray(10))
    RequestMemory.giveBack(first)
    const taken = [1, 2, 3].map(() => RequestMemory.take(2 * megabyte).buffer)
    expect(taken[0]).toBe(first.buffer)
    expect(new Set(taken).size).toBe(3)
  })

  it("is not used again if it came from somewhere else, or is small", () => {
    const foreign = new Uint8Array(7 * megabyte)
    RequestMemory.giveBack(foreign)
    expect(RequestMemory.take(7 * megabyte).buffer).not.toBe(foreign.buffer)
    const small = RequestMemory.take(1000)
    expect(small.length).toBe(1000)
    RequestMemory.giveBack(small)
    expect(RequestMemory.take(1000).buffer).not.toBe(small.buffer)
  })

  it("of a big one is not kept busy by a small one", () => {
    const big = RequestMemory.take(40 * megabyte)
    RequestMemory.giveBack(big)
    expect(RequestMemory.take(11 * megabyte).buffer).not.toBe(big.buffer)
    expect(RequestMemory.take(30 * megabyte).buffer).toBe(big.buffer)
  })

  it("is as much as was asked for, and a little more for the next", () => {
    const first = RequestMemory.take(13 * megabyte + 1)
    expect(first.length).toBe(14 * megabyte)
    RequestMemory.giveBack(first)
    expect(RequestMemory.take(14 * megabyte).buffer).toBe(first.buffer)
  })
})
