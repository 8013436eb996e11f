import { Clock, Effect } from "effect"

/** The test's clock, and the number of fibers sleeping on it. */
export const make: Effect.Effect<{ readonly clock: Clock.Clock; readonly asleep: () => number }> = Effect.map(
  Effect.clock,
  (clock) => {
    let asleep = 0
    return {
      asleep: () => asleep,
      clock: {
        [Clock.ClockTypeId]: Clock.ClockTypeId,
        currentTimeMillis: clock.currentTimeMillis,
        currentTimeNanos: clock.currentTimeNanos,
        unsafeCurrentTimeMillis: () => clock.unsafeCurrentTimeMillis(),
        unsafeCurrentTimeNanos: () => clock.unsafeCurrentTimeNanos(),
        sleep: (duration) =>
          Effect.acquireUseRelease(
            Effect.sync(() => asleep++),
            () => clock.sleep(duration),
            () => Effect.sync(() => asleep--),
          ),
      },
    }
  },
)
