import type { Stream } from "effect"
import * as Sse from "effect-tinker/http/Sse"
import { describe, expect, it } from "tstyche"

declare const bytes: Stream.Stream<Uint8Array, "cut", "service">

describe("Sse", () => {
  it("Sse adds one error and keeps the requirements of the bytes", () => {
    expect(bytes.pipe(Sse.decode())).type.toBe<Stream.Stream<Sse.Event, "cut" | Sse.SseError, "service">>()
    expect(Sse.decode({ maxEventBytes: 1 })(bytes)).type.toBe<
      Stream.Stream<Sse.Event, "cut" | Sse.SseError, "service">
    >()
  })
})
