/** `npm run bench peers -- [NAME…] [--quick]`: our queue beside what else one might take, in one run. One table. */
import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import type { Nats } from '#lab'
import { startTestNats } from '../../support/servers.ts'
import { measure, type Sizes } from './measure.ts'
import { PEERS, type PeerName } from './peer.ts'
import { NoServerError, type Server, startRedis } from './servers.ts'

const TITLES: Record<PeerName, string> = {
  fairlead: 'Fairlead',
  nak: 'lease and nak',
  memory: 'in process',
  bullmq: 'BullMQ',
}
const WHOLE: Sizes = { backlog: 8000, warm: 12_000, single: 500, many: 100_000, processes: [1, 2, 4, 8] }
const QUICK: Sizes = { backlog: 500, warm: 500, single: 50, many: 2000, processes: [1, 2] }

const USAGE = `npm run bench peers -- [${PEERS.join('] [')}] [--quick] [--json]`
const say = (what: string) => void process.stderr.write(`${what}\n`)
const { quick, json, peers } = options()
const sizes = quick ? QUICK : WHOLE
print(await columnsOf(peers))
process.exit()

function options() {
  try {
    const { values, positionals } = parseArgs({
      options: { quick: { type: 'boolean' }, json: { type: 'boolean' } },
      allowPositionals: true,
    })
    const unknown = positionals.find((name) => !PEERS.some((peer) => peer === name))
    if (unknown !== undefined) throw new Error(`there is no peer ${unknown}`)
    return { ...values, peers: PEERS.filter((name) => positionals.length === 0 || positionals.includes(name)) }
  } catch (error) {
    say(`${error instanceof Error ? error.message : error}\n\n${USAGE}`)
    process.exit(2)
  }
}

async function columnsOf(names: readonly PeerName[]): Promise<Map<PeerName, Map<string, string>>> {
  await using nats = await startTestNats()
  const columns = new Map<PeerName, Map<string, string>>()
  for (const peer of names) {
    say(`${TITLES[peer]} …`)
    columns.set(peer, await columnOf(peer, nats))
  }
  return columns
}

async function columnOf(peer: PeerName, nats: Nats): Promise<Map<string, string>> {
  try {
    return new Map(await measure(peer, await serverOf(peer, nats), sizes))
  } catch (error) {
    if (!(error instanceof NoServerError)) throw error
    return new Map([['not measured', error.message]])
  }
}

async function serverOf(peer: PeerName, { url, names, processes }: Nats): Promise<Server | undefined> {
  if (peer === 'memory') return undefined
  return peer === 'bullmq' ? startRedis(processes, say) : { url, pid: processes.get(names[0] ?? '')?.pid ?? 0 }
}

function print(columns: ReadonlyMap<PeerName, ReadonlyMap<string, string>>): void {
  const rows = [...new Set([...columns.values()].flatMap((column) => [...column.keys()]))]
  if (json) {
    const table = Object.fromEntries([...columns].map(([peer, column]) => [peer, Object.fromEntries(column)]))
    return void process.stdout.write(`${JSON.stringify(table)}\n`)
  }
  process.stdout.write(`${cpus().length} × ${cpus()[0]?.model}, Node ${process.version}\n`)
  const cells = rows.map((what): [string, Record<string, string>] => [
    what,
    Object.fromEntries([...columns].map(([peer, column]) => [TITLES[peer], column.get(what) ?? '–'])),
  ])
  console.table(Object.fromEntries(cells))
}
