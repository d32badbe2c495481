/** What a run does with its key: nothing, or wait for so long and run again. */
export type Work = (key: string) => Promise<number | undefined>

/** A queue as its users see it. Keys that wait are coalesced; a key is run by one worker at a time. */
export interface Peer {
  enqueue(key: string): Promise<void>
  /** Runs keys, at most {@link SLOTS} at once, from now on; the milliseconds that work gives arm a timer. */
  serve(work: Work): Promise<void>
  close(): Promise<void>
}

export const PEERS = ['fairlead', 'nak', 'memory', 'bullmq'] as const
export type PeerName = (typeof PEERS)[number]

export interface PeerSettings {
  peer: PeerName
  /** The URL of its server. */
  url: string
  /** Keeps the measurements apart. */
  prefix: string
}

export const SLOTS = 64
/** The time after which the key of a silent worker passes to another worker: the same for all queues. */
export const LEASE_MS = 5000

/** Each in a module of its own, so that a process loads what it uses. */
export async function openPeer({ peer, url, prefix }: PeerSettings): Promise<Peer> {
  switch (peer) {
    case 'fairlead':
      return (await import('./fairlead.ts')).openFairlead(url, prefix)
    case 'nak':
      return (await import('./nak.ts')).openNak(url, prefix)
    case 'memory':
      return (await import('./memory.ts')).openMemory()
    case 'bullmq':
      return (await import('./bullmq.ts')).openBullmq(url, prefix)
  }
}
