/** Runs jobs one after another. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"

export interface Job {
  /** In milliseconds since 1970. */
  readonly notBefore: number
  /** In milliseconds. */
  readonly takes: number
  readonly run: () => void
}

export class Lane {
  private readonly jobs: Array<Job> = []
  private worked = false

  /** Runs jobs that take no time immediately, and returns whether `work` is needed for the rest. */
  add(job: Job, now: number): boolean {
    this.jobs.push(job)
    if (this.worked) return false
    this.runInstant(now)
    this.worked = this.jobs.length > 0
    return this.worked
  }

  private runInstant(now: number): void {
    for (let job = this.jobs[0]; job !== undefined && job.takes === 0 && job.notBefore <= now; job = this.jobs[0]) {
      this.jobs.shift()
      job.run()
    }
  }

  /** Runs jobs until none is left. */
  readonly work: Effect.Effect<void> = Effect.flatMap(Clock.currentTimeMillis, (now) => {
    this.runInstant(now)
    const job = this.jobs[0]
    if (job === undefined) {
      this.worked = false
      return Effect.void
    }
    return Effect.flatMap(Effect.sleep(Math.max(0, job.notBefore - now) + job.takes), () => {
      this.jobs.shift()
      job.run()
      return this.work
    })
  })
}
