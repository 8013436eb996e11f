import * as Data from "effect/Data"

/** There is no answer: the connection ends. */
export class Dropped extends Data.TaggedError("Dropped")<{ readonly when: "before" | "underway" | "after" }> {
  override get message(): string {
    return this.when === "before" ? "connection refused" : "connection reset"
  }
}
