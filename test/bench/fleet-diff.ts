import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { clientOf, createFleet, siteModule } from '../cli/fleet.ts'
import { fairlead, startFairlead } from '../support/fairlead.ts'
import { startTestCluster } from '../support/servers.ts'
import { cpuMsOf, peakMiBOf } from '../support/usage.ts'

/**
 * `node test/bench/fleet-diff.ts [--objects COUNT]`: memory and CPU of `fairlead diff` in a process of its own, over a tenth
 * of the objects and over all of them. Fails if it needs a heap of more than HEAP_MIB. The collector may let the process grow as
 * far as the heap's limit, so its peak alone does not show the need.
 */
const { objects } = parseArgs({ options: { objects: { type: 'string', default: '10000' } } }).values
const most = Number(objects)
const HEAP_MIB = 128

await using cluster = await startTestCluster({})
const dir = await mkdtemp(join(tmpdir(), 'fairlead-fleet-'))
const [installed, newer] = [join(dir, 'site.ts'), join(dir, 'newer.ts')]
await writeFile(installed, siteModule())
await writeFile(newer, siteModule("return { apply: [map(spec.image.replace('nginx', 'httpd'))] }"))
const env = { KUBECONFIG: cluster.kubeconfig }
await fairlead(['install', '-f', installed], env)
const kube = await clientOf(cluster.kubeconfig)
let made = 0
for (const count of [most / 10, most]) {
  await createFleet(kube, 'default', count, made)
  made = count
  const limited = { ...env, NODE_OPTIONS: `--max-old-space-size=${HEAP_MIB}` }
  await using diff = startFairlead(['diff', '-f', newer, '--all', '-o', 'json'], limited)
  const measured = { cpuMs: 0, peakMiB: 0 }
  const ended = { code: undefined as number | null | undefined }
  void diff.exited.then(({ code }) => (ended.code = code))
  while (ended.code === undefined) {
    try {
      measured.cpuMs = cpuMsOf(diff.pid)
      // A process that ends has no memory any more.
      measured.peakMiB = peakMiBOf(diff.pid) || measured.peakMiB
    } catch {
      break
    }
    await sleep(100)
  }
  const { code } = await diff.exited
  if (code !== 1) throw new Error(`fairlead diff ended with ${code}: ${JSON.stringify(diff.logs.slice(-3))}`)
  const [found] = (
    JSON.parse(diff.output.join('\n')) as { reconcilers: { objects: number; changed: number; shapes: unknown[] }[] }
  ).reconcilers
  console.log({ code, objects: found?.objects, changed: found?.changed, shapes: found?.shapes.length, ...measured })
}
await kube.close()
await rm(dir, { recursive: true, force: true })
