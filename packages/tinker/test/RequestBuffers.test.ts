import { describe, expect, it } from "@effect/vitest"
import * as RequestBuffers from "../src/internal/codec/RequestBuffers.js"

const megabyte = 1024 * 1024

describe("RequestBuffers", () => {
  it("RequestBuffers.take reuses the smallest returned buffer that is large enough", () => {
    const [small, big] = [RequestBuffers.take(3 * megabyte), RequestBuffers.take(5 * megabyte)]
    RequestBuffers.giveBack(big)
    RequestBuffers.giveBack(small)
    expect(RequestBuffers.take(3 * megabyte - 1).buffer).toBe(small.buffer)
    expect(RequestBuffers.take(3 * megabyte).buffer).toBe(big.buffer)
  })

  it("a buffer that is given back twice is handed out once", () => {
    const first = RequestBuffers.take(2 * megabyte)
    RequestBuffers.giveBack(first.subarray(10))
    RequestBuffers.giveBack(first)
    const taken = [1, 2, 3].map(() => RequestBuffers.take(2 * megabyte).buffer)
    expect(taken[0]).toBe(first.buffer)
    expect(new Set(taken).size).toBe(3)
  })

  it("RequestBuffers.giveBack ignores foreign and small buffers", () => {
    const foreign = new Uint8Array(7 * megabyte)
    RequestBuffers.giveBack(foreign)
    expect(RequestBuffers.take(7 * megabyte).buffer).not.toBe(foreign.buffer)
    const small = RequestBuffers.take(1000)
    expect(small.length).toBe(1000)
    RequestBuffers.giveBack(small)
    expect(RequestBuffers.take(1000).buffer).not.toBe(small.buffer)
  })

  it("a small request does not occupy a much larger buffer", () => {
    const big = RequestBuffers.take(40 * megabyte)
    RequestBuffers.giveBack(big)
    expect(RequestBuffers.take(11 * megabyte).buffer).not.toBe(big.buffer)
    expect(RequestBuffers.take(30 * megabyte).buffer).toBe(big.buffer)
  })

  it("RequestBuffers.take rounds the size up, so that the next request fits", () => {
    const first = RequestBuffers.take(13 * megabyte + 1)
    expect(first.length).toBe(14 * megabyte)
    RequestBuffers.giveBack(first)
    expect(RequestBuffers.take(14 * megabyte).buffer).toBe(first.buffer)
  })
})
