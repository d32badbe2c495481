import { createHash } from 'node:crypto'
import { shortName } from '#sdk'
import { type AgentPod, agentPod } from './agent-pod.ts'
import type { BackupObject } from './resource.ts'
import { storeSource } from './store-spec.ts'

const LONGEST_NAME = 63
const DEFAULT_SECONDS = 60

/** The pod of one run. Its name tells the run: the same state has the same name, another try another one. */
export function backupPod({ metadata, spec, status }: BackupObject, failures: number): AgentPod {
  const { timeoutInSecond, backupIntervalInSecond, maxBackups } = spec.backupPolicy
  const { name, namespace = 'default', uid, generation } = metadata
  const run = createHash('sha256')
    .update([uid, generation, status.lastSuccessDate, failures].join(' '))
    .digest('hex')
    .slice(0, 10)
  const periodic = backupIntervalInSecond > 0 ? ['--periodic', ...(maxBackups > 0 ? [`--keep=${maxBackups}`] : [])] : []
  return agentPod(
    {
      name: `${shortName(name, LONGEST_NAME - run.length - 1)}-${run}`,
      labels: { app: 'etcd-backup', etcd_backup: shortName(name, LONGEST_NAME) },
    },
    {
      image: spec.agentImage,
      command: 'backup',
      args: [`--endpoints=${spec.etcdEndpoints.join(',')}`, `--owner=${namespace}/${name}`, ...periodic],
      store: storeSource(spec.storageType, spec),
      tlsSecret: spec.clientTLSSecret,
      seconds: timeoutInSecond || DEFAULT_SECONDS,
    },
  )
}
