/** The memory of a bridge with 2,000 Secrets of 100 KiB: watched as metadata, and whole, in one run. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type KubeClient, resourcePath } from '#kube'
import { connectJetStream } from '#nats'
import { RECONCILERS } from '#spec'
import { reconcilerObject, secrets } from '../bridge/objects.ts'
import { serversOn } from '../bridge/servers-on.ts'
import { BIN, LEASHED } from '../support/fairlead.ts'
import { startTestCluster } from '../support/servers.ts'
import { until } from '../support/wait.ts'

const SECRETS = 2000
const BYTES = 100 * 1024
const AT_ONCE = 16

await using servers = await serversOn(startTestCluster())
const { kube, cluster, nats } = servers
await fillSecrets(kube)
console.log(`${SECRETS} Secrets of ${BYTES / 1024} KiB: memory of a bridge at its highest, while it lists them`)
for (const [what, selection] of [
  ['metadata', {}],
  ['whole objects', { fieldSelector: 'type=Opaque' }],
] as const) {
  const made = await kube.create(
    resourcePath(RECONCILERS),
    reconcilerObject('secrets', { for: { ...secrets, ...selection } }),
  )
  console.log(`${what}: ${await highestMiB(what.replace(' ', '-'))} MiB`)
  await kube.delete(resourcePath(RECONCILERS, undefined, made.metadata.name))
}
process.exit(0)

async function fillSecrets(kube: KubeClient): Promise<void> {
  const data = { value: Buffer.alloc((BYTES * 3) / 4, 'x').toString('base64') }
  let next = 0
  const create = async () => {
    while (next < SECRETS)
      await kube.create(resourcePath(secrets, 'default'), { metadata: { name: `s${next++}` }, type: 'Opaque', data })
  }
  await Promise.all(Array.from({ length: AT_ONCE }, create))
}

/** VmHWM of a bridge that has listed all of them. */
async function highestMiB(prefix: string): Promise<number> {
  const env = { ...process.env, KUBECONFIG: cluster.kubeconfig, NATS_URL: nats.url, FAIRLEAD_PREFIX: prefix }
  const args = [...LEASHED, BIN, 'bridge']
  const child = spawn(process.execPath, args, { env, stdio: 'ignore' })
  await using js = await connectJetStream({ servers: nats.url, name: 'bench' })
  const isListed = async () => {
    for await (const { subject, data } of js.scan(`${prefix}_EVENTS`, `${prefix}.cursor._.v1.secrets._`))
      return subject !== '' && !Buffer.from(data).toString().includes('unlisted')
    return false
  }
  await until(isListed, { leastMs: 200, timeoutMs: Number.POSITIVE_INFINITY })
  const status = await readFile(`/proc/${child.pid}/status`, 'utf8')
  child.kill('SIGKILL')
  await once(child, 'exit')
  return Math.round(Number(/VmHWM:\s*(\d+) kB/.exec(status)?.[1]) / 1024)
}
