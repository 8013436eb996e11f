import * as Data from "effect/Data"

/** The connection was dropped without a response. */
export class Dropped extends Data.TaggedError("Dropped")<{ readonly when: "before" | "underway" | "after" }> {
  override get message(): string {
    return this.when === "before" ? "connection refused" : "connection reset"
  }
}
