import { cp, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Nats } from '#lab'
import type { JetStream } from '#nats'

const RAFT = join('$SYS', '_js_')
const STREAMS = join('$G', 'streams')

/** Kills every server at once, does something to the folder of each, and starts them again. */
async function whileDown(nats: Nats, act: (store: string) => Promise<unknown>): Promise<void> {
  await Promise.all(nats.names.map((name) => nats.processes.kill(name)))
  for (const store of storesOf(nats)) await act(store)
  await Promise.all(nats.names.map((name) => nats.processes.restart(name)))
  await nats.ready()
}

const storesOf = (nats: Nats): string[] =>
  nats.names.map((name) => join(nats.processes.dir, 'nats', name, 'store', 'jetstream'))

const snapshotOf = (store: string): string => `${store}.snapshot`

/** Keeps what the disks of all servers have at one moment, as a snapshot of their file systems would. */
export async function snapshot(nats: Nats): Promise<void> {
  const signalAll = (signal: NodeJS.Signals) => nats.names.forEach((_, index) => nats.signal(signal, index))
  signalAll('SIGSTOP')
  for (const store of storesOf(nats)) await cp(store, snapshotOf(store), { recursive: true, force: true })
  signalAll('SIGCONT')
}

/**
 * Sets these streams, with their consumers and Raft logs, back to the snapshot, as if a loss of power had taken what came
 * after it from the disk of every server. The other streams keep all they have.
 */
export async function setBack(nats: Nats, js: JetStream, streams: readonly string[]): Promise<void> {
  const kept = ['_meta_']
  for await (const info of js.admin.streams.list())
    if (!streams.includes(info.config.name)) kept.push(info.cluster?.raft_group ?? '')
  await whileDown(nats, async (store) => {
    const groups = await readdir(join(store, RAFT)).catch(() => [])
    const paths = [
      ...streams.map((stream) => join(STREAMS, stream)),
      ...groups.filter((group) => !kept.includes(group)).map((group) => join(RAFT, group)),
    ]
    for (const path of paths) {
      await rm(join(store, path), { recursive: true })
      await cp(join(snapshotOf(store), path), join(store, path), { recursive: true })
    }
  })
}
