import { type EventStore, traceparentOf } from '#events'
import type { References } from '../observe/references.ts'
import { OwnedWriter } from './owned-writer.ts'
import { PrimaryWriter } from './primary-writer.ts'
import { WriteRequests, type WriteRequestsDependencies, type WritingRun } from './write-requests.ts'
import { WriteThrough } from './write-through.ts'

export interface WritersDependencies extends WriteRequestsDependencies {
  /** What runs use of EVENTS. */
  events: Pick<EventStore, 'observe' | 'put' | 'isReferenceOnly'>
  references: References
}

export interface Writers {
  owned: OwnedWriter
  primary: PrimaryWriter
}

/** Send the writes of one run and put their results into EVENTS. */
export function writersOf(deps: WritersDependencies, run: WritingRun): Writers {
  const { origin, signal, span } = run
  const requests = new WriteRequests(deps, run)
  const through = new WriteThrough(deps, { origin, signal, traceparent: traceparentOf(span) })
  return { owned: new OwnedWriter(requests, through, run), primary: new PrimaryWriter(requests, through, run) }
}
