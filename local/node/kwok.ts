import { fileURLToPath } from 'node:url'
import { KWOK_NODE_NAME } from './addresses.ts'
import { administrator, applyObjects, nodeReady } from './objects.ts'
import type { NodeOptions } from './options.ts'

/** The transitions of nodes and pods, with their delays. */
const STAGES = fileURLToPath(new URL('kwok-stages.yaml', import.meta.url))

/**
 * Starts a simulated node: pods are scheduled to it and get phases, but no container runs. It needs neither root nor
 * packages of the system, and several clusters may have one. `missing`: the reasons why there is no real node; empty if
 * KWOK was chosen.
 */
export async function startKwok(options: Omit<NodeOptions, 'ephemeral'>, missing: string[]): Promise<void> {
  options.progress.line(kwokNotice(missing))
  const { processes, binaries, kubeconfig } = options
  await processes.start({
    name: 'kwok',
    command: binaries('kwok'),
    args: [
      `--config=${STAGES}`,
      `--kubeconfig=${kubeconfig}`,
      '--manage-nodes-with-label-selector=type=kwok',
      '--node-lease-duration-seconds=40',
    ],
    stopSignal: 'SIGKILL',
  })
  await using kube = await administrator(options)
  await applyObjects(kube, [KWOK_NODE])
  await nodeReady(kube, processes, KWOK_NODE_NAME)
}

export function kwokNotice(missing: string[]): string {
  const why = missing.length === 0 ? 'as asked for' : `this machine lacks ${missing.join(', ')}`
  return (
    `No real node: ${why}. KWOK pretends instead: ` +
    'pods get phases (Running, then Succeeded unless they restart always) but run nothing, so there are no logs'
  )
}

const KWOK_NODE = {
  apiVersion: 'v1',
  kind: 'Node',
  metadata: {
    name: KWOK_NODE_NAME,
    labels: {
      type: 'kwok',
      'kubernetes.io/arch': 'amd64',
      'kubernetes.io/hostname': KWOK_NODE_NAME,
      'kubernetes.io/os': 'linux',
    },
  },
}
