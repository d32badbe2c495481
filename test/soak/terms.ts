/** What soak, workers and enqueuers agree on. */
export const PREFIX = 'soak'
export const FN = 'soaked'
export const STREAM = `${PREFIX}_WORK`
export const LEASE_MS = 2000
/** Where the server repeats all that it stores, for the observer. */
export const SEEN = 'seen'
/** A file of this name in the folder: runs shall all end as done. */
export const CALM = 'calm'

export interface ProcessTerms {
  url: string
  replicas: 1 | 3
  /** Holds the diaries. */
  dir: string
  name: string
  seed: number
}
