/** A process with the runtimes of several clusters, as `up` makes one; started by clusters.ts. */
import { builtins } from '#functions'
import { readConfig } from '#process/config'
import { openStreams } from '#process/connections'
import { openHistory } from '#process/history'
import { openKube } from '#process/kube'
import { createLogger } from '#process/logging'
import { createRuntime, releaseMemoryWhenIdle } from '#process/runtime'
import { openUsage } from '#process/usage'
import { UsageMeter } from '#process/usage-meter'
import { until } from '../support/wait.ts'

const [, , count = '1', ...names] = process.argv
const functions = await builtins(names)
const { signal } = new AbortController()
const raiseReplicas = true
using _heap = releaseMemoryWhenIdle()
process.once('disconnect', () => process.exit())
for (let index = 0; index < Number(count); index++) {
  const config = readConfig(process.env, { prefix: `cluster-${index}` })
  const log = await createLogger(config)
  const kube = await openKube(config)
  const streams = await openStreams(config, kube, 'up', log, { raiseReplicas })
  const meter = new UsageMeter()
  const runtime = createRuntime({
    kube,
    streams,
    parts: { bridge: true, dispatch: true },
    functions,
    apiConcurrency: 10,
    log,
    history: openHistory(config, streams, { raiseReplicas, dropped: () => undefined, log }),
    usage: { meter, store: openUsage(config, streams, meter, { raiseReplicas, log }) },
  })
  void runtime.run(signal, 0)
  const isServed = () => runtime.dispatcher?.serving().length === names.length && runtime.troubles().length === 0
  await until(isServed, { timeoutMs: 1_200_000 })
}
process.send?.('ready')
await new Promise(() => {})
