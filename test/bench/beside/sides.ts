import { fileURLToPath } from 'node:url'
import { type KubeClient, resourcePath } from '#kube'
import { RECONCILERS } from '#spec'
import { startFairlead } from '../../support/fairlead.ts'
import { goProgram } from '../../support/go-program.ts'
import { hasPython, KOPF_OPERATOR, kopfCommand } from './kopf.ts'
import { type OperatorProcess, startProcess } from './process.ts'

export const SIDES = ['Fairlead', 'controller-runtime', 'Kopf'] as const
export type Side = (typeof SIDES)[number]

export interface Place {
  kube: KubeClient
  kubeconfig: string
  natsUrl: string
  /** The only namespace that the operator works in. */
  namespace: string
}

export const FUNCTIONS = ['at', 'memcached'].flatMap((name) => ['--function', `functions/${name}/index.ts`])
const HERE = fileURLToPath(new URL('.', import.meta.url))
const WORKERS = 10

/** Builds what the side needs. Undefined where that cannot be had here. */
export async function prepare(side: Side): Promise<((place: Place) => Promise<OperatorProcess>) | undefined> {
  if (side === 'Fairlead') return startUp
  if (side === 'controller-runtime') {
    const program = await goProgram('controller-runtime', HERE)
    return async ({ kubeconfig, namespace }) =>
      startProcess(program, ['--namespace', namespace, '--workers', `${WORKERS}`], { KUBECONFIG: kubeconfig })
  }
  if (!hasPython()) return undefined
  const kopf = await kopfCommand()
  return async ({ kubeconfig, namespace }) =>
    startProcess(kopf, ['run', '--standalone', '--quiet', '--namespace', namespace, KOPF_OPERATOR], {
      KUBECONFIG: kubeconfig,
    })
}

async function startUp({ kube, kubeconfig, natsUrl, namespace }: Place): Promise<OperatorProcess> {
  const patch = { spec: { for: { namespaces: [namespace] } } }
  for (const name of ['at', 'memcached']) await kube.patch(resourcePath(RECONCILERS, undefined, name), patch, 'merge')
  return startFairlead(['up', ...FUNCTIONS], { KUBECONFIG: kubeconfig, NATS_URL: natsUrl, LOG_LEVEL: 'info' })
}
