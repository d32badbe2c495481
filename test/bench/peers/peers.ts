/** `npm run bench:peers -- [NAME…] [--quick]`: our queue beside what else one might take, in one run. One table. */
import { cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { startTestNats } from '../../support/servers.ts'
import { measure, type Sizes } from './measure.ts'
import { PEERS, type PeerName } from './peer.ts'
import { type Server, startRedis } from './servers.ts'

const TITLES: Record<PeerName, string> = {
  fairlead: 'Fairlead',
  nak: 'lease and nak',
  memory: 'in process',
  bullmq: 'BullMQ',
}
const WHOLE: Sizes = { backlog: 8000, single: 500, many: 100_000, processes: [1, 2, 4, 8] }
const QUICK: Sizes = { backlog: 500, single: 50, many: 2000, processes: [1, 2] }

const { values, positionals } = parseArgs({
  options: { quick: { type: 'boolean' }, json: { type: 'boolean' } },
  allowPositionals: true,
})
const unknown = positionals.find((name) => !PEERS.some((peer) => peer === name))
if (unknown !== undefined) {
  process.stderr.write(`there is no peer ${unknown}: ${PEERS.join(', ')}\n`)
  process.exit(2)
}
const sizes = values.quick ? QUICK : WHOLE
const say = (what: string) => void process.stderr.write(`${what}\n`)

await using nats = await startTestNats()
const natsServer: Server = { url: nats.url, pid: nats.processes.get(nats.names[0] ?? '')?.pid ?? 0 }
const columns = new Map<PeerName, Map<string, string>>()
for (const peer of PEERS.filter((name) => positionals.length === 0 || positionals.includes(name))) {
  const server = await serverOf(peer)
  if (server === 'none to have') continue
  say(`${TITLES[peer]} …`)
  columns.set(peer, new Map(await measure(peer, server, sizes)))
}
print()
process.exit()

async function serverOf(peer: PeerName): Promise<Server | undefined | 'none to have'> {
  if (peer === 'memory') return undefined
  return peer === 'bullmq' ? ((await startRedis(nats.processes, say)) ?? 'none to have') : natsServer
}

function print(): void {
  const rows = [...new Set([...columns.values()].flatMap((column) => [...column.keys()]))]
  if (values.json) {
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
