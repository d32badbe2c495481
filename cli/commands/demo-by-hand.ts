import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { ProcessGroup } from '#lab'
import type { DemoServers } from './demo-servers.ts'

const NAME = 'fairlead-up'
const EXAMPLE = fileURLToPath(new URL('../../functions/at/example.yaml', import.meta.url))
const BIN = fileURLToPath(new URL('../bin.js', import.meta.url))

/** Starts `fairlead up` among the servers of the folder, so that `fairlead local down` stops it too. */
export async function startInBackground(
  { dir, kubeconfig, natsUrl }: DemoServers,
  env: NodeJS.ProcessEnv,
): Promise<void> {
  if (dir === undefined) return
  const { PATH = '', HOME = '' } = env
  const settings = Object.entries(env).flatMap(([name, value = '']) => (isSetting(name) ? [[name, value]] : []))
  const processes = new ProcessGroup(dir)
  await processes.stop(NAME)
  await processes.start({
    name: NAME,
    command: process.execPath,
    args: [BIN, 'up', '--builtin', 'at'],
    env: { ...Object.fromEntries(settings), PATH, HOME, KUBECONFIG: kubeconfig, NATS_URL: natsUrl },
  })
}

const isSetting = (name: string) => /^(FAIRLEAD|LOG|NATS)_/.test(name)

export function continueByHand({ dir, kubeconfig, natsUrl }: DemoServers): string {
  const fairlead = `node ${BIN}`
  const servers =
    dir === undefined
      ? [
          `  ${fairlead} up --builtin at                   # bridge and dispatcher; not started: the servers are your own`,
        ]
      : [`  tail -f ${join(dir, 'log', 'fairlead-up.log')}   # bridge and dispatcher run in the background`]
  return `
Go on by hand:

  export KUBECONFIG=${kubeconfig} NATS_URL=${natsUrl}${dir === undefined ? '' : ` PATH=${join(dir, 'bin')}:$PATH`}
  kubectl get ats,pods
  kubectl logs example-at-pod
  kubectl apply -f ${EXAMPLE}
  ${fairlead} queue ls
${servers.join('\n')}
  nats stream ls                                # the nats command: go install github.com/nats-io/natscli/nats@latest
  nats sub 'k8s.>'                              # every change of the cluster as a CloudEvent

Stop everything with: ${dir === undefined ? 'kubectl delete at example-at' : `${fairlead} local down --dir ${dir}`}
`
}
