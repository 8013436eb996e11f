// Before each file. Files share processes, so that nothing may be left of the one before, or come on top of it.
import { addEqualityTesters, it, makeMethods } from "@effect/vitest"

// Structural equality for Option, Either, Chunk, Data and Schema classes; once, for each tester costs at every comparison.
const installed = Symbol.for("effect-tinker/test/setup")
if (!(installed in globalThis)) {
  addEqualityTesters()
  Object.defineProperty(globalThis, installed, { value: true })
}

// `layer` of @effect/vitest replaces them for good.
makeMethods(it)
