import { shortName } from '#sdk'
import { type AgentPod, agentPod, tryOf } from './agent-pod.ts'
import type { BackupObject } from './resource.ts'
import { storeSource } from './store-spec.ts'

const LONGEST_NAME = 63
const DEFAULT_SECONDS = 60

/** Returns the pod of one run. Its name identifies the run. */
export function backupPod({ metadata, spec, status }: BackupObject, failures: number): AgentPod {
  const { timeoutInSecond, backupIntervalInSecond, maxBackups } = spec.backupPolicy
  const { name, namespace = 'default', uid, generation } = metadata
  const run = tryOf([uid, generation, status.lastSuccessDate, failures])
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
