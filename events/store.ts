import type { JetStream } from '#jetstream'
import type { EventStore, EventStoreOptions } from './types.ts'

/** Declares the stream and binds it to this cluster. */
export declare function openEventStore(js: JetStream, options: EventStoreOptions): Promise<EventStore>
