import { type EventStore, traceparentOf } from '#events'
import type { References } from '../observe/references.ts'
import { OwnedWriter } from './owned-writer.ts'
import { PrimaryWriter } from './primary-writer.ts'
import { WriteRequests, type WriteRequestsDependencies, type WritingRun } from './write-requests.ts'
import { WriteThrough } from './write-through.ts'

export interface WritersDependencies extends WriteRequestsDependencies {
  /** The methods of EVENTS that runs use. */
  events: Pick<EventStore, 'observe' | 'put' | 'isReferenceOnly'>
  references: References
}

export interface Writers {
  owned: OwnedWriter
  primary: PrimaryWriter
}

/** Returns the writers of one run. They send its writes and put the results into EVENTS. */
export function writersOf(deps: WritersDependencies, run: WritingRun): Writers {
  const { origin, signal, span } = run
  const requests = new WriteRequests(deps, run)
  const through = new WriteThrough(deps, { origin, signal, traceparent: traceparentOf(span) })
  return { owned: new OwnedWriter(requests, through, run), primary: new PrimaryWriter(requests, through, run) }
}
