import { borrowCluster } from '../support/borrowed.ts'
import { type Servers, serversOn } from './servers-on.ts'

export type { Servers } from './servers-on.ts'

/** An API server that other files use as well, which knows Reconcilers, with a client that may do anything, and NATS. */
export const startServers = (): Promise<Servers> => serversOn(borrowCluster())
