import type { Entry } from '#queue'

export type State = Entry['state']
export const STATES: readonly State[] = ['queued', 'running', 'waiting', 'parked']

export type Act = 'retry' | 'park' | 'purge'

/** The states that `--all` selects without `--state`. */
export const STATES_OF: Record<Act, readonly State[]> = {
  retry: ['waiting', 'parked'],
  park: ['queued', 'waiting'],
  purge: ['queued', 'waiting', 'parked'],
}
