/** Chooses the format of a file by the ending of its name. */
import { UnreadableFile } from "../DataError.ts"

export interface Formats<out A> {
  readonly jsonl: () => A
  readonly csv: (delimiter: "," | "\t") => A
  readonly parquet: () => A
  readonly unknown: (error: UnreadableFile) => A
}

export const byEnding = <A>(path: string, { csv, jsonl, parquet, unknown }: Formats<A>): A => {
  switch (/\.([^./\\]+)$/.exec(path)?.[1]?.toLowerCase()) {
    case "jsonl":
    case "ndjson":
      return jsonl()
    case "csv":
      return csv(",")
    case "tsv":
      return csv("\t")
    case "parquet":
      return parquet()
    default: {
      const problem =
        "the name ends in none of .jsonl, .ndjson, .csv, .tsv and .parquet; name the format by its own function"
      return unknown(new UnreadableFile({ file: path, problem }))
    }
  }
}
