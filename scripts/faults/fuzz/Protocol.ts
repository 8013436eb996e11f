/** The messages between the fuzzer and the processes that it starts. Inputs are in base64. */

export interface Settings {
  readonly target: string
  readonly seconds: number
  readonly seed: number
  readonly corpus: ReadonlyArray<string>
  /** The file that holds the input that is running. */
  readonly inputFile: string
}

export type Line =
  | { readonly _tag: "Progress"; readonly runs: number }
  | {
      readonly _tag: "End"
      readonly runs: number
      readonly corpus: ReadonlyArray<string>
      readonly problem?: string
      readonly input?: string
    }
