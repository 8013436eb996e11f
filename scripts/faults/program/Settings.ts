/** The settings that the lab passes to the processes it starts, as JSON in their first argument. */

export interface ServerSettings {
  readonly dataDirectory: string
  /** The directory of the model. */
  readonly model: string
  /** Whether pieces of a batch may be sent in parallel. */
  readonly parallel: boolean
  /** The number of updates after which a model is written to disk. Requests before that are forgotten. */
  readonly snapshotEvery: number
  /** Whether clients exchange their key for a token. */
  readonly jwt: boolean
}

export interface ClientSettings {
  readonly baseUrl: string
  /** The directory for the journal and downloaded files. */
  readonly directory: string
  /** How long one attempt of a request may take, in milliseconds. */
  readonly attemptTimeout: number
}

/** The name under which the server serves its model. */
export const modelName = "lab/model"

/** The variable that holds the key of server and client. */
export const keyVariable = "TINKER_API_KEY"
