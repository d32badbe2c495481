/**
 * A bridge that reports its memory: `node --expose-gc memory-process.ts <server> <CA> <NATS URL> <prefix>`. For each
 * number that it receives, it answers with the bytes in use after it has published that many changes of ConfigMaps.
 */
import { getHeapSpaceStatistics } from 'node:v8'
import { createBridge } from '#bridge'
import { openEventStore } from '#events'
import { createKubeClient } from '#kube'
import { connectJetStream } from '#nats'
import { openQueue } from '#queue'
import { configMaps } from './objects.ts'
import { silent } from './world.ts'

const [server = '', ca = '', natsUrl = '', prefix = ''] = process.argv.slice(2)
// The parent process has ended.
process.on('disconnect', () => process.exit(1))

const js = await connectJetStream({ servers: natsUrl, name: prefix })
let published = 0
let wanted: number | undefined
const bridge = createBridge({
  kube: createKubeClient({ server, ca, userAgent: 'test' }),
  events: await openEventStore(js, { prefix, cluster: 'test', log: silent }),
  queue: await openQueue(js, { prefix, log: silent }),
  log: silent,
  observer: {
    published({ ref }) {
      if (ref.resource !== configMaps.resource) return
      published++
      answer()
    },
  },
})
process.on('message', (count: number) => {
  wanted = count
  answer()
})
await bridge.run(new AbortController().signal, 0)

function answer(): void {
  if (published === wanted) setImmediate(() => process.send?.(bytesInUse()))
}

/** Without the machine code, of which there is the more the longer it runs. */
function bytesInUse(): { heap: number; outside: number } {
  globalThis.gc?.()
  globalThis.gc?.()
  const data = getHeapSpaceStatistics().filter(({ space_name: name }) => !/code|trusted/.test(name))
  return {
    heap: data.reduce((sum, { space_used_size: used }) => sum + used, 0),
    outside: process.memoryUsage().external,
  }
}
