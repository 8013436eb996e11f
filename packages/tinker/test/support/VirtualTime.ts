/** Runs a program under TestClock by moving time to the next thing that anyone waits for, until it is done. */
import { Chunk, Effect, Fiber, Option, TestClock } from "effect"

export const run = <A, E, R>(program: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(program)
    for (;;) {
      // Lets everything that can run now run, without moving time.
      yield* TestClock.adjust(0)
      if (Option.isSome(yield* Fiber.poll(fiber))) return yield* Fiber.join(fiber)
      const sleeps = yield* TestClock.sleeps()
      if (Chunk.isEmpty(sleeps)) {
        yield* Effect.yieldNow()
        continue
      }
      yield* TestClock.setTime(Math.min(...sleeps))
    }
  })
